"""The call of a function with the tensors and numbers of a signature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kjit.adoption.proposal import dimension
from kjit.adoption.roles import INTEGER_TYPES, Roles, is_list
from kjit.cpp_functions import Parameter
from kjit.signature.signature import Scalar, Signature, Tensor


def template_arguments(roles: Roles, parameters: Sequence[Parameter], signature: Signature) -> str:
    """The arguments of a template with these parameters."""
    given = []
    constants = {constant.name.lower(): constant for constant in signature.constants}
    for parameter in parameters:
        if parameter.type in ("typename", "class"):
            given.append(_variable(roles, parameter, signature))
        elif parameter.name.lower() in constants:
            given.append(constants[parameter.name.lower()].name)
        elif parameter.default:
            break
        else:
            kind = "bool" if parameter.type == "bool" else "int"
            raise roles.refuse(
                f"the template takes '{parameter.type} {parameter.name}', and the signature has no such constant.",
                f"add it: {parameter.name.lower()}: const {kind} = {'True' if kind == 'bool' else '1'}",
            )
    return f"<{', '.join(given)}>" if given else ""


def argument(roles: Roles, parameter: Parameter, signature: Signature) -> str:
    """The argument for a parameter."""
    if roles.is_stream(parameter):
        return "LaunchKernel::resolve_device(gpu.unwrap())"
    if roles.is_view(parameter) or parameter.is_pointer:
        tensor = _tensor(roles, parameter, signature)
        if tensor.listed != is_list(parameter):
            raise signature.error(
                tensor,
                f"'{roles.function.name}' takes '{parameter.type} {parameter.name}', and a list of tensors is a"
                " TensorListView.",
                f"write {replace(tensor, listed=not tensor.listed)}",
            )
    if roles.is_view(parameter):
        return tensor.name
    if parameter.is_pointer:
        is_read_only = tensor in signature.inputs and not tensor.mutable
        if is_read_only and roles.known_use(parameter) in ("written", "changed"):
            raise signature.error(
                tensor,
                f"'{roles.function.name}' changes what '{parameter.type} {parameter.name}' points to.",
                f"write {replace(tensor, mutable=True)}, or make it an output",
            )
        if tensor.strided:
            raise signature.error(
                tensor,
                f"'{roles.function.name}' gets a pointer to '{tensor.name}' and no strides.",
                f"write {replace(tensor, strided=False)}",
            )
        pointee = _substituted(roles, parameter.type.removesuffix("*").strip(), signature)
        if tensor.optional:
            return f"data_of<{pointee}>({tensor.name})"
        return f"static_cast<{pointee}*>({tensor.name}.data_ptr())"
    numbers = [p for p in signature.parameters if isinstance(p, Scalar)]
    for number in numbers:
        if number.name.lower() in (parameter.name.lower(), roles.name(parameter).lower()):
            if number.optional:
                raise signature.error(
                    number,
                    f"'{roles.function.name}' takes '{parameter.type} {parameter.name}', which is required.",
                    f"write {replace(number, optional=False)}",
                )
            return f"static_cast<{_substituted(roles, parameter.base, signature)}>({number.name})"
    if parameter.base in INTEGER_TYPES:
        return f"static_cast<{parameter.base}>({_size(roles, parameter, signature)})"
    raise roles.refuse(
        f"'{parameter.type} {parameter.name}' is not in the signature.",
        f"add it: {parameter.name.lower()}: {roles.number(parameter) or 'float'}",
    )


def _tensor(roles: Roles, parameter: Parameter, signature: Signature) -> Tensor:
    named = [t for t in signature.tensors if t.name.lower() in (parameter.name.lower(), roles.name(parameter).lower())]
    if not named:
        raise roles.refuse(
            f"'{parameter.type} {parameter.name}' is not a tensor of the signature.",
            f"name one so: {roles.name(parameter)}: {'mut ' if roles.use(parameter) == 'changed' else ''}float32[N]",
        )
    return named[0]


def _variable(roles: Roles, parameter: Parameter, signature: Signature) -> str:
    """The argument for a type parameter: the element type of a tensor."""
    for pointer in roles.tensors:
        if pointer.base == parameter.name:
            tensor = _tensor(roles, pointer, signature)
            return tensor.dtype if isinstance(tensor.dtype, str) else tensor.dtype.cpp
    variables = signature.variables
    wanted = roles.variables[parameter.name]
    if wanted in variables:
        return wanted
    raise roles.refuse(
        f"no tensor has the template's type '{parameter.name}', so a call cannot name it.",
        "call it from a function of your own that names it, and take that one",
    )


def _substituted(roles: Roles, text: str, signature: Signature) -> str:
    """A type with the template's type parameters replaced."""
    for parameter in roles.all_template:
        if parameter.type in ("typename", "class") and re.search(rf"\b{parameter.name}\b", text):
            text = re.sub(rf"\b{parameter.name}\b", _variable(roles, parameter, signature), text)
    return text


def _size(roles: Roles, parameter: Parameter, signature: Signature) -> str:
    """The size for a number: the dimension of that name, or the only one."""
    dimensions = signature.dimensions
    named = [d for d in dimensions if d.lower() == parameter.name.lower()]
    is_lone = len(roles.sizes) == 1 and parameter in roles.sizes
    if is_lone and not named and all(len(t.shape) == 1 for t in signature.tensors) and len(dimensions) == 1:
        named = list(dimensions)
    if named:
        return f"{named[0]}.unwrap()"
    if is_lone and len({t.shape for t in signature.tensors}) == 1:  # the elements of all
        return f"{signature.tensors[0].name}.numel()"
    raise roles.refuse(
        f"'{parameter.type} {parameter.name}' is neither a dimension nor a number of the signature.",
        f"name a dimension {dimension(parameter)}, or add a parameter {parameter.name.lower()}: int",
    )
