"""Readable names of C++ functions."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache


def demangle(name: str) -> str:
    """The C++ name for a mangled one, or the name itself, without function parameters."""
    demangler = _demangler()
    if demangler is None:
        return name
    status = ctypes.c_int()
    pointer = demangler(name.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return name
    text = (ctypes.cast(pointer, ctypes.c_char_p).value or b"").decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(pointer))
    return function_name(text)


@lru_cache(maxsize=1)
def _demangler() -> Callable[..., int | None] | None:
    """The demangler of the C++ runtime, which needs no process and is installed with every compiler."""
    for library in ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib"):
        try:
            function = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        return function
    return None


def instance(what: str) -> str:
    """`Scale<float, 4>::run` for `static void Scale<T, N>::run(View) [with T = float; int N = 4]`."""
    values: dict[str, str] = {}
    signature, separator, bindings = what.partition(" [with ")
    if separator:
        bindings = bindings.rstrip("]")
        ends = [index for index, character in _outside_brackets(bindings) if character in ",;"]
        for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(bindings)], strict=True):
            name, equals, value = bindings[start:end].partition("=")
            if equals:
                values[name.split()[-1]] = value.strip()
    name = function_name(signature)
    replaced = re.sub(r"\b\w+\b", lambda word: values.get(word[0], word[0]), name)
    if replaced == name and values and "<" not in name:
        return f"{name}<{', '.join(values.values())}>"
    return replaced


def function_name(signature: str) -> str:
    """`Scale<float, 4>::run` for `static void Scale<float, 4>::run(kjit::host::TensorView)`."""
    signature = signature.replace("(anonymous namespace)", "{anonymous}")
    start, end = 0, len(signature)
    for index, character in _outside_brackets(signature):
        if character in "( " and not signature[start:index].endswith("operator"):
            if character == "(":
                end = index
                break
            start = index + 1
    return signature[start:end].lstrip("*&")


def short_names(names: Sequence[str]) -> list[str]:
    """The names without namespaces, also in template arguments, if they remain distinct."""
    forms = [(_without_namespaces(name), _unqualified(name), name) for name in names]
    counts = Counter(form for of_name in forms for form in set(of_name))
    return [next((form for form in of_name if counts[form] == 1), of_name[-1]) for of_name in forms]


def _without_namespaces(name: str) -> str:
    """`elementwise<Scale<float>, 4>` for `kjit::kernels::elementwise<{anonymous}::Scale<float>, 4>`."""
    return re.sub(r"(?:\{anonymous\}|\b[A-Za-z_]\w*)::", "", name).replace("> >", ">>")


def base_name(name: str) -> str:
    """`run` for `kjit::Scale<float, 4>::run`, `fill` for `fill<float>`: the word in the source."""
    name = _unqualified(name).partition("<")[0]
    return name if re.fullmatch(r"\w+", name) else ""


def _unqualified(name: str) -> str:
    """`Scale<float>` for `a::b::Scale<float>`."""
    return name[max((index + 1 for index, character in _outside_brackets(name) if character == ":"), default=0) :]


def _outside_brackets(text: str) -> Iterator[tuple[int, str]]:
    """The characters outside of brackets, and opening brackets, with their positions."""
    depth = 0
    for index, character in enumerate(text):
        if character in ">)]}":
            depth -= 1
        elif depth == 0:
            yield index, character
        if character in "<([{":
            depth += 1
