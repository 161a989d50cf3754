"""How would ruff lay out this list, call or expression?

The templates are written in their final layout; what no template can know is where a line whose length depends on the
signature has to break. Running the formatter is no way out: it is a tool of developers, and need not be installed. So
the few rules that the templates need are here, and tests hold the results against the real formatter. What clang-format
does is in `cpp_layout.py`.
"""

from __future__ import annotations

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
        return _one_a_line(head, items, tail)
    return f"{head}\n{inner}\n{indent}{tail}"


def python_items(head: str, items: Sequence[str], tail: str, *, width: int) -> str:
    """The elements of a list or tuple, as ruff breaks them: on one line, else one a line."""
    comma = "," if len(items) == 1 and tail == ")" else ""
    whole = f"{head}{', '.join(items)}{comma}{tail}"
    return whole if len(whole) <= width else _one_a_line(head, items, tail)


def python_tuple(head: str, items: Sequence[str], *, width: int) -> str:
    """`head` and a tuple without brackets, which gets some when it is too long for one line."""
    whole = head + ", ".join(items)
    if len(whole) <= width:
        return whole
    indent = " " * (_indent(head) + 4)
    fitting = [item if len(indent) + len(item) < width else _break_sum(item, indent) for item in items]
    return _one_a_line(f"{head}(", fitting, ")")


def python_sum(head: str, text: str, *, width: int) -> str:
    """`head` and an expression: on one line, else in brackets on one of its own, else broken before every `+` that is
    not in brackets."""
    if len(head) + len(text) <= width:
        return head + text
    indent = " " * (_indent(head) + 4)
    broken = text if len(indent) + len(text) <= width else _break_sum(text, indent)
    return f"{head}(\n{indent}{broken}\n{' ' * _indent(head)})"


def _break_sum(text: str, indent: str) -> str:
    depth = 0
    broken = ""
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        broken += f"\n{indent}" if depth == 0 and text.startswith(" + ", index) else letter
    return broken


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
