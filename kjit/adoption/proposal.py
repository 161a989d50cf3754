"""A signature to start from, for a function whose op has none."""

from __future__ import annotations

from kjit.adoption.roles import PAGE, Roles, is_list
from kjit.cpp_functions import Parameter
from kjit.signature.names import parameter_problem


def example(roles: Roles) -> str:
    """A valid signature for a function: what its parameters and its body say, with all its sizes for each tensor."""
    sizes = ", ".join(map(dimension, roles.sizes)) or "N"
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
            element = next(iter(roles.variables.values()), "float32") if roles.takes_views else roles.element(parameter)
            tensor = f"{element}[{'...' if roles.takes_views else sizes}]"
            if is_list(parameter):
                tensor, use = f"list[{tensor}]", "changed" if use == "written" else use
            text = f"{name}: {'mut ' if use == 'changed' else ''}{'Optional ' if is_optional else ''}{tensor}"
            if is_optional:
                optional.append(f"{text} = None")
            else:
                (outputs if use == "written" else given).append(text)
        elif parameter not in roles.sizes and not roles.is_stream(parameter):
            if not roles.number(parameter):
                raise roles.refuse(
                    f"'{parameter.type} {parameter.name}' is neither a tensor nor a number.",
                    f"call it from a function of your own that takes TensorViews, and take that; {PAGE} has examples",
                )
            given.append(f"{name}: {roles.number(parameter)}")
    for constant in roles.open_constants:
        is_bool = constant.type == "bool"
        given.append(f"{constant.name.lower()}: const {'bool = True' if is_bool else 'int = 1'}")
    return ", ".join([*given, *optional]) + (f" -> {', '.join(outputs)}" if outputs else "")


def dimension(parameter: Parameter) -> str:
    """The dimension for a size."""
    name = parameter.name.upper()
    return name if parameter_problem(name, dimension=True) is None else "N"
