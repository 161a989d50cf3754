"""Macros that expand to a given word, directly or through other macros.

Found in the text of all files that a compiler read, conservatively: a macro that is defined twice, or in an inactive
branch, counts with all its definitions. A word formed by `##` is noticed if a part of it is in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kjit.engine.key.flags import Dialect, expand

_CONTINUED = re.compile(rb"\\[ \t]*\r?\n")
_COMMENT_OR_TEXT = re.compile(
    rb"""//[^\n]*|/\*.*?(?:\*/|\Z)|(?:u8|[uUL])?R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


def joined(text: bytes) -> bytes:
    """`text` with continued lines joined."""
    return _CONTINUED.sub(b"", text) if b"\\" in text else text


def without_comments(text: bytes) -> bytes:
    """`text` as the preprocessor sees it: continued lines joined, a space for each comment."""
    return _COMMENT_OR_TEXT.sub(lambda match: b" " if match[0].startswith(b"/") else match[0], joined(text))


def definitions_in(flags: Iterable[str], dialect: Dialect = "c++") -> bytes:
    """The macros that flags define, as `#define` lines."""
    defined = [flag.value for flag, _ in expand(flags, dialect) if flag.name in ("-D", "--define-macro")]
    lines = [f"#define {' '.join(text.split('=', 1))}\n" for text in defined]
    return "".join(lines).encode(errors="surrogateescape")


_MACRO = re.compile(rb"[ \t]*(\w+)")


def words(names: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern that finds any of these words."""
    return re.compile(rb"\b(?:%s)\b" % b"|".join(sorted(map(re.escape, names))))


_DEFINE = b"define "


def only_definitions(text: bytes) -> bytes:
    """The macro definitions in `text`, a line for each: a tenth of most headers."""
    return b"".join(b"#define %s\n" % line for line in _definitions_in(text))


def _definitions_in(text: bytes) -> Iterator[bytes]:
    if b"define\t" in text:
        text = text.replace(b"define\t", _DEFINE)
    for piece in text.split(_DEFINE)[1:]:
        line = piece.partition(b"\n")[0]
        goes_on = line.endswith(b"\\") or line.rstrip().endswith(b"\\")
        yield joined(piece).partition(b"\n")[0] if goes_on else line


class Definitions:
    """The macros that texts define."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        lines = (line for text in texts for line in _definitions_in(text))
        self._lines = b"\n".join([b"", *lines, b""])

    def leading_to(self, names: Iterable[bytes]) -> set[bytes]:
        """`names`, and the macros whose definitions contain one of them, directly or through other macros."""
        found = new = set(names)
        while new:
            new = {macro for name in new for macro in self._defined_by(name)} - found
            found = found | new
        return found

    def _defined_by(self, name: bytes) -> Iterator[bytes]:
        """The macros whose definitions contain the word `name`."""
        lines = self._lines
        at = lines.find(name)
        while at >= 0:
            start, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            macro = _MACRO.match(lines, start, end)
            if macro is not None and words([name]).search(lines, macro.end(), end):
                yield macro[1]
            at = lines.find(name, end)
