"""Where would clang-format break a C++ statement that is too long for one line?

The templates write every statement on one line, as none can know how long the names in it are. Running the formatter is
no way out: it is a tool of developers, and need not be installed. So what it does is done here, for what the templates
contain: declarations, calls, lists and arithmetic. Every place where a line may break has a price: inside of brackets a
higher one than outside, for the first break of an expression more than for the next, and for a column beyond the limit
more than for anything else. Of all layouts, the cheapest is taken. Prices and indentation are those of Google's style.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

CPP_WIDTH = 120

_INDENT = 4  # of what continues a line
_FIRST_BREAK = 15
_EXCESS = 1_000_000  # for each column

_COMMA, _ASSIGNMENT, _EQUALITY = 1, 2, 9
_OPERATORS = {_COMMA: ",", _ASSIGNMENT: "=", 6: "|", _EQUALITY: "!=", 13: "+", 14: "* /"}
_PRECEDENCES = {operator: precedence for precedence, text in _OPERATORS.items() for operator in text.split()}
_TIGHTEST = max(_OPERATORS)
_STRENGTHS = {"(": 1, "{": 1, "<": 12}
"""How much more a break costs within a bracket, in units of 20."""
_CLOSING = (")", "}", ">")

_TOKEN = re.compile(r'"[^"]*"|\d[\w.]*(?:(?<=e)-\d+f?)?|\w+|::|!=|\S')


def break_cpp(line: str) -> str:
    """A line of C++, or the lines that it becomes because it is too long."""
    text = line.lstrip()
    if len(line) <= CPP_WIDTH or text.startswith("//"):
        return line
    indent = len(line) - len(text)
    return _Statement(text, indent).layout()


def cpp_chain(head: str, calls: list[str], *, otherwise: str) -> str:
    """`head.call().call();` on one line; where that is too long, `otherwise`, which has no chain to break."""
    whole = head + "".join(f".{call}" for call in calls) + ";"
    return whole if len(whole) <= CPP_WIDTH else otherwise


@dataclass
class _Token:
    """A word, an operator or a bracket.

    Args:
        space: whether one comes before it.
        opens: whether it is an opening bracket, `<` of a template among them.
        closes: whether it is a closing one.
        strength: what the brackets around it add to the price of a break before it, in units of 20.
        precedence: of an operator, a comma among them; 0 of anything else.
        count: of an opening bracket, how many things are in it.
        price: of a break before it; None where there can be none.
        starts: the precedences of the expressions that start with it, the shortest expression first.
        ends: how many end with it.
    """

    text: str
    space: bool
    opens: bool = False
    closes: bool = False
    strength: int = 1
    precedence: int = 0
    count: int = 0
    price: int | None = None
    starts: list[int] = field(default_factory=list)
    ends: int = 0


class _Level(NamedTuple):
    """How far the layout of an expression, or of what is in a bracket, has come.

    Args:
        indent: of its next line.
        last: the column where the last of its parts begins.
        broken: whether it has a line break.
        split: whether a part of it has one, which parts it from the next.
    """

    indent: int
    last: int
    broken: bool = False
    split: bool = False


class _State(NamedTuple):
    """The layout of the tokens before `at`."""

    at: int
    column: int
    levels: tuple[_Level, ...]


class _Statement:
    def __init__(self, text: str, indent: int) -> None:
        self.indent = indent
        self.declares_function = text.endswith((") {", ") const {"))
        self.tokens = [_Token(found[0], space=text[: found.start()].endswith(" ")) for found in _TOKEN.finditer(text)]
        self._classify()
        self._parse(0, _COMMA)
        for at in range(1, len(self.tokens)):
            price = self._price(self.tokens[at - 1], self.tokens[at])
            self.tokens[at].price = None if price is None else price + 20 * self.tokens[at].strength

    def _classify(self) -> None:
        """Find the brackets and the operators: those have spaces around them, but for commas."""
        around: list[_Token] = []
        for token, after in zip(self.tokens, [*self.tokens[1:], _Token("", space=True)], strict=True):
            token.strength = 1 + sum(_STRENGTHS[bracket.text] for bracket in around)
            if token.text == "," or (token.space and after.space):
                token.precedence = _PRECEDENCES.get(token.text, 0)
            if token.text == "," and around:
                around[-1].count += 1
            if token.precedence or not after.text:
                continue
            token.opens = token.text in _STRENGTHS
            token.closes = token.text in _CLOSING
            if token.opens:
                around.append(token)
                token.count = 1
            elif token.closes:
                around.pop()

    def _parse(self, at: int, precedence: int) -> int:
        """Find the expressions from a token on, up to an operator that binds less; gives where they end."""
        if precedence > _TIGHTEST:
            return self._skip(at)
        start, end = at, self._parse(at, precedence + 1)
        while end < len(self.tokens) and self.tokens[end].precedence == precedence:
            end = self._parse(end + 1, precedence + 1)
        if end > start and any(token.precedence == precedence for token in self._outside_brackets(start, end)):
            self.tokens[start].starts.append(precedence)
            self.tokens[end - 1].ends += 1
        return end

    def _skip(self, at: int) -> int:
        """Behind what has no operator, where what is in brackets is expressions of its own."""
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.precedence or token.closes or token.text == ";":
                break
            at += 1
            if token.opens:
                at = self._parse(at, _COMMA) + 1
        return at

    def _outside_brackets(self, start: int, end: int) -> Iterator[_Token]:
        depth = 0
        for token in self.tokens[start:end]:
            depth -= token.closes
            if depth == 0:
                yield token
            depth += token.opens

    def _price(self, left: _Token, right: _Token) -> int | None:
        if left.opens and not right.closes:
            if left.text == "<" or self.declares_function:
                return 100
            return 1 if left.count > 1 else 19
        return left.precedence or None

    def layout(self) -> str:
        start, excess = self._place(_State(0, self.indent, (_Level(self.indent, self.indent),)))
        queue: list[tuple[int, int, _State, dict[int, int]]] = [(excess, 0, start, {})]
        seen: set[_State] = set()
        number = 0  # of two layouts at one price, that is taken which came up first
        while True:
            price, _, state, breaks = heapq.heappop(queue)
            if state.at == len(self.tokens):
                return self._text(breaks)
            if state in seen:
                continue
            seen.add(state)
            must_break = self._must_break(state)
            if not must_break:
                after, more = self._stay(state)
                number += 1
                heapq.heappush(queue, (price + more, number, after, breaks))
            if must_break or self.tokens[state.at].price is not None:
                after, more, column = self._break(state)
                number += 1
                heapq.heappush(queue, (price + more, number, after, {**breaks, state.at: column}))

    def _text(self, breaks: dict[int, int]) -> str:
        text = " " * self.indent
        for at, token in enumerate(self.tokens):
            text += f"\n{' ' * breaks[at]}" if at in breaks else " " * token.space
            text += token.text
        return text

    def _must_break(self, state: _State) -> bool:
        """Whether there has to be a break before the next token, as there is one in what comes before."""
        left, right = self.tokens[state.at - 1], self.tokens[state.at]
        if not state.levels[-1].split or right.closes:
            return False
        if left.precedence == _EQUALITY:
            return self.tokens[state.at - 2].ends > 0
        return left.precedence == _COMMA or left.precedence > _ASSIGNMENT

    def _stay(self, state: _State) -> tuple[_State, int]:
        """Put the next token into the same line."""
        left, right = self.tokens[state.at - 1], self.tokens[state.at]
        level, column = state.levels[-1], state.column + right.space
        if left.opens:
            level = level._replace(indent=column)
        if left.precedence and (left.precedence != _ASSIGNMENT or right.starts):
            level = level._replace(last=column)
        return self._place(state._replace(column=column, levels=(*state.levels[:-1], level)))

    def _break(self, state: _State) -> tuple[_State, int, int]:
        """Put it into a line of its own."""
        left, right, level = self.tokens[state.at - 1], self.tokens[state.at], state.levels[-1]
        column = level.indent
        if left.text == "=":
            column = max(level.indent, level.last) + _INDENT
        elif level.indent == self.indent:
            column += _INDENT
        price = (right.price or 0) + (0 if level.broken else _FIRST_BREAK)
        level = level._replace(broken=True, last=column, split=level.split and not left.precedence)
        outer = (other._replace(split=True) for other in state.levels[:-1])
        after, excess = self._place(state._replace(column=column, levels=(*outer, level)))
        return after, price + excess, column

    def _place(self, state: _State) -> tuple[_State, int]:
        """Go on behind a token that stands where the state says; gives what its columns beyond the limit cost, too."""
        token = self.tokens[state.at]
        left = self.tokens[state.at - 1] if state.at else _Token("", space=False)
        levels = list(state.levels)
        aligned = left.opens or left.precedence == _ASSIGNMENT
        for precedence in reversed(token.starts):
            indent = max(state.column, levels[-1].indent, levels[-1].last)
            if precedence > _ASSIGNMENT and not aligned:
                indent += _INDENT
            levels.append(_Level(indent, max(levels[-1].last, state.column)))
            aligned = False
        if token.closes:
            levels.pop()
        if token.opens:
            levels.append(_Level(levels[-1].last + _INDENT, levels[-1].last))
        del levels[len(levels) - token.ends :]
        column = state.column + len(token.text)
        return _State(state.at + 1, column, tuple(levels)), _EXCESS * max(0, column - CPP_WIDTH)
