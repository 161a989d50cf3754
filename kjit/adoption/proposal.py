"""The signature that a function's parameters imply."""

from __future__ import annotations

from collections.abc import Callable

from kjit.adoption.roles import PAGE, Roles, is_list
from kjit.cpp_functions import Parameter
from kjit.signature.names import parameter_problem


def propose(roles: Roles) -> str:
    """The signature that the parameters imply."""
    for parameter in roles.function.parameters:
        _check(roles, parameter)
    if not roles.tensors:
        raise roles.refuse("it takes no pointer and no TensorView.", "an op works on tensors: choose another function")
    shapes = roles.matched_shapes() if roles.takes_views else {}
    if roles.takes_views and set(shapes) != {parameter.name for parameter in roles.tensors}:
        missing = next(p.name for p in roles.tensors if p.name not in shapes)
        raise roles.refuse(
            f"no TensorMatcher checks the shape and dtype of '{missing}'.",
            _example(roles, "T[...]" if roles.variables else "float32[...]"),
        )
    sizes = [dimension(parameter) for parameter in roles.sizes]
    if not roles.takes_views and len(sizes) != 1:
        found = f"{len(sizes)} sizes ({', '.join(p.name for p in roles.sizes)})" if sizes else "no size"
        raise roles.refuse(
            f"'{roles.function.name}' takes {found}, and its parameters do not say which tensor has which.",
            _example(roles, f"[{', '.join(sizes) or 'N'}]"),
        )
    return _written(roles, lambda parameter: shapes.get(parameter.name) or f"{roles.element(parameter)}[{sizes[0]}]")


def _check(roles: Roles, parameter: Parameter) -> None:
    if not parameter.name:
        raise roles.refuse(f"a parameter of type '{parameter.type}' has no name.", "give it one")
    if parameter in roles.tensors or parameter in roles.sizes or roles.is_stream(parameter):
        return
    if roles.number(parameter) == "":
        raise roles.refuse(
            f"'{parameter.type} {parameter.name}' is neither a tensor nor a number.",
            f"call it from a function of your own that takes TensorViews, and take that; {PAGE} has examples",
        )


def _written(roles: Roles, typed: Callable[[Parameter], str]) -> str:
    """The signature, with the type of a tensor from `typed`."""
    uses = {parameter.name: roles.use(parameter) for parameter in roles.tensors}
    if "read" not in uses.values():  # no input would determine the size of an output
        uses = dict.fromkeys(uses, "changed")
    given: list[str] = []
    optional: list[str] = []
    outputs: list[str] = []
    for parameter in roles.function.parameters:
        name = roles.name(parameter)
        if parameter in roles.tensors:
            use, is_optional = uses[parameter.name], "ptional<" in parameter.type
            if is_list(parameter) and use == "written":  # an output cannot be a list
                use = "changed"
            words = ("mut " if use == "changed" else "") + ("Optional " if is_optional else "")
            text = f"{name}: {words}{f'list[{typed(parameter)}]' if is_list(parameter) else typed(parameter)}"
            if is_optional:
                optional.append(f"{text} = None")
            else:
                (outputs if use == "written" else given).append(text)
        elif parameter not in roles.sizes and not roles.is_stream(parameter):
            given.append(f"{name}: {roles.number(parameter)}")
    constants = [f"{name}: const {kind} = {default}" for name, kind, default in _constants(roles)]
    left = ", ".join([*given, *optional, *constants])
    return left + (f" -> {', '.join(outputs)}" if outputs else "")


def _example(roles: Roles, shape: str) -> str:
    """A hint with a valid signature to start from."""
    made = _written(roles, lambda p: shape if shape[0] != "[" else f"{roles.element(p)}{shape}")
    chosen = f" --function {roles.function.qualified}" if len(roles.source.functions) > 1 else ""
    return f'give a signature: kjit new {roles.op} "{made}" --from {roles.shown}{chosen}'


def dimension(parameter: Parameter) -> str:
    """The dimension for a size."""
    name = parameter.name.upper()
    return name if parameter_problem(name, dimension=True) is None else "N"


def _constants(roles: Roles) -> list[tuple[str, str, str]]:
    """The template's numbers without a default: name, type, value in the signature."""
    found = []
    for parameter in roles.open_constants:
        kind = "bool" if parameter.type == "bool" else "int"
        default = parameter.default or ("True" if kind == "bool" else "1")
        found.append((parameter.name.lower(), kind, {"true": "True", "false": "False"}.get(default, default)))
    return found
