"""Output on terminals whose encoding lacks some of our characters, such as cp1252 and ASCII."""

import codecs
import io
import sys
import unicodedata

# One column each, so that tables and curves keep their form.
_LIKENESS = dict(zip("▁▂▃▄▅▆▇█→←…·•✓✗─≤≥×−–≈", "12345678><..*+x-<>x--~", strict=True))


def replace_unknown() -> None:
    """Replace characters that stdout and stderr cannot encode, in place of raising an error."""
    codecs.register_error("mmrl", _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="mmrl")


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the ASCII text, or the byte of an undecoded argument, for the first bad character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, end = error.object[error.start], error.start + 1
    if 0xDC80 <= ord(character) <= 0xDCFF:  # PEP 383
        return bytes([ord(character) - 0xDC00]), end
    parts = unicodedata.normalize("NFKD", character)  # a superscript minus is a minus
    return "".join(_LIKENESS.get(x) or _ascii(x) for x in parts) or "?", end


def _ascii(character: str) -> str:
    """Return the letter without accents, the digit or the Greek name, else an empty string."""
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        return name.split()[-1].lower().replace("lamda", "lambda")
    return character.encode("ascii", "ignore").decode()
