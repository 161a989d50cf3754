"""Launches of kernels: `kernel<<<...>>>(...)` becomes a call.

Nothing else in C++ is a name followed by three of these signs.
"""

from __future__ import annotations

from kjit.engine.compile.rewrite.tokens import CLOSE, OPEN, Token, end_of_template, is_specifier


def rewrite_launches(code: list[Token]) -> None:
    """Turn each launch into a call of `kjit_sim::grid`."""
    templates = _template_names(code)
    index = 0
    while index + 2 < len(code):
        if not _is_run(code, index, "<") or index == 0 or code[index - 1].text == "operator":
            index += 1
            continue
        end = _end_of_configuration(code, index + 3)
        if end is None:
            index += 1
            continue
        name = code[index - 1]
        if name.kind == "name" and name.text in templates:
            _deduce(code, index - 1)
        code[index].text = " ->*::kjit_sim::grid("
        code[index + 1].text = code[index + 2].text = ""
        code[end].text = ")"
        code[end + 1].text = code[end + 2].text = ""
        index = end + 3


def is_launch(code: list[Token], index: int) -> bool:
    """Whether the `<<<` of a launch begins at `index`."""
    is_one = index > 0 and _is_run(code, index, "<") and code[index - 1].text != "operator"
    return is_one and _end_of_configuration(code, index + 3) is not None


def launched(code: list[Token], index: int) -> str:
    """The name of the kernel that the `<<<` at `index` launches, without template arguments."""
    depth = 0
    for token in reversed(code[:index]):
        depth += {">": 1, "<": -1}.get(token.text, 0)
        if depth == 0 and token.kind == "name":
            return token.text
    return "?"


def _is_run(code: list[Token], index: int, sign: str) -> bool:
    return [token.text for token in code[index : index + 3]] == [sign] * 3


def _end_of_configuration(code: list[Token], index: int) -> int | None:
    """The index of the `>>>` of a launch whose configuration begins at `index`; None if that is no launch."""
    depth = 0
    for position in range(index, len(code) - 3):
        text = code[position].text
        if code[position].kind == "sign" and text in OPEN:
            depth += 1
        elif code[position].kind == "sign" and text in CLOSE:
            depth -= 1
        elif text == ";" or depth < 0:
            return None
        if depth == 0 and _is_run(code, position, ">") and code[position + 3].text == "(":
            return position
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
