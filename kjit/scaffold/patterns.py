"""Which signatures can a pattern serve, and what does it say to the others?

The language says more than the patterns of today can turn into a kernel. A signature is never bent to fit: it is served
as it stands, or refused with the reason, the parameter in question, and what to write instead.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from kjit.errors import UsageError
from kjit.scaffold.names import camel, cpp_stem
from kjit.scaffold.signature import ELLIPSIS, Signature, Tensor


@dataclass(frozen=True)
class Pattern:
    """A kind of kernel that can be scaffolded; `summary` is what `--help` says about it."""

    name: str
    summary: str


PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern("elementwise", "vectorised loads and stores, as fast as memory goes"),
        Pattern("minimal", "the shortest kernel that shows check, configure, launch"),
    )
}
DEFAULT_PATTERN = "elementwise"
DEFAULT_SIGNATURE = "x: T[...], alpha: float = 2.0 -> out: T[...]"

SUFFIXES = ("_ref", "_ptr", "_vec")
"""What kernels append to the names of tensors."""


def find_pattern(name: str) -> Pattern:
    """The pattern of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in PATTERNS:
        near = difflib.get_close_matches(name, list(PATTERNS), n=1)
        raise UsageError(
            f"there is no pattern '{name}'; the patterns are {' and '.join(PATTERNS)}.",
            hint=f"did you mean {near[0]}?" if near else f"--pattern {DEFAULT_PATTERN}",
        )
    return PATTERNS[name]


def check_signature(signature: Signature, pattern: Pattern, op: str) -> None:
    """Refuse a signature that `pattern` cannot serve: both write one element of each output from the elements of the
    inputs at the same place.

    Raises:
        SignatureError: with the reason and what would be served.
    """
    taken = {parameter.name for parameter in (*signature.parameters, *signature.outputs)}
    for parameter in (*signature.parameters, *signature.outputs):
        if parameter.name in (op, f"{cpp_stem(op)}_kernel", f"{cpp_stem(op)}_element"):
            raise signature.error(
                parameter,
                f"'{parameter.name}' is a parameter and, in the code of op '{op}', a function.",
                f"for example: {parameter.name}_in",
            )
        for suffix in SUFFIXES:
            other = parameter.name.removesuffix(suffix)
            if other in taken - {parameter.name}:
                raise signature.error(
                    parameter,
                    f"'{parameter.name}' is what the kernel calls a variable that belongs to '{other}'.",
                    "give one of them another name",
                )
    for name in (*signature.dimensions, *signature.variables):
        if name == camel(op):
            raise signature.error(
                signature.tensors[0],
                f"'{name}' is also the C++ name of op '{op}'.",
                "choose another name for the op, a longer one",
            )

    first = signature.inputs[0]
    for tensor in signature.tensors:
        if tensor.optional:
            raise signature.error(
                tensor,
                f"'{tensor.name}' may be absent, and no pattern serves that yet.",
                f"write {tensor.name}: {tensor.type}, or scaffold a second op without it",
            )
        if tensor.shape != first.shape:
            raise signature.error(tensor, *_different_shapes(pattern, first, tensor))
    if ELLIPSIS in first.shape and len(first.shape) > 1:
        raise signature.error(
            first,
            f"pattern {pattern.name} takes '...' as the whole shape only, and '{first.name}' is {first.type}.",
            f"write {first.dtype}[...] for tensors of any shape",
        )
    if not first.shape:
        raise signature.error(
            first,
            f"'{first.name}' has no dimension: there is one element only, and nothing to do in parallel.",
            f"write {first.dtype}[...] for tensors of any shape; a number is a parameter of type float or int",
        )
    if signature.mutated and signature.outputs:
        raise signature.error(
            signature.outputs[0],
            f"pattern {pattern.name} changes tensors in place ('{signature.mutated[0].name}' is mut) or gives outputs,"
            " not both.",
            f"write {signature.outputs[0].name}: mut {signature.outputs[0].type} before '->', or leave out mut",
        )
    for constant in signature.constants:
        if constant.kind == "int" and constant.default is None:
            raise signature.error(
                constant,
                f"'{constant.name}' has no default, so that there is no value to build and test the op for.",
                f"{constant.name}: const int = 1",
            )


def _different_shapes(pattern: Pattern, first: Tensor, other: Tensor) -> tuple[str, str]:
    reason = (
        f"pattern {pattern.name} works element by element on tensors of one shape: '{first.name}' is {first.type} and"
        f" '{other.name}' is {other.type}."
    )
    same = Tensor(other.name, other.dtype, first.shape).type
    return reason, f"write {other.name}: {same}; `kjit new` has no pattern for tensors of different shapes yet"
