"""How would ruff lay out this list, call or expression?

The templates are written in their final layout; what no template can know is where a line whose length depends on the
signature has to break. Running the formatter is no way out: it is a tool of developers, and need not be installed. So
the few rules that the templates need are here, and tests hold the results against the real formatter. What clang-format
does is in `cpp_layout.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def python_list(head: str, items: Sequence[str], tail: str, *, width: int) -> str:
    """The arguments of a call or the parameters of a definition, as ruff breaks them: on one line; else the items on a
    line of their own; else one a line."""
    whole = head + ", ".join(items) + tail
    if len(whole) <= width:
        return whole
    indent = " " * _indent(head)
    inner = f"{indent}    {', '.join(items)}"
    # The only parameter of a definition is one a line, and so gets a comma.
    alone = len(items) == 1 and head.lstrip().startswith("def ")
    if len(inner) > width or alone:
        return _one_a_line(head, items, tail, width)
    return f"{head}\n{inner}\n{indent}{tail}"


def python_items(head: str, items: Sequence[str], tail: str, *, width: int) -> str:
    """The elements of a list or tuple, as ruff breaks them: on one line, else one a line."""
    comma = "," if len(items) == 1 and tail == ")" else ""
    whole = f"{head}{', '.join(items)}{comma}{tail}"
    return whole if len(whole) <= width else _one_a_line(head, items, tail, width)


def python_tuple(head: str, items: Sequence[str], *, width: int) -> str:
    """`head` and a tuple without brackets, which gets some when it is too long for one line."""
    whole = head + ", ".join(items)
    return whole if len(whole) <= width else _one_a_line(f"{head}(", items, ")", width)


def python_expression(head: str, text: str, *, width: int) -> str:
    """`head` and an expression: on one line; else broken within the brackets that it begins or ends with, if the
    weakest operator is there once; else in brackets, with a line for each operand of that operator if need be."""
    if len(head) + len(text) <= width:
        return head + text
    indent = _indent(head)
    if len(_operands(text)) == 2 and (text.startswith("(") or text.endswith(")")):
        pieces = _outer_brackets(text)
        # What is left outside of brackets must fit.
        lines = [head + pieces[0], *(" " * indent + piece for piece in pieces[2::2])]
        if all(len(line) <= width for line in lines):
            return _break_brackets(head, pieces, indent, width)
    inner = _python_terms(text, indent + 4, width)
    return f"{head}(\n{' ' * (indent + 4)}{inner}\n{' ' * indent})"


def _break_brackets(head: str, pieces: list[str], indent: int, width: int) -> str:
    """The pieces between brackets and within them, in turn: brackets are broken where what is behind them, up to the
    next ones, does not fit."""
    done = head + pieces[0]
    for within, behind in zip(pieces[1::2], pieces[2::2], strict=True):
        if len(done) - done.rfind("\n") - 1 + len(within) + len(behind) <= width:
            done += within + behind
        else:
            inner = _python_terms(within, indent + 4, width)
            done += f"\n{' ' * (indent + 4)}{inner}\n{' ' * indent}{behind}"
    return done


def _outer_brackets(text: str) -> list[str]:
    """What is outside of all brackets and what within, in turn; the brackets themselves are outside."""
    pieces = [""]
    depth = 0
    for letter in text:
        if letter in ")]":
            depth -= 1
            if depth == 0:
                pieces.append("")
        pieces[-1] += letter
        if letter in "([":
            depth += 1
            if depth == 1:
                pieces.append("")
    return pieces


def _python_terms(text: str, indent: int, width: int, *, before: str = "", behind: int = 0) -> str:
    """An expression in brackets, with an operator before it and some letters behind it: on one line; else with a line
    for each operand."""
    if indent + len(before) + len(text) + behind <= width:
        return before + text
    space = " " * indent
    operands = _operands(text)
    if len(operands) > 1:
        operands[0] = (before, operands[0][1])
        last = len(operands) - 1
        return f"\n{space}".join(
            _python_terms(operand, indent, width, before=operator, behind=behind if number == last else 0)
            for number, (operator, operand) in enumerate(operands)
        )
    if not text.startswith("("):
        return before + text
    return f"{before}(\n{space}    {_python_terms(text[1:-1], indent + 4, width)}\n{space})"


def _operands(text: str) -> list[tuple[str, str]]:
    """The operands of the weakest operator outside of brackets, each with the operator before it: `+ `."""
    for operator in (" != ", " | ", " + ", " * "):
        depth = start = 0
        before = ""
        operands = []
        for at, letter in enumerate(text):
            depth += (letter in "([") - (letter in ")]")
            if depth == 0 and text.startswith(operator, at):
                operands.append((before, text[start:at]))
                before, start = operator.lstrip(), at + len(operator)
        if operands:
            return [*operands, (before, text[start:])]
    return [("", text)]


def wrap_text(text: str, *, prefix: str, width: int, hanging: str = "") -> str:
    """Prose in lines of at most `width` that begin with `prefix`, from the second on with `prefix` and `hanging`."""
    lines = [prefix]
    for word in text.split():
        fresh = lines[-1] in (prefix, prefix + hanging)
        if not fresh and len(lines[-1]) + 1 + len(word) > width:
            lines.append(prefix + hanging)
            fresh = True
        lines[-1] += word if fresh else f" {word}"
    return "\n".join(lines)


def _one_a_line(head: str, items: Sequence[str], tail: str, width: int) -> str:
    indent = _indent(head) + 4
    space = " " * indent
    lines = []
    for item in items:
        pieces = _outer_brackets(item)
        if indent + len(item) + 1 > width and [pieces[0], *pieces[2:]] in (["(", ")"], ["[", "]"]):  # a tuple or a list
            lines.append(_one_a_line(space + pieces[0], pieces[1].split(", "), f"{pieces[2]},", width))
        elif indent + len(item) + 1 > width and pieces[0].startswith("*"):  # a call that gives several
            lines.append(python_list(space + pieces[0], _arguments(pieces[1]), f"{pieces[2]},", width=width))
        else:
            lines.append(f"{space}{_python_terms(item, indent, width, behind=1)},")
    return "\n".join([head, *lines, f"{' ' * (indent - 4)}{tail}"])


def _arguments(text: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    pieces = _outer_brackets(text)
    outside = "\0".join(pieces[::2]).split(", ")  # a place for each pair of brackets
    within = iter(pieces[1::2])
    return [re.sub("\0", lambda _: next(within), each) for each in outside]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
