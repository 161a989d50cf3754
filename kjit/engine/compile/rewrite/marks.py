"""The marks of functions for the GPU (`__global__`, `__device__`, `__noinline__`, `__launch_bounds__`), which no C++
compiler reads.

`__noinline__` is also the name of an attribute in the C++ library: it stays in `[[__gnu__::__noinline__]]`, and may go
from `__attribute__((__noinline__))`.
"""

from __future__ import annotations

import re

from kjit.cpp_text import closing
from kjit.engine.compile.rewrite.tokens import Token, text_of

_SIDES = ("__global__", "__device__", "__host__")
_MARK = re.compile(r"\b__(?:global|device|host)__\b|(?<!::)\b__noinline__\b")


def strip_marks(code: list[Token]) -> list[tuple[Token, str]]:
    """Remove the marks from the op's own code, and set `in_kernel` of the tokens in kernels.

    Returns:
        For each kernel with launch bounds, the brace that opens it and the bounds.
    """
    found = []
    is_kernel, bounds = False, ""
    index = 0
    while index < len(code):
        token = code[index]
        if token.text in _SIDES:
            is_kernel |= token.text == "__global__"
            token.text = ""
        elif token.text == "__noinline__" and (index == 0 or code[index - 1].text != "::"):
            token.text = ""
        elif token.text == "__launch_bounds__" and code[index + 1 : index + 2] and code[index + 1].text == "(":
            end = closing(code, index + 1)
            bounds = text_of(code[index + 2 : end])
            for each in code[index : end + 1]:
                each.text = ""
            index = end
        elif token.text == "(" and token.kind == "sign" and is_kernel:
            index = closing(code, index)
        elif token.text in (";", "{", "}") and token.kind == "sign":
            if token.text == "{" and is_kernel:
                end = closing(code, index)
                for each in code[index : end + 1]:
                    each.in_kernel = True
                if bounds:
                    found.append((token, bounds))
                index = end
            is_kernel, bounds = False, ""
        index += 1
    return found


def strip_marks_of_others(others: list[Token]) -> None:
    """Remove the marks from files that are not the op's own."""
    depth = 0
    is_open = False
    for token in others:
        if token.text.startswith("# "):
            continue
        token.text = _MARK.sub("", token.text)
        if not (is_open or "__launch_b" in token.text):
            continue
        kept = []
        for piece in re.split(r"(\b__launch_bounds__\b|[()])", token.text):
            if piece == "__launch_bounds__":
                is_open, depth = True, 0
            elif not is_open:
                kept.append(piece)
            else:
                depth += {"(": 1, ")": -1}.get(piece, 0)
                kept.append("\n" * piece.count("\n"))
                is_open = depth > 0 or piece != ")"
        token.text = "".join(kept)
