"""Line breaks in generated code.

The templates write every statement on one line, as none can know how long the names in it are. The formatters are tools
of developers, and need not be installed; so a few rules break such lines as they would. A line that no rule fits stays
as it is: it is valid, only long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

CPP_WIDTH = 120

_TOKEN = re.compile(r'"[^"]*"|template <|.')
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_OPERATORS = (" for ", " != ", " | ", " + ", " * ")
"""From the weakest."""
_AFTER_OPERATOR = re.compile(r"(?<= [|+*] )|(?<= != )")


def break_cpp(text: str) -> str:
    """C++ with lines of at most `CPP_WIDTH`, where possible."""
    return "".join(f"{_break_cpp(line)}\n" for line in text.splitlines())


def break_python(text: str, width: int) -> str:
    """Python with lines of at most `width`, where possible; docstrings and comments are not changed."""
    lines = []
    in_docstring = False
    for line in text.splitlines():
        is_code = not in_docstring and '"""' not in line and not line.lstrip().startswith("#")
        in_docstring ^= line.count('"""') == 1
        lines.append(f"{_break_python(line, width)}\n" if is_code else f"{line}\n")
    return "".join(lines)


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


def _break_cpp(line: str) -> str:
    """The value after `=` on a line of its own; declared names, or the contents of the last brackets, filling lines."""
    if len(line) <= CPP_WIDTH or line.lstrip().startswith("//"):
        return line
    indent = _indent(line)
    inner = " " * (indent + 4)
    name, assigned, value = line.partition(" = ")
    if assigned:
        return f"{name} =\n{_fill(_AFTER_OPERATOR.split(value), inner, inner)}"
    declared = _with_commas(line)
    if len(declared) > 1:
        return _fill(declared, "", inner)
    brackets = _brackets(line)
    if not brackets:
        return line
    start, end = brackets[-1]
    items = _with_commas(line[start:end])
    within = _brackets(line[start:end])
    if len(items) == 1 and within and line[end - 1 : end + 1] == "))":  # the only argument of a call is a call
        start, end = start + within[-1][0], end - 1
        items = _with_commas(line[start:end])
    items[-1] += line[end:]
    aligned = _fill(items, line[:start], " " * start)
    if max(map(len, aligned.splitlines())) <= CPP_WIDTH:
        return aligned
    return f"{line[:start]}\n{_fill(items, inner, inner)}"


def _fill(pieces: Sequence[str], head: str, space: str) -> str:
    """As many of the pieces in each line as fit, after `head` in the first and `space` in others."""
    lines = [head]
    for number, piece in enumerate(pieces):
        if number and len(lines[-1]) + len(piece.rstrip()) > CPP_WIDTH:
            lines.append(space)
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _break_python(line: str, width: int) -> str:
    """The contents of brackets on a line of their own; if that is too long, each item on its own."""
    if len(line) <= width:
        return line
    indent = _indent(line)
    statement = re.match(r" *(?:return |\w+ = |from \S+ import )?", line)
    head = line[: statement.end()] if statement else ""
    value = line[len(head) :]
    items = _split(value, ", ")
    if len(items) > 1:
        return _one_a_line(f"{head}(", items, ")", width)
    if len(_terms(value)) > 1:
        if not head.strip():  # within brackets
            return _join_terms(value, indent, width)
        return f"{head}(\n{_join_terms(value, indent + 4, width)}\n{' ' * indent})"
    brackets = _brackets(line)
    if not brackets:
        return line
    is_definition = line.lstrip().startswith(("def ", "class "))
    start, end = brackets[0 if is_definition else -1]
    head, inside, tail = line[:start], line[start:end], line[end:]
    items = _split(inside, ", ")
    is_literal = not re.search(r"[\w\])].$", head)
    if len(items) == 1 and not inside.endswith(",") and (is_literal or head.endswith("[")):
        in_one = True  # a comma would make it a tuple
    else:
        in_one = not is_literal and not (is_definition and len(items) == 1) and indent + 4 + len(inside) <= width
    if in_one:
        return f"{head}\n{_join_terms(inside, indent + 4, width)}\n{' ' * indent}{tail}"
    return _one_a_line(head, items, tail, width)


def _one_a_line(head: str, items: Iterable[str], tail: str, width: int) -> str:
    space = " " * _indent(head)
    return "\n".join(
        [head, *(_break_python(f"{space}    {item.removesuffix(',')},", width) for item in items), f"{space}{tail}"]
    )


def _join_terms(text: str, indent: int, width: int) -> str:
    """An expression on one line, or else with a line for each operand."""
    if indent + len(text) <= width:
        return " " * indent + text
    return "\n".join(_break_python(" " * indent + term, width) for term in _terms(text))


def _terms(text: str) -> list[str]:
    """The operands of the weakest operator outside of brackets, all but the first with the operator: `+ x`."""
    for operator in _OPERATORS:
        first, *others = _split(text, operator)
        if others:
            return [first, *(f"{operator.lstrip()}{other}" for other in others)]
    return [text]


def _outside(text: str) -> Iterator[tuple[int, str, int]]:
    """The tokens outside of strings: position, token, depth in brackets (which do not count themselves)."""
    around: list[str] = []
    for found in _TOKEN.finditer(text):
        token = found[0][-1]
        if around and token == around[-1]:
            around.pop()
        if found[0][0] != '"':
            yield found.end() - 1, token, len(around)
        is_less = found[0] == "<" and text.startswith(" ", found.end())
        if token in _CLOSING and not is_less:
            around.append(_CLOSING[token])


def _brackets(text: str) -> list[tuple[int, int]]:
    """The start and end of the contents of the outermost brackets, without empty ones."""
    found = []
    start = len(text)
    for at, token, depth in _outside(text):
        if depth == 0 and token in _CLOSING:
            start = at + 1
        elif depth == 0 and token in _CLOSING.values() and at > start:
            found.append((start, at))
    return found


def _split(text: str, separator: str) -> list[str]:
    """The pieces between the separators outside of brackets."""
    pieces = []
    start = 0
    for at, _, depth in _outside(text):
        if depth == 0 and at >= start and text.startswith(separator, at):
            pieces.append(text[start:at])
            start = at + len(separator)
    return [*pieces, text[start:]]


def _with_commas(text: str) -> list[str]:
    """The pieces between the commas outside of brackets, each with the comma after it."""
    *pieces, last = _split(text, ", ")
    return [*(f"{piece}, " for piece in pieces), last]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
