"""Rules that the grammar of signatures cannot express: unique names, sizes and dtypes known from inputs, a result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kjit.signature.hints import BY_HAND, EXAMPLE
from kjit.signature.names import free_name
from kjit.signature.signature import ELLIPSIS, Parameter, Scalar, Signature, Tensor, words_of
from kjit.signature.sizes import Size

MAX_ARGUMENTS = 64
"""The maximum number of arguments of an op in PyTorch. Outputs count, because a caller may pass them."""


def check_rules(signature: Signature) -> None:
    """Refuse a signature that no op can have.

    Raises:
        SignatureError: a name has two meanings, a size or a dtype is unknown, or there is
            nothing to do.
    """
    seen: dict[str, str] = {}
    for parameter in (*signature.parameters, *signature.outputs):
        if parameter.name in seen:
            hint = f"give one of them another name, such as {free_name(parameter.name, signature.names)}"
            if parameter in signature.outputs and parameter.name in {each.name for each in signature.inputs}:
                mutable = replace(signature.outputs[0], name=parameter.name, mutable=True)
                hint = f"what is changed in place is a mut parameter and no output: {mutable}; else {hint}"
            raise signature.error(parameter, f"the name '{parameter.name}' is used twice.", hint)
        seen[parameter.name] = "parameter"
    constants = {constant.name: constant for constant in signature.constants if constant.kind == "int"}
    for tensor in signature.tensors:
        names = [(word, "dimension") for d in tensor.shape for word in words_of(d) if word not in constants]
        if isinstance(tensor.dtype, str):
            names.append((tensor.dtype, "dtype variable"))
        for name, role in names:
            if seen.setdefault(name, role) != role:
                is_given = seen[name] == "parameter" and tensor in signature.outputs and role == "dimension"
                raise signature.error(
                    tensor,
                    f"'{name}' is a {role} here and a {seen[name]} elsewhere.",
                    f"an output has sizes of inputs, and of const ints: {name}: const int = 8"
                    if is_given
                    else f"give the {role} another name",
                )

    arguments = (*signature.parameters, *signature.outputs)
    if len(arguments) > MAX_ARGUMENTS:
        raise signature.error(
            arguments[MAX_ARGUMENTS],
            f"{len(arguments)} parameters and outputs are too many: an op of PyTorch has at most {MAX_ARGUMENTS}.",
            "put several into one, as further rows of a tensor, or make two ops of it",
        )

    with_default: Parameter | None = None
    for parameter in signature.parameters:
        has_default = parameter.optional or (isinstance(parameter, Scalar) and parameter.default is not None)
        if has_default:
            with_default = with_default or parameter
        elif with_default is not None:
            raise signature.error(
                parameter,
                f"'{parameter.name}' has no default and follows '{with_default.name}', which has one.",
                f"move '{parameter.name}' before '{with_default.name}', or give it a default",
            )

    first = (*signature.parameters, *signature.outputs)[0]
    if not signature.parameters:
        x = "x" if "x" not in signature.names else free_name("x", signature.names)
        raise signature.error(
            first,
            "the op takes nothing: it has an output and no input.",
            f"for example: {x}: {signature.outputs[0].type}{signature}",
        )
    required = signature.required
    if not required:
        raise signature.error(
            first,
            "the op has no required tensor, and a tensor determines the device that it runs on.",
            f"for example: {EXAMPLE}",
        )
    if not signature.outputs and not signature.mutated:
        out = "out" if "out" not in signature.names else free_name("out", signature.names)
        raise signature.error(
            first,
            "the op changes nothing: it has no output and no mut tensor.",
            _what_is_written(signature, out, required),
        )

    _check_sizes(signature, constants)
    known_names = {*signature.places(), *(ELLIPSIS for tensor in required if ELLIPSIS in tensor.shape), *constants}
    for output in signature.outputs:
        for dimension in (word for d in output.shape for word in ((d,) if d == ELLIPSIS else words_of(d))):
            if dimension not in known_names:
                known = ", ".join(sorted(known_names)) or "none"
                raise signature.error(
                    output,
                    f"dimension '{dimension}' of '{output.name}' is unknown: no required input has it.",
                    f"use a dimension of an input ({known}) or a number; for other sizes, {BY_HAND}",
                )
    variables = {tensor.dtype for tensor in required}
    for tensor in signature.tensors:
        if isinstance(tensor.dtype, str) and tensor.dtype not in variables:
            raise signature.error(
                tensor,
                f"dtype variable '{tensor.dtype}' of '{tensor.name}' is unknown: no required input has it.",
                f"use the dtype of an input ({', '.join(sorted(map(str, variables)))}) or a fixed one such as float32;"
                f" if the caller chooses it, {BY_HAND}",
            )


def _check_sizes(signature: Signature, constants: Mapping[str, Scalar]) -> None:
    """Refuse sizes that no tensor determines, and values that are not sizes."""
    for tensor in signature.tensors:
        sizes = [dimension for dimension in tensor.shape if isinstance(dimension, Size)]
        known = {*signature.places([*signature.required, tensor]), *constants}
        for size in sizes:
            if isinstance(size.divisor, str) and size.divisor not in constants:
                raise signature.error(
                    tensor,
                    f"'{size}' of '{tensor.name}' is divided by '{size.divisor}', neither a number nor a const int.",
                    f"for example: {size.divisor.lower()}: const int = 128, and {size.names[0]}/{size.divisor.lower()}",
                )
            unknown = [word for word in dict.fromkeys(size.words) if word not in known]
            if unknown and tensor not in signature.outputs:  # of which the size of an output is an error of its own
                raise signature.error(
                    tensor,
                    f"'{size}' of '{tensor.name}' does not determine {' and '.join(unknown)}: no required tensor has"
                    " one of them alone.",
                    f"give it a name of its own: {tensor.name}: {_renamed(tensor, size, signature)}",
                )
            for word in size.words:
                constant = constants.get(word)
                if constant is not None and isinstance(constant.default, int) and constant.default < 1:
                    raise signature.error(
                        constant,
                        f"'{word}' is part of the size '{size}', and {constant.default} is not a size.",
                        f"{word}: const int = 1",
                    )


def _renamed(tensor: Tensor, size: Size, signature: Signature) -> str:
    name = next(name for name in ("N", "M", "K", "L", "P", "Q") if name not in signature.names)
    shape = tuple(name if dimension == size else dimension for dimension in tensor.shape)
    return str(replace(tensor, shape=shape)).removeprefix(f"{tensor.name}: ")


def _what_is_written(signature: Signature, out: str, required: Sequence[Tensor]) -> str:
    """A hint for an op without a result."""
    *others, last = signature.parameters
    has_input = any(isinstance(each, Tensor) and not each.optional for each in others)
    if has_input and last in required and re.match(r"out|res|dst|dest|y$|ret", last.name):
        before = ", ".join(str(parameter) for parameter in others)
        in_place = f"{last.name}: mut {required[-1].type}, changed in place"
        return f"an arrow stands before outputs: {before} -> {last}; or {in_place}"
    changed = replace(required[0], mutable=True)
    return f"add an output ({signature} -> {out}: {required[0].plain}), or write {changed}"
