"""C++ text: literals, numbers, names and comments; tokens; and what a preprocessed unit is made of.

The only place that says what these look like; cpp_functions.py finds functions. No imports besides `re`: programs of a
build start with it for every unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LITERAL = (
    r"""(?:u8|[uUL])?(?:R"(?P<fence>[^()\\\s]{0,16})\([\s\S]*?\)(?P=fence)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')"""
)
"""A string or a character, with a group `fence`."""

NUMBER = r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"
"""A number, with the quotes that separate its digits."""

NAME = r"[^\x00-\x23%-@\[-^`\x7b-\x7f][\w$]*"

COMMENT = r"//(?:\\\n|[^\n])*|/\*[\s\S]*?\*/"

# A pattern that begins with literal text is searched for much faster than others.
_MARKER = re.compile(r'\n# (?P<line>\d+) "(?P<file>(?:\\.|[^"\\])*)"(?P<flags>.*)')
_TOKEN = re.compile(
    rf"""(?P<space>\s+|^\#.*$)
    |(?P<string>{LITERAL})
    |(?P<number>{NUMBER})
    |(?P<name>{NAME})
    |(?P<sign>::|->|\.\.\.|<<<|>>>|<=>|<<|<=|&&|[\s\S])""",
    re.VERBOSE | re.MULTILINE,
)
CLOSES = {"(": ")", "[": "]", "{": "}"}
"""The closing bracket of each opening one."""

PROSE = re.compile(rf"{COMMENT}|(?<![\w$])(?P<number>{NUMBER})|(?P<literal>{LITERAL})")
"""Comments and literals; and numbers, whose quotes begin no literal."""

_DIRECTIVE = r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*"


def blanked(text: str, *, directives: bool = True) -> str:
    """The text with spaces in place of comments and literals; all else stays at its line and column.

    Args:
        directives: whether the preprocessor's lines are blanked as well.
    """

    def blank(match: re.Match[str]) -> str:
        return match[0] if match["number"] else re.sub(r"[^\n]", " ", match[0])

    pattern = re.compile(f"{PROSE.pattern}|{_DIRECTIVE}", re.MULTILINE) if directives else PROSE
    return pattern.sub(blank, text)


class Token:
    """A piece of a text: `space` (a line marker or another directive, too), `string`, `number`, `name` or `sign`.

    Attributes:
        begin, end: its place in the text.
    """

    __slots__ = ("begin", "end", "kind", "text")

    def __init__(self, kind: str, text: str, begin: int, end: int) -> None:
        self.kind = kind
        self.text = text
        self.begin = begin
        self.end = end

    @property
    def opens(self) -> bool:
        return self.kind == "sign" and self.text in CLOSES

    @property
    def closes(self) -> bool:
        return self.kind == "sign" and self.text in (")", "]", "}")


def token_at(text: str, position: int) -> Token | None:
    """The token that begins at a position; None at the end of the text."""
    match = _TOKEN.match(text, position)
    if match is None:
        return None
    kind = "string" if match.lastgroup == "fence" else str(match.lastgroup)
    return Token(kind, match[0], match.start(), match.end())


def tokens(text: str, begin: int, end: int) -> Iterator[Token]:
    """The tokens of a part of a text."""
    while begin < end and (token := token_at(text, begin)) is not None:
        yield token
        begin = token.end


def closing(code: Sequence[Token], index: int) -> int:
    """The index of the bracket that closes the one at `index`; the last index if there is none."""
    depth = 0
    for at in range(index, len(code)):
        depth += code[at].opens - code[at].closes
        if depth == 0:
            return at
    return len(code) - 1


def opening(code: Sequence[Token], index: int) -> int:
    """The index of the bracket that the one at `index` closes; 0 if there is none."""
    depth = 0
    for at in range(index, -1, -1):
        depth += code[at].closes - code[at].opens
        if depth == 0:
            return at
    return 0


class Piece(NamedTuple):
    """The text between a line marker of a preprocessed unit and the next one: `unit[begin:end]`.

    Attributes:
        marker: the place of the marker.
        file, line: of the text.
        flags: of the marker.
        is_own: whether the file is the op's, and neither kjit's, CUDA's nor the system's. That is decided where the
            file begins: further on, the expansions of system headers' macros are marked as the system's.
    """

    marker: int
    begin: int
    end: int
    file: str
    line: int
    flags: str
    is_own: bool

    @property
    def is_system(self) -> bool:
        """Whether the text is marked as the system's: that of one of its headers, or of one of their macros."""
        return "3" in self.flags


def pieces(unit: str) -> Iterator[Piece]:
    """All of a preprocessed `unit`, in order."""
    is_own: dict[str, bool] = {}
    marker, file, line, flags = 0, "", 1, ""
    begin = 0
    # A line end before it lets a marker begin the unit.
    for match in _MARKER.finditer(f"\n{unit}"):
        yield Piece(marker, begin, match.start(), file, line, flags, is_own.get(file, False))
        marker, begin = match.start(), min(match.end(), len(unit))
        file, line, flags = match["file"], int(match["line"]), match["flags"]
        if "\\" in file:
            file = re.sub(r"\\(.)", r"\1", file)
        is_own.setdefault(file, "3" not in flags and not file.startswith("<"))
    yield Piece(marker, begin, len(unit), file, line, flags, is_own.get(file, False))


def place(unit: str, position: int) -> tuple[str, int]:
    """The file and the line of a position in a preprocessed unit."""
    *_, piece = (each for each in pieces(unit) if each.marker <= position)
    return piece.file, piece.line + unit.count("\n", piece.begin, position)


def own_code(unit: str) -> int:
    """The position of the line marker before the op's own code in a preprocessed `unit`; 0 if all of it is the op's."""
    position = 0
    for piece in pieces(unit):
        if piece.is_own:
            position = piece.marker
            if unit[piece.begin : piece.end].strip():
                break
    return position
