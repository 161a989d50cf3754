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

    `head` ends with the opening bracket and begins with its indentation; `tail` begins with the closing one. An
    initialisation rather breaks behind the `=`, if that is enough, and a call behind the bracket, if that saves a line
    or keeps one within the width.
    """
    whole = head + ", ".join(items) + tail
    if len(whole) <= CPP_WIDTH:
        return whole
    left, equals, right = head.partition(" = ")
    below = " " * (_indent(head) + 4)
    if equals and len(f"{below}{right}{', '.join(items)}{tail}") <= CPP_WIDTH:
        return f"{left} =\n{below}{right}{', '.join(items)}{tail}"
    aligned = _fill(head, " " * len(head), items, tail)
    if tail != ");":
        return "\n".join(aligned)
    hanging = [head, *_fill(below, below, items, tail)]
    too_wide = any(len(line) > CPP_WIDTH for line in aligned)
    return "\n".join(hanging if too_wide or len(hanging) < len(aligned) else aligned)


def _fill(first: str, indent: str, items: Sequence[str], tail: str) -> list[str]:
    lines = [first]
    for index, item in enumerate(items):
        piece = item + (tail if index == len(items) - 1 else ",")
        fresh = lines[-1] in (first, indent)
        if not fresh and len(lines[-1]) + 1 + len(piece) > CPP_WIDTH:
            lines.append(indent + piece)
        else:
            lines[-1] += piece if fresh else f" {piece}"
    return lines


def cpp_assignment(left: str, right: str) -> str:
    """`left = right;`, broken behind the `=` when it is too long for one line, and a sum that is too long for that as
    well in lines that are filled and aligned behind the `=`."""
    whole = f"{left} = {right};"
    below = f"{' ' * (_indent(left) + 4)}{right};"
    if len(whole) <= CPP_WIDTH:
        return whole
    if len(below) <= CPP_WIDTH or _break_sum(right, "") == right:
        return f"{left} =\n{below}"
    terms = _break_sum(right, "").replace("\n+ ", " +\n").splitlines()
    lines = [f"{left} = {terms[0]}"]
    for term in terms[1:]:
        if len(lines[-1]) + 1 + len(term) <= CPP_WIDTH:
            lines[-1] += f" {term}"
        else:
            lines.append(" " * (len(left) + 3) + term)
    return "\n".join(lines) + ";"


def cpp_chain(head: str, calls: Sequence[str], *, otherwise: str) -> str:
    """`head.call().call();` on one line; where that is too long, `otherwise`, which has no list to break."""
    whole = head + "".join(f".{call}" for call in calls) + ";"
    return whole if len(whole) <= CPP_WIDTH else otherwise


def cpp_split(first: str, second: str) -> str:
    """Both on one line, or the second part on a line of its own."""
    whole = f"{first} {second}"
    return whole if len(whole) <= CPP_WIDTH else f"{first}\n{' ' * (_indent(first) + 4)}{second}"


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
