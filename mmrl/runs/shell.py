"""Commands to copy into a shell."""

import os
import pathlib
import shlex
import shutil
import sys


def called(*words: object) -> str:
    """Return the command `mmrl WORDS`, quoted for a shell in this folder.

    Outside an activated environment it starts with a path such as `.venv/bin/mmrl`.
    """
    ours = pathlib.Path(sys.executable).with_name("mmrl")
    found = shutil.which("mmrl")
    program = "mmrl"
    if ours.exists() and not (found and pathlib.Path(found).samefile(ours)):
        near = pathlib.Path(os.path.relpath(ours))
        program = str(ours if near.parts[:2] == ("..", "..") else near)
    return " ".join(map(_quoted, [program, *map(_word, words)]))


def _word(word: object) -> str:
    """Return a word of a command, so that a path is not read as an option or as a home."""
    text = str(word)
    return f"./{text}" if isinstance(word, pathlib.Path) and text[0] in "-~" else text


def _quoted(word: str) -> str:
    """Return a quoted word, with bytes as in `$'\x1b'` if a terminal cannot print it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if word.isprintable() and word.encode(encoding, "ignore").decode(encoding) == word:
        return shlex.quote(word)
    safe = {x: chr(x) for x in range(32, 127) if chr(x) not in "'\\"}
    shown = (safe.get(x) or rf"\x{x:02x}" for x in os.fsencode(word))
    return f"$'{''.join(shown)}'"
