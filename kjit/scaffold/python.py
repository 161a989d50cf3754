"""The Python code of an op: its wrapper, and the reference in its test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kjit.dtypes import DType
from kjit.scaffold.cpp import choice_type, max_listed
from kjit.scaffold.patterns import Placed
from kjit.scaffold.start import View, python_tuple
from kjit.signature.signature import ELLIPSIS, Dimension, Parameter, Scalar, Tensor, words_of
from kjit.signature.sizes import Size


@dataclass(frozen=True)
class PythonView(View):
    """An op in Python.

    Args:
        start: its math.
        dtypes: what the dtype variables stand for.
    """

    dtypes: tuple[DType, ...]

    @property
    def variables(self) -> list[str]:
        """The name of each dtype variable in Python: `dtype`, or `dtype_t` and `dtype_u`."""
        if len(self.signature.variables) == 1:
            return ["dtype"]
        return [f"dtype_{variable.lower()}" for variable in self.signature.variables]

    @property
    def dtype_items(self) -> list[str]:
        """The value of `DTYPES`."""
        return [f"torch.{dtype.name}" for dtype in self.dtypes]

    @property
    def axes(self) -> list[str]:
        """The factors of the product of variants: `dtype=DTYPES`, `amount=[1]`."""
        constants = [
            f"{c.name}={choices_name(c.name)}"
            if c.kind == "choice"
            else f"{c.name}=[False, True]"
            if c.kind == "bool"
            else f"{c.name}=[{c.default}]"
            for c in self.signature.constants
        ]
        return [*(f"{name}=DTYPES" for name in self.variables), *constants]

    @property
    def variant_parameters(self) -> list[str]:
        """The parameters of the function that makes the spec."""
        constants = [f"{constant.name}: {_python_type(constant)}" for constant in self.signature.constants]
        return [*(f"{name}: torch.dtype" for name in self.variables), *constants]

    @property
    def variant_names(self) -> list[str]:
        return [*self.variables, *(constant.name for constant in self.signature.constants)]

    @property
    def choices(self) -> list[tuple[str, str, list[str]]]:
        """Each choice: its name, the name of its words, and the words."""
        choices = (c for c in self.signature.constants if c.kind == "choice")
        return [(c.name, choices_name(c.name), [f'"{word}"' for word in c.choices]) for c in choices]

    @property
    def sizes(self) -> list[str]:
        """The constants that are part of sizes."""
        words = {word for tensor in self.signature.tensors for d in tensor.shape for word in words_of(d)}
        return [constant.name for constant in self.signature.constants if constant.name in words]

    def template_arguments(self, op: str) -> list[str]:
        """The arguments of `make_cpp_args`."""
        chosen = {name: f'f"{choice_type(op, name)}::{{{name}}}"' for name, _, _ in self.choices}
        return [chosen.get(name, name) for name in self.variant_names]

    @property
    def variant_arguments(self) -> list[str]:
        """The arguments of that function in the wrapper."""
        dtypes = [f"{_one_of(self.owner(variable))}.dtype" for variable in self.signature.variables]
        return [*dtypes, *(c.name for c in self.signature.constants), f"device={self.first}"]

    def owner(self, variable: str) -> Tensor:
        """The input that determines a dtype variable."""
        return next(tensor for tensor in self.signature.required if tensor.dtype == variable)

    @property
    def first(self) -> str:
        """The tensor that determines the device of the op."""
        return _one_of(self.signature.required[0])

    @property
    def lists(self) -> list[str]:
        """The lists of tensors."""
        return [tensor.name for tensor in self.signature.inputs if tensor.listed]

    @property
    def allocation_lists(self) -> list[str]:
        """The lists that the allocation of outputs depends on."""
        return [name for name in self.lists if name in self.allocation_arguments]

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self.signature.outputs]

    @property
    def mutated(self) -> list[str]:
        return [tensor.name for tensor in self.signature.mutated]

    @property
    def optional(self) -> list[str]:
        """The optional inputs."""
        return [tensor.name for tensor in self.signature.inputs if tensor.optional]

    @property
    def results(self) -> list[str]:
        """The tensors that a call writes to: outputs, then those changed in place."""
        return self.outputs + self.mutated

    @property
    def inputs(self) -> list[str]:
        """The parameters without the outputs, as in a definition."""
        return [_python_parameter(parameter) for parameter in self.signature.parameters]

    @property
    def parameters(self) -> list[str]:
        """All parameters, as in a definition."""
        if not self.outputs:
            return self.inputs
        return [*self.inputs, "*", *(f"{name}: torch.Tensor | None = None" for name in self.outputs)]

    @property
    def returned(self) -> str:
        """The annotation of what the op returns."""
        return _types(["torch.Tensor"] * len(self.outputs)) if self.outputs else "None"

    @property
    def reference_returned(self) -> str:
        """The annotation of what `reference` returns."""
        lists = {tensor.name for tensor in self.signature.mutated if tensor.listed}
        return _types(["list[torch.Tensor]" if name in lists else "torch.Tensor" for name in self.results])

    @property
    def export_arguments(self) -> list[str]:
        """The arguments of the compiled function."""
        given = [p.name for p in self.signature.parameters if isinstance(p, Tensor) or not p.constant]
        return given + self.outputs

    @property
    def export_parameters(self) -> list[str]:
        """The compiled function's parameters, as in the definition of a method."""
        given = [p for p in self.signature.parameters if isinstance(p, Tensor) or not p.constant]
        parameters = [f"{parameter.name}: {_python_type(parameter)}" for parameter in (*given, *self.signature.outputs)]
        return ["self", *parameters, "/"]

    @property
    def allocations(self) -> list[str]:
        """For each output, the call that makes one."""
        return [self._allocation(output) for output in self.signature.outputs]

    def _allocation(self, output: Tensor) -> str:
        required = self.signature.required
        alike = [tensor for tensor in required if tensor.shape == output.shape]
        same = next((tensor for tensor in alike if tensor.dtype == output.dtype), None)
        if same is not None:
            return f"torch.empty_like({_one_of(same)})"
        if isinstance(output.dtype, str):
            dtype = f"{_one_of(self.owner(output.dtype))}.dtype"
        else:
            dtype = f"torch.{output.dtype.name}"
        if alike:
            return f"torch.empty_like({_one_of(alike[0])}, dtype={dtype})"
        source = self.owner(output.dtype) if isinstance(output.dtype, str) else required[0]
        typed = "" if source.dtype == output.dtype else f", dtype={dtype}"
        return f"{_one_of(source)}.new_empty({self._sizes(output.shape, required)}{typed})"

    def _sizes(self, shape: tuple[Dimension, ...], inputs: Sequence[Tensor]) -> str:
        """A shape as an expression of the inputs' shapes."""
        whole = [_one_of(tensor) for tensor in inputs if tensor.shape[:-1] == shape and shape]
        if whole:
            return f"{whole[0]}.shape[:-1]"
        sizes, known = [], self._known_sizes
        for dimension in shape:
            if isinstance(dimension, int):
                sizes.append(str(dimension))
                continue
            if dimension in known or isinstance(dimension, Size):
                brackets = {name: _in_brackets(value) for name, value in known.items()}
                size = dimension.python(brackets) if isinstance(dimension, Size) else known[dimension]
                # Negative for tensors that are too small, which the checks refuse.
                sizes.append(f"max({size}, 0)" if " - " in size else size)
                continue
            # The `...` of the tensor with the fewest other dimensions.
            owner = min((t for t in inputs if ELLIPSIS in t.shape), key=lambda tensor: len(tensor.shape))
            others = len(owner.shape) - 1
            sizes.append(f"*{_one_of(owner)}.shape" + (f"[:-{others}]" if others else ""))
        return python_tuple(sizes)

    @property
    def _known_sizes(self) -> dict[str, str]:
        """Each named dimension as an expression of the inputs' shapes."""
        known = {constant.name: constant.name for constant in self.signature.constants}
        for name, (tensor, place) in self.signature.places().items():
            at = f"{_one_of(tensor)}.shape[{place - len(tensor.shape) if ELLIPSIS in tensor.shape else place}]"
            dimension = tensor.shape[place]
            if isinstance(dimension, Size):
                at = dimension.solved(name, at, {other: _in_brackets(value) for other, value in known.items()})
            known[name] = at
        return known

    @property
    def _allocated_after(self) -> list[Parameter]:
        words = set(re.findall(r"\w+", " ".join(self.allocations)))
        parameters: tuple[Parameter, ...] = (*self.signature.inputs, *self.signature.constants)
        return [parameter for parameter in parameters if parameter.name in words]

    @property
    def allocation_arguments(self) -> list[str]:
        """The parameters that the allocation of outputs depends on."""
        return [parameter.name for parameter in self._allocated_after]

    @property
    def allocation_parameters(self) -> list[str]:
        return [f"{parameter.name}: {_python_type(parameter)}" for parameter in self._allocated_after]

    @property
    def math(self) -> list[str]:
        """The return values of `reference`, an expression for each result."""
        if self.start.scattered:
            return self.results
        return [self.start.expression(name, "python") for name in self.results]

    @property
    def stores(self) -> list[str]:
        """The statements of `reference` that write rows of tables."""
        (index,) = [tensor.name for tensor in self.placed.inputs("index")] or [""]
        statements = []
        for table in self.start.scattered:
            rows = self.start.expression(table.name, "python")
            words = set(re.findall(r"\w+", rows))
            read = {tensor.dtype for tensor in self.signature.inputs if tensor.name in words}
            if " " in rows:
                statements.append(f"stored = {rows}")
                rows = "stored"
            converted = "" if read == {table.dtype} else f".to({table.name}.dtype)"
            statements.append(f"{table.name}[{index}] = {rows}{converted}")
        return statements

    @property
    def documentation(self) -> list[str]:
        """A sentence for each parameter."""
        return [f"{p.name}: {_describe(p, self.placed)}." for p in self.signature.parameters] + [
            f"{output.name}: {output.type}; takes the result and is returned. Allocated when None."
            f" {_describe_overlap(self.placed.replaceable(output))}"
            for output in self.signature.outputs
        ]

    @property
    def may_need_gradient(self) -> bool:
        """Whether PyTorch may require a gradient of an input, as it has floating-point elements."""
        given = {
            dtype.kind
            for tensor in self.signature.inputs
            for dtype in (self.dtypes if isinstance(tensor.dtype, str) else (tensor.dtype,))
        }
        return "float" in given


def choices_name(name: str) -> str:
    """The name of the words of a choice in the wrapper: `MODE_CHOICES`."""
    return f"{name.upper()}_CHOICES"


def _one_of(tensor: Tensor) -> str:
    """A tensor, or the first of a list."""
    return f"{tensor.name}[0]" if tensor.listed else tensor.name


def _python_type(parameter: Parameter) -> str:
    if isinstance(parameter, Tensor) and parameter.listed:
        return "list[torch.Tensor]"
    if isinstance(parameter, Scalar):
        kind = "str" if parameter.kind == "choice" else parameter.kind
        return f"{kind} | None" if parameter.optional else kind
    return "torch.Tensor | None" if parameter.optional else "torch.Tensor"


def _python_parameter(parameter: Parameter) -> str:
    default = ""
    if isinstance(parameter, Tensor):
        default = " = None" if parameter.optional else ""
    elif parameter.optional:
        default = " = None"
    elif isinstance(parameter.default, str):
        default = f' = "{parameter.default}"'
    elif parameter.default is not None:
        default = f" = {parameter.default!r}".replace("e+", "e")  # as ruff writes 1e+300
    return f"{parameter.name}: {_python_type(parameter)}{default}"


def _in_brackets(expression: str) -> str:
    return f"({expression})" if " " in expression else expression


def _describe_overlap(inputs: Sequence[Tensor]) -> str:
    """The sentence about tensors that an output may overlap: all of one of `inputs`, or none."""
    if not inputs:
        return "It must not overlap another tensor."
    return f"It may be {' or '.join(tensor.name for tensor in inputs)} itself, and must not overlap a tensor otherwise."


def _describe(parameter: Parameter, placed: Placed) -> str:
    if isinstance(parameter, Tensor):
        changed = "; changed in place" if parameter.mutable else ""
        absent = "; None counts as zeros" if parameter.optional else ""
        if parameter.optional and placed.kind(parameter) == "whole":
            absent = "; may be None"
        is_index = placed.kind(parameter) == "index"
        tables = "the tables" if len(placed.inputs("table")) > 1 else "the table"
        outside = ""
        if is_index and any(placed.kind(tensor) == "table" for tensor in placed.signature.mutated):
            outside = f". A number that is no row of {tables} is skipped; of two that are equal, either counts"
        elif is_index:
            outside = f". A number that is no row of {tables} reads zeros"
        if parameter.listed:
            most = max_listed(placed.signature)
            return f"a list of {parameter.plain}, at most {most}, contiguous and all of one shape{changed}"
        if parameter.strided:
            gaps = "its stride may be any" if len(parameter.shape) == 1 else "all strides but the last may be any"
            return f"{parameter.type.removesuffix(' strided')}; {gaps}{changed}{absent}"
        return f"{parameter.type}, contiguous{changed}{absent}{outside}"
    if parameter.kind == "choice":
        *first, last = [f'"{word}"' for word in parameter.choices]
        return f"{', '.join(first)} or {last}, compiled into the kernel"
    words = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "a text"}[parameter.kind]
    words += " or None" if parameter.optional else ""
    return f"{words}, compiled into the kernel" if parameter.constant else words


def _types(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"
