"""How would clang-format and ruff lay out this list?

The templates are written in their final layout; what no template can know is where a list whose length depends on the
signature has to break. Running the formatters is no way out: they are tools of developers, and need not be installed.
So the few rules that the templates need are here, and tests hold the results against the real formatters.
"""

from __future__ import annotations

from collections.abc import Sequence

CPP_WIDTH = 120


def cpp_list(head: str, items: Sequence[str], tail: str) -> str:
    """`head(items) tail` as clang-format's Google style breaks it: filled lines, aligned behind the bracket.

    `head` ends with the opening bracket and begins with its indentation; `tail` begins with the closing one. In an
    initialisation the line rather breaks behind the `=`, if that is enough.
    """
    whole = head + ", ".join(items) + tail
    if len(whole) <= CPP_WIDTH:
        return whole
    left, equals, right = head.partition(" = ")
    if equals:
        below = f"{' ' * (_indent(head) + 4)}{right}{', '.join(items)}{tail}"
        if len(below) <= CPP_WIDTH:
            return f"{left} =\n{below}"
    indent = " " * len(head)
    lines = [head]
    for index, item in enumerate(items):
        last = index == len(items) - 1
        piece = item + (tail if last else ",")
        separator = "" if lines[-1] in (head, indent) else " "
        if lines[-1] not in (head, indent) and len(lines[-1]) + len(separator) + len(piece) > CPP_WIDTH:
            lines.append(indent + piece)
        else:
            lines[-1] += separator + piece
    return "\n".join(lines)


def cpp_chain(head: str, calls: Sequence[str], *, otherwise: str) -> str:
    """`head.call().call();` on one line; where that is too long, `otherwise`, which has no list to break."""
    whole = head + "".join(f".{call}" for call in calls) + ";"
    return whole if len(whole) <= CPP_WIDTH else otherwise


def python_list(head: str, items: Sequence[str], tail: str, *, width: int) -> str:
    """The arguments of a call or the parameters of a definition, as ruff breaks them: on one line; else the items on a
    line of their own; else one a line."""
    whole = head + ", ".join(items) + tail
    if len(whole) <= width:
        return whole
    indent = " " * _indent(head)
    inner = f"{indent}    {', '.join(items)}"
    return f"{head}\n{inner}\n{indent}{tail}" if len(inner) <= width else _one_a_line(head, items, tail)


def python_items(head: str, items: Sequence[str], tail: str, *, width: int) -> str:
    """The elements of a list or tuple, as ruff breaks them: on one line, else one a line."""
    comma = "," if len(items) == 1 and tail == ")" else ""
    whole = f"{head}{', '.join(items)}{comma}{tail}"
    return whole if len(whole) <= width else _one_a_line(head, items, tail)


def python_tuple(head: str, items: Sequence[str], *, width: int) -> str:
    """`head` and a tuple without brackets, which gets some when it is too long for one line."""
    whole = head + ", ".join(items)
    return whole if len(whole) <= width else _one_a_line(f"{head}(", items, ")")


def python_sum(head: str, text: str, *, width: int) -> str:
    """`head` and an expression, broken before every `+` that is not in brackets when it is too long for one line."""
    if len(head) + len(text) <= width:
        return head + text
    indent = " " * (_indent(head) + 4)
    depth = 0
    broken = ""
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(" + ", index):
            broken += f"\n{indent}"
        elif not (depth == 0 and letter == " " and broken.endswith(indent)):
            broken += letter
    return f"{head}(\n{indent}{broken}\n{' ' * _indent(head)})"


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


def _one_a_line(head: str, items: Sequence[str], tail: str) -> str:
    indent = " " * _indent(head)
    return "\n".join([head, *(f"{indent}    {item}," for item in items), f"{indent}{tail}"])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
