"""Tokens of a signature, and the reader that a parser takes them from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kjit.signature.hints import BRACKETS, NUMBER, decimal, is_in_shape, strange_character
from kjit.signature.names import Problem
from kjit.signature.signature import SignatureError

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<arrow>->)"
    r"|(?P<broken>-\s+>|[=~]>|--+>)"
    r"|(?P<ellipsis>\.\.\.)"
    r"|(?P<based>0[xXoObB]\w*)"
    rf"|(?P<number>{NUMBER})"
    r"|(?P<name>(?:torch\.)?[^\W\d]\w*)"
    r"|(?P<operator>//|[*/])"
    r"|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<or>\|)"
    r"|(?P<mark>[:,=\[\]+-])"
)

_LONGEST_NUMBER = 400
"""In characters, of which the largest float has 309."""


@dataclass(frozen=True)
class Token:
    """A name, a number and so on, or a mark, whose kind is itself; the last one is the `end`."""

    kind: str
    text: str
    column: int


class Reader:
    """The text of a signature, and the position of a parser in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._scan()
        self.next = 0

    def _scan(self) -> list[Token]:
        tokens: list[Token] = []
        column = 0
        while column < len(self.text):
            match = _TOKEN.match(self.text, column)
            if match is None or not _is_expected(self.text, match, tokens):
                raise self.error(column, *strange_character(self.text, column))
            kind, word = match.lastgroup or "", match.group()
            problem = _problem_of(kind, word)
            if problem is not None:
                raise self.error(column, *problem)
            if kind in ("mark", "operator"):
                kind = word[0]
            if kind != "space":
                tokens.append(Token(kind, word.replace("_", "") if kind == "number" else word, column))
            column = match.end()
        tokens.append(Token("end", "", len(self.text)))
        return tokens

    def error(self, at: Token | int, reason: str, hint: str) -> SignatureError:
        """The error that points at a token or a column."""
        return SignatureError(reason, text=self.text, column=at if isinstance(at, int) else at.column, hint=hint)

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.token
        self.next += token.kind != "end"
        return token

    def takes(self, kind: str) -> bool:
        """Take the next token if it is of `kind`."""
        if self.token.kind != kind:
            return False
        self.take()
        return True

    def word(self, word: str) -> bool:
        if self.token.kind == "name" and self.token.text == word:
            self.take()
            return True
        return False

    def expect(self, kind: str, expected: str, hint: str) -> Token:
        if self.token.kind != kind:
            raise self.error(self.token, f"expected {expected}, found {self.found()}.", hint)
        return self.take()

    def found(self) -> str:
        return f"'{self.token.text}'" if self.token.kind != "end" else "the end"

    def rest(self) -> str:
        """The text that is not read yet."""
        return self.text[self.token.column :]

    def is_glued(self) -> bool:
        """Whether there is no space before the next token."""
        return not self.text[self.token.column - 1].isspace()

    def type_ahead(self) -> str:
        """The tensor type that comes next, or nothing."""
        if self.token.kind != "name" or self.tokens[self.next + 1].kind != "[":
            return ""
        closed = re.match(rf"\w+\s*{BRACKETS}", self.rest())
        return closed[0] if closed is not None else ""

    def shown_as(self, dtype: str) -> str:
        """A dtype with the shape that comes next."""
        depth = 0
        for at, character in enumerate(self.rest()):
            depth += (character == "[") - (character == "]")
            if depth == 0:
                return f"{dtype}{self.rest()[: at + 1]}"
        return f"{dtype}[N]"


def _is_expected(text: str, match: re.Match[str], tokens: Sequence[Token]) -> bool:
    """Whether a string, a `|` or an operator is valid after these tokens; other tokens are checked by the parser."""
    before = tokens[-1].kind if tokens else ""
    if match.lastgroup == "string":
        has_default = len(tokens) > 1 and (tokens[-2].kind == "string" or tokens[-2].text == "str")
        return before in (":", "or") or (before == "=" and has_default)
    if match.lastgroup == "or":
        return before == "string"
    return match.lastgroup != "operator" or is_in_shape(text, match.start())


def _problem_of(kind: str, word: str) -> Problem | None:
    """The problem with a token that is never valid."""
    if kind == "broken":
        return Problem(f"'{word}' is not an arrow.", "an arrow is written '->'")
    if kind == "number" and len(word) > _LONGEST_NUMBER:
        return Problem(f"a number of {len(word)} characters is too long.", f"for example: {word[:3]}")
    return Problem(f"'{word}' is not a decimal number.", decimal(word)) if kind == "based" else None
