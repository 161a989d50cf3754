"""A preprocessed unit of C++ or CUDA as files, lines and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kjit.cpp_text import LITERAL, MARKER, NAME, NUMBER

_MARKER = re.compile(rf"^{MARKER}\n?", re.MULTILINE)
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?P<string>{LITERAL})
    |(?P<number>{NUMBER})
    |(?P<name>{NAME})
    |(?P<sign>::|->|[\s\S])""",
    re.VERBOSE,
)
OPEN, CLOSE = "([{", ")]}"


@dataclass
class Token:
    """A piece of the unit. `kind` is a group of `_TOKEN`, or `other` for text that is not the op's own."""

    kind: str
    text: str
    file: str = ""
    line: int = 0
    in_kernel: bool = False
    is_apart: bool = True
    """Whether there is space before it."""

    @property
    def is_code(self) -> bool:
        return self.kind not in ("space", "other")


@dataclass(frozen=True)
class Piece:
    """The text between a line marker and the next one.

    Attributes:
        marker: the text of the marker; empty before the first one.
        flags: the flags of the marker.
        is_own: whether the text is from one of the op's own files: kjit's, CUDA's and the system's headers are marked.
    """

    marker: str
    text: str
    file: str
    line: int
    flags: tuple[str, ...]
    is_own: bool


def pieces(unit: str) -> Iterator[Piece]:
    """All of `unit`, in order."""
    file, line, is_own = "", 1, False
    flags: tuple[str, ...] = ()
    # Decided where a file begins: further on, the expansions of system headers' macros are marked as the system's.
    is_own_file: dict[str, bool] = {}
    marker, start = "", 0
    for match in (*_MARKER.finditer(unit), None):
        end = len(unit) if match is None else match.start()
        yield Piece(marker, unit[start:end], file, line, flags, is_own)
        if match is None:
            return
        marker, start = match[0], match.end()
        file, line = re.sub(r"\\(.)", r"\1", match["file"]), int(match["line"])
        flags = tuple(match["flags"].split())
        is_own = is_own_file.setdefault(file, "3" not in flags and not file.startswith("<"))


def split(text: str, file: str, line: int) -> Iterator[Token]:
    """The tokens of a text that begins at `line` of `file`."""
    is_apart = True
    for match in _TOKEN.finditer(text):
        kind = "string" if match.lastgroup == "fence" else str(match.lastgroup)
        yield Token(kind, match[0], file, line, is_apart=is_apart)
        is_apart = kind == "space"
        line += match[0].count("\n")


def matching(code: list[Token], index: int) -> int:
    """The index of the bracket that closes the one at `index`."""
    depth = 0
    for position in range(index, len(code)):
        if code[position].text in OPEN:
            depth += 1
        elif code[position].text in CLOSE:
            depth -= 1
            if depth == 0:
                return position
    return len(code) - 1


def scope(words: list[Token]) -> str:
    """The kind of scope that the brace after a statement's `words` opens: `namespace`, `class`, or `other`."""
    start = 0
    while start < len(words) and words[start].text == "template" and words[start + 1 : start + 2]:
        start = end_of_template(words, start + 1)
    texts = [token.text for token in words[start:]]
    if "namespace" in texts[:2] or (texts[:1] == ["extern"] and len(texts) == 2):
        return "namespace"
    return "class" if texts[:1] and texts[0] in ("struct", "class", "union") and texts[-1] != ")" else "other"


def end_of_template(code: list[Token], index: int) -> int:
    """The index after the `>` that closes the `<` at `index`."""
    depth, nested = 0, 0
    for position in range(index, len(code)):
        text = code[position].text
        if text in OPEN:
            nested += 1
        elif text in CLOSE:
            nested -= 1
        elif nested == 0 and text == "<":
            depth += 1
        elif nested == 0 and text == ">":
            depth -= 1
            if depth == 0:
                return position + 1
    return len(code)


def opening(code: list[Token], index: int) -> int:
    """The index of the bracket that the one at `index` closes."""
    depth = 0
    for position in range(index, -1, -1):
        if code[position].kind == "sign" and code[position].text in CLOSE:
            depth += 1
        elif code[position].kind == "sign" and code[position].text in OPEN:
            depth -= 1
            if depth == 0:
                return position
    return 0


def text_of(code: list[Token]) -> str:
    """The text of tokens, with one space where there was any."""
    return "".join(f" {token.text}" if token.is_apart else token.text for token in code).strip()


def is_specifier(token: Token) -> bool:
    """Whether a token is a keyword that arguments in parentheses may follow, and not a function's name."""
    return token.text in ("__attribute__", "alignas", "requires", "decltype", "noexcept", "explicit", "__declspec")
