"""Declarations of shared memory: `extern __shared__ T name[]`, whose size the launch decides, and alignments."""

from __future__ import annotations

from kjit.cpp_text import closing
from kjit.engine.compile.rewrite.tokens import Token, text_of

DYNAMIC = "kjit_dynamic_"
"""Before the names of dynamic shared memory where it is declared again, so that the compiler compares the types."""


def rewrite_shared_memory(code: list[Token]) -> None:
    """Give dynamic shared memory its address, and move alignments before `__shared__`.

    A declaration in a function becomes a reference. For one outside of functions, and in lambdas, each use of the name
    is replaced.
    """
    in_function: list[bool] = []
    statement = end_of_lambda = 0
    everywhere: dict[str, tuple[str, int]] = {}
    in_lambdas: dict[str, tuple[str, int]] = {}  # lambdas cannot capture a copy
    index = 0
    while index < len(code):
        token = code[index]
        if token.text == "{" and token.kind == "sign":
            words = [each.text for each in code[statement:index]]
            is_namespace = "namespace" in words[:3] or (words[:1] == ["extern"] and len(words) == 2)
            in_function.append(not is_namespace)
            statement = index + 1
        elif token.text == "}" and token.kind == "sign":
            if in_function:
                in_function.pop()
            everywhere = {name: use for name, use in everywhere.items() if use[1] <= len(in_function)}
            in_lambdas = {name: use for name, use in in_lambdas.items() if use[1] <= len(in_function)}
            statement = index + 1
        elif token.text == ";":
            statement = index + 1
        elif token.text in ("extern", "__shared__", "static"):
            # `__shared__` is `static thread_local` by now: a `static` beside it would be the second.
            words = [each.text for each in code[index : index + 3]]
            if words == ["static", "static", "thread_local"]:
                token.text = ""
                index += 1
                continue
            if words == ["static", "thread_local", "static"]:
                code[index + 2].text = ""
            declared = _shared_declaration(code, index)
            if declared is not None:
                end, name, type_, rest = declared
                value = f"*reinterpret_cast<{type_} (*)[]{rest}>(::kjit_sim::dynamic_shared())"
                if any(in_function):
                    # Also declared, so that the compiler rejects one name with two types, as nvcc does.
                    declared_once = f"extern {type_} {DYNAMIC}{name}[]{rest} __attribute__((unused));"
                    code[index].text = f"{declared_once} {type_} (&{name})[]{rest} = {value}"
                    everywhere.pop(name, None)
                    in_lambdas[name] = f"({value})", len(in_function)
                else:
                    code[index].text = ""
                    everywhere[name] = f"({value})", len(in_function)
                for each in code[index + 1 : end]:
                    each.text = ""
                index = end
                continue
            if [each.text for each in code[index : index + 3]] == ["static", "thread_local", "alignas"]:
                end = closing(code, index + 3)
                alignment = text_of(code[index + 2 : end + 1])
                token.text = f"{alignment} static"
                for each in code[index + 2 : end + 1]:
                    each.text = ""
        elif token.text == "[" and in_lambdas and _is_lambda(code, index):
            end_of_lambda = max(end_of_lambda, _end_of_lambda(code, index))
        elif token.kind == "name" and (
            token.text in everywhere or (index < end_of_lambda and token.text in in_lambdas)
        ):
            before = code[index - 1].text if index else ""
            if before not in (".", "->") and not (before == "::" and index > 1 and code[index - 2].kind == "name"):
                token.text = (everywhere.get(token.text) or in_lambdas[token.text])[0]
        index += 1


def _is_lambda(code: list[Token], index: int) -> bool:
    """Whether the `[` at `index` begins a lambda, rather than a subscript, bound or attribute."""
    before = code[index - 1]
    is_operand = before.text in (")", "]", "[") or (before.kind != "sign" and before.text != "return")
    return not is_operand and code[index + 1 : index + 2] != [] and code[index + 1].text != "["


def _end_of_lambda(code: list[Token], index: int) -> int:
    """The index of the brace that ends the lambda beginning at `index`."""
    position = closing(code, index) + 1
    while position < len(code) and code[position].text not in ("{", ";", ",", ")"):
        position = closing(code, position) + 1 if code[position].text == "(" else position + 1
    return closing(code, position) if code[position : position + 1] and code[position].text == "{" else index


def _shared_declaration(code: list[Token], index: int) -> tuple[int, str, str, str] | None:
    """The parts of a declaration of dynamic shared memory at `index`. Alignments are dropped: the memory has the
    largest one.

    Returns:
        The index of its `;`, its name, the type of its elements, and the text after the empty brackets; None for other
        declarations.
    """
    end = index
    while end < len(code) and code[end].text not in (";", "{", "}", "=", "("):
        if code[end].text in ("alignas", "__attribute__", "__align__") and end + 1 < len(code):
            end = closing(code, end + 1)
        end += 1
    words = code[index:end]
    texts = [token.text for token in words]
    if end >= len(code) or code[end].text != ";" or "extern" not in texts:
        return None
    if not {"thread_local", "__shared__"} & set(texts):
        return None
    type_: list[Token] = []
    position = 0
    while position < len(words) and not (texts[position] == "[" and texts[position + 1 : position + 2] == ["]"]):
        if texts[position] in ("alignas", "__attribute__", "__align__"):
            position = closing(words, position + 1)
        elif texts[position] == "[" and texts[position + 1 : position + 2] == ["["]:
            position = closing(words, position)
        elif texts[position] not in ("extern", "static", "thread_local", "__shared__", "inline"):
            type_.append(words[position])
        position += 1
    if position == len(words) or len(type_) < 2:
        return None
    name = type_.pop().text
    return end, name, text_of(type_), text_of(words[position + 2 :])
