"""Formatting of shell commands that users can copy."""

import os
import pathlib
import shlex
import shutil
import sys


def command_line(*words: object) -> str:
    """Return the command `mmrl WORDS`, quoted for a shell in the current folder.

    If the virtual environment is not active, the command begins with a path to the program, such as
    `.venv/bin/mmrl`.
    """
    ours = pathlib.Path(sys.executable).with_name("mmrl")
    on_path = shutil.which("mmrl")
    program = "mmrl"
    if ours.exists() and not (on_path and pathlib.Path(on_path).samefile(ours)):
        near = pathlib.Path(os.path.relpath(ours))
        program = str(ours if near.parts[:2] == ("..", "..") else near)
    return " ".join(map(_quote, [program, *map(_word, words)]))


def _word(word: object) -> str:
    """Return an argument as a string, with "./" before a path that starts with "-" or "~"."""
    text = str(word)
    return f"./{text}" if isinstance(word, pathlib.Path) and text[0] in "-~" else text


def _quote(word: str) -> str:
    """Quote a word. Bytes that a terminal cannot print are escaped, as in `$'\x1b'`."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if word.isprintable() and word.encode(encoding, "ignore").decode(encoding) == word:
        return shlex.quote(word)
    safe = {x: chr(x) for x in range(32, 127) if chr(x) not in "'\\"}
    characters = (safe.get(x) or rf"\x{x:02x}" for x in os.fsencode(word))
    return f"$'{''.join(characters)}'"
