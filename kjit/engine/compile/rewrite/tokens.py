"""A preprocessed unit of C++ or CUDA as lines and tokens."""

from __future__ import annotations

from collections.abc import Iterator

from kjit import cpp_text
from kjit.cpp_text import closing


class Token(cpp_text.Token):
    """A piece of the unit, whose text may be changed. `kind` may be `other`, for text that is not the op's own.

    Attributes:
        is_apart: whether there is space before it.
    """

    __slots__ = ("file", "in_kernel", "is_apart", "line")

    def __init__(self, kind: str, text: str, file: str = "", line: int = 0, *, is_apart: bool = True) -> None:
        super().__init__(kind, text, 0, 0)
        self.file = file
        self.line = line
        self.is_apart = is_apart
        self.in_kernel = False

    @property
    def is_code(self) -> bool:
        return self.kind not in ("space", "other")


def split(text: str, file: str, line: int) -> Iterator[Token]:
    """The tokens of a text that begins at `line` of `file`."""
    is_apart = True
    for token in cpp_text.tokens(text, 0, len(text)):
        yield Token(token.kind, token.text, file, line, is_apart=is_apart)
        is_apart = token.kind == "space"
        line += token.text.count("\n")


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
    depth = 0
    position = index
    while position < len(code):
        text = code[position].text
        if code[position].opens:
            position = closing(code, position)
        elif text == "<":
            depth += 1
        elif text in (">", ">>>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        position += 1
    return len(code)


def text_of(code: list[Token]) -> str:
    """The text of tokens, with one space where there was any."""
    return "".join(f" {token.text}" if token.is_apart else token.text for token in code).strip()


def is_specifier(token: Token) -> bool:
    """Whether a token is a keyword that arguments in parentheses may follow, and not a function's name."""
    return token.text in ("__attribute__", "alignas", "requires", "decltype", "noexcept", "explicit", "__declspec")
