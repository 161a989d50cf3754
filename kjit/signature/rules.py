"""Rules that the grammar of signatures cannot express: unique names, sizes and dtypes known from inputs, a result."""

from __future__ import annotations

from dataclasses import replace

from kjit.signature.names import free_name
from kjit.signature.signature import BY_HAND, ELLIPSIS, FORM, Parameter, Scalar, Signature, Tensor, words_of
from kjit.signature.sizes import Size

MAX_ARGUMENTS = 64
"""The maximum number of arguments of an op in PyTorch. Outputs count, because a caller may pass them."""


def check_rules(signature: Signature) -> None:
    """Refuse a signature that no op can have.

    Raises:
        SignatureError: a name has two meanings, a size or a dtype is unknown, or there is nothing to do.
    """
    constants = {constant.name: constant for constant in signature.constants if constant.kind == "int"}
    _check_names(signature, constants)
    _check_arguments(signature)
    variables = {str(tensor.dtype) for tensor in signature.required}
    for tensor in signature.tensors:
        _check_sizes(signature, tensor, constants)
        if isinstance(tensor.dtype, str) and tensor.dtype not in variables:
            reason = f"dtype variable '{tensor.dtype}' of '{tensor.name}' is unknown: no required input has it."
            hint = f"use the dtype of an input ({', '.join(sorted(variables))}) or a fixed one; for others {BY_HAND}"
            raise signature.error(tensor, reason, hint)


def _check_names(signature: Signature, constants: dict[str, Scalar]) -> None:
    arguments = (*signature.parameters, *signature.outputs)
    uses: list[tuple[Parameter, str, str]] = [(each, each.name, "a parameter") for each in arguments]
    for tensor in signature.tensors:
        words = [word for dimension in tensor.shape for word in words_of(dimension)]
        uses += [(tensor, word, "a dimension") for word in words if word not in constants]
        uses += [(tensor, tensor.dtype, "a dtype variable")] if isinstance(tensor.dtype, str) else []
    seen: dict[str, str] = {}
    for at, name, use in uses:
        if name in seen and (seen[name] != use or use == "a parameter"):
            reason = f"the name '{name}' is used twice, for {use} and for {seen[name]}."
            another = f"another name would be {free_name(name.lower(), signature.names)}"
            hint = f"{another}; a parameter may be a size as a const int, and a tensor may be changed in place as mut"
            raise signature.error(at, reason, hint)
        seen[name] = use


def _check_arguments(signature: Signature) -> None:
    """Refuse too many arguments, those that Python would refuse, and an op without a tensor or a result."""
    arguments = (*signature.parameters, *signature.outputs)
    if len(arguments) > MAX_ARGUMENTS:
        reason = f"{len(arguments)} parameters and outputs are too many: an op of PyTorch has at most {MAX_ARGUMENTS}."
        hint = "put several into one, as further rows of a tensor, or make two ops of it"
        raise signature.error(arguments[MAX_ARGUMENTS], reason, hint)
    before: Parameter | None = None
    for parameter in signature.parameters:
        if parameter.optional or (isinstance(parameter, Scalar) and parameter.default is not None):
            before = before or parameter
        elif before is not None:
            reason = f"'{parameter.name}' has no default and follows '{before.name}', which has one."
            hint = f"move '{parameter.name}' before '{before.name}', or give it a default"
            raise signature.error(parameter, reason, hint)
    if not signature.required:
        reason = "the op has no required tensor as an input, which determines the device that it runs on."
        raise signature.error(arguments[0], reason, FORM)
    if not signature.outputs and not signature.mutated:
        changed = replace(signature.required[0], mutable=True)
        reason = "the op changes nothing: it has no output and no mut tensor."
        hint = f"outputs follow '->', and what is changed in place is mut: {changed}"
        raise signature.error(arguments[0], reason, hint)


def _check_sizes(signature: Signature, tensor: Tensor, constants: dict[str, Scalar]) -> None:
    """Refuse sizes that no tensor determines, and values that are not sizes."""
    is_output = tensor in signature.outputs
    known = {*signature.places([*signature.required, *([] if is_output else [tensor])]), *constants}
    if not is_output or any(ELLIPSIS in each.shape for each in signature.required):
        known.add(ELLIPSIS)
    for dimension in tensor.shape:
        words = (ELLIPSIS,) if dimension == ELLIPSIS else words_of(dimension)
        divisor = dimension.divisor if isinstance(dimension, Size) else 1
        if isinstance(divisor, str) and divisor not in constants:
            reason = f"'{dimension}' of '{tensor.name}' is divided by '{divisor}', neither a number nor a const int."
            raise signature.error(tensor, reason, "for example: group: const int = 128, and D/group")
        unknown = [word for word in dict.fromkeys(words) if word not in known]
        if unknown:
            reason = f"'{dimension}' of '{tensor.name}' is unknown: no required input has {' and '.join(unknown)}."
            has = (
                f"what inputs have: {', '.join(sorted(known))}; for others" if known else "give an input this size, or"
            )
            raise signature.error(tensor, reason, f"{has} {BY_HAND}")
        for constant in (constants[word] for word in words if word in constants and isinstance(dimension, Size)):
            if isinstance(constant.default, int) and constant.default < 1:
                reason = f"'{constant.name}' is part of the size '{dimension}', and {constant.default} is not a size."
                raise signature.error(constant, reason, f"{constant.name}: const int = 1")
