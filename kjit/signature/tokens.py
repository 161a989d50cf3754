"""Tokens of a signature, and the reader that a parser takes them from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kjit.signature.hints import BRACKETS, NUMBER, Advice, decimal, is_in_shape, strange_character
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
    """The text of a signature, and how far it is read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _scan(text)
        self.next = 0

    def error(self, reason: str, *, column: int, hint: str) -> SignatureError:
        return SignatureError(reason, text=self.text, column=column, hint=hint)

    def advise(self, advice: Advice, column: int) -> SignatureError:
        return _advised(advice, self.text, column)

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
            raise self.error(f"expected {expected}, found {self.found()}.", column=self.token.column, hint=hint)
        return self.take()

    def found(self) -> str:
        return f"'{self.token.text}'" if self.token.kind != "end" else "the end"

    def rest(self) -> str:
        """What is not read yet."""
        return self.text[self.token.column :]

    def is_glued(self) -> bool:
        """Whether nothing stands between the next token and the one before."""
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


def _advised(advice: Advice, text: str, column: int) -> SignatureError:
    return SignatureError(advice.reason, text=text, column=column, hint=advice.hint)


def _scan(text: str) -> list[Token]:
    tokens: list[Token] = []
    column = 0
    while column < len(text):
        match = _TOKEN.match(text, column)
        if match is None or match.lastgroup is None:
            raise _advised(strange_character(text, column), text, column)
        before = tokens[-1].kind if tokens else ""
        is_expected = {
            "string": before in (":", "or") or (before == "=" and _has_choice(tokens)),
            "or": before == "string",
            "operator": is_in_shape(text, column),
        }
        if not is_expected.get(match.lastgroup, True):
            raise _advised(strange_character(text, column), text, column)
        if match.lastgroup == "broken":
            raise SignatureError(
                f"'{match.group()}' is no arrow.", text=text, column=column, hint="an arrow is written '->'"
            )
        if match.lastgroup == "number" and len(match.group()) > _LONGEST_NUMBER:
            raise SignatureError(
                f"a number of {len(match.group())} characters is too long.",
                text=text,
                column=column,
                hint=f"for example: {match.group()[:3]}",
            )
        if match.lastgroup == "based":
            raise SignatureError(
                f"'{match.group()}' is no decimal number.", text=text, column=column, hint=decimal(match.group())
            )
        if match.lastgroup != "space":
            kind = match.group()[0] if match.lastgroup in ("mark", "operator") else match.lastgroup
            tokens.append(Token(kind, match.group().replace("_", "") if kind == "number" else match.group(), column))
        column = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _has_choice(tokens: Sequence[Token]) -> bool:
    """Whether a default belongs to a choice or a text."""
    return len(tokens) > 1 and (tokens[-2].kind == "string" or tokens[-2].text == "str")
