"""Launches of kernels: `kernel<<<...>>>(...)` becomes a call.

Nothing else in C++ is a name followed by these signs.
"""

from __future__ import annotations

from kjit.cpp_text import closing
from kjit.engine.compile.rewrite.tokens import Token, end_of_template, is_specifier


def rewrite_launches(code: list[Token]) -> None:
    """Turn each launch into a call of `kjit_sim::grid`."""
    templates = _template_names(code)
    for index, token in enumerate(code):
        end = _end_of_configuration(code, index)
        if end is None:
            continue
        name = code[index - 1]
        if name.kind == "name" and name.text in templates:
            _deduce(code, index - 1)
        token.text, code[end].text = " ->*::kjit_sim::grid(", ")"


def is_launch(code: list[Token], index: int) -> bool:
    """Whether the `<<<` of a launch is at `index`."""
    return _end_of_configuration(code, index) is not None


def launched(code: list[Token], index: int) -> str:
    """The name of the kernel that the `<<<` at `index` launches, without template arguments."""
    depth = 0
    for token in reversed(code[:index]):
        depth += {">": 1, ">>>": 3, "<": -1}.get(token.text, 0)
        if depth == 0 and token.kind == "name":
            return token.text
    return "?"


def _end_of_configuration(code: list[Token], index: int) -> int | None:
    """The index of the `>>>` of the launch whose `<<<` is at `index`; None if there is none."""
    if code[index].text != "<<<" or index == 0 or code[index - 1].text == "operator":
        return None
    position = index + 1
    while position + 1 < len(code) and not code[position].closes and code[position].text != ";":
        if code[position].text == ">>>":
            return position if code[position + 1].text == "(" else None
        position = closing(code, position) + 1
    return None


def _template_names(code: list[Token]) -> set[str]:
    """The names of the function templates in the op's own files, whose arguments a launch may leave to be deduced."""
    names = set()
    for index, token in enumerate(code):
        if token.text != "template" or index + 1 >= len(code) or code[index + 1].text != "<":
            continue
        for position in range(end_of_template(code, index + 1), len(code) - 1):
            if code[position].text in ("{", ";", "="):
                break
            if code[position + 1].text == "(" and code[position].kind == "name" and not is_specifier(code[position]):
                names.add(code[position].text)
                break
    return names


def _deduce(code: list[Token], index: int) -> None:
    """Replace a kernel template without arguments by a function that deduces them from the launch's arguments."""
    first = index
    while first >= 2 and code[first - 1].text == "::" and code[first - 2].kind == "name":
        first -= 2
    if first >= 1 and code[first - 1].text == "::":
        first -= 1
    name = "".join(token.text for token in code[first : index + 1])
    for token in code[first:index]:
        token.text = ""
    code[index].text = f"::kjit_sim::deduced([&](auto&... kjit_args) {{ {name}(kjit_args...); }})"
