"""What does a signature look like in C++ and in Python?

A template should read like the file that it makes. So what takes thought (the C++ type of a number that meets elements
of type T, the expression that a new op starts with) is worked out here, and a template only places it.

The math that a new op starts with is the same in both languages: the sum of the inputs (the square, of a lone one),
times every float, plus every int and bool. For the default signature: `x * alpha`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kjit.scaffold.dtypes import DType
from kjit.scaffold.signature import ELLIPSIS, Parameter, Scalar, Signature, Tensor

Role = Literal["in", "mut", "out"]


@dataclass(frozen=True)
class TensorView:
    """A tensor in C++.

    Args:
        name: of the parameter.
        role: read, changed in place, or written.
        element: the type of its elements, `T` or `fp16_t`.
        compute: the type that arithmetic on them is done in, `compute_t<T>` or `float`.
    """

    name: str
    role: Role
    element: str
    compute: str

    @property
    def pointee(self) -> str:
        """What a pointer to its data points to."""
        return f"const {self.element}" if self.role == "in" else self.element

    @property
    def reference(self) -> str:
        return f"{self.pointee}& {self.name}_ref"


@dataclass(frozen=True)
class Field:
    """A member of the kernel's parameters, and how the host fills it."""

    name: str
    type: str
    value: str


@dataclass(frozen=True)
class DTypeGroup:
    """Tensors of one element type, which one matcher verifies."""

    element: str
    verifies: list[str]


@dataclass(frozen=True)
class CppView:
    """An op in C++."""

    signature: Signature
    tensors: tuple[TensorView, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(_tensor_view(self.signature, t) for t in self.signature.tensors))

    @property
    def template_parameters(self) -> list[str]:
        constants = [
            f"{'bool' if constant.kind == 'bool' else 'int64_t'} {constant.name}"
            for constant in self.signature.constants
        ]
        return [*(f"typename {variable}" for variable in self.signature.variables), *constants]

    @property
    def template_names(self) -> list[str]:
        return [*self.signature.variables, *(constant.name for constant in self.signature.constants)]

    @property
    def template_head(self) -> str:
        """`template <typename T>`; nothing for an op without variants."""
        return f"template <{', '.join(self.template_parameters)}>" if self.template_parameters else ""

    @property
    def template_args(self) -> str:
        return f"<{', '.join(self.template_names)}>" if self.template_names else ""

    @property
    def type_head(self) -> str:
        """The same for what depends on the dtypes and not on the constants."""
        variables = ", ".join(f"typename {variable}" for variable in self.signature.variables)
        return f"template <{variables}>" if variables else ""

    @property
    def type_args(self) -> str:
        return f"<{', '.join(self.signature.variables)}>" if self.signature.variables else ""

    @property
    def scalar_alias(self) -> bool:
        """Whether the type of the floats depends on a dtype variable."""
        floats = any(scalar.kind == "float" for scalar in self.signature.scalars)
        return floats and bool(self.signature.variables) and not self._has_double

    @property
    def _has_double(self) -> bool:
        return any(tensor.element == "double" for tensor in self.tensors)

    def scalar_type(self, scalar: Scalar) -> str:
        """The type of a run-time number in the kernel."""
        if scalar.kind != "float":
            return "bool" if scalar.kind == "bool" else "int64_t"
        if self.scalar_alias:
            return f"scalar_t<{', '.join(self.signature.variables)}>"
        return "double" if self._has_double else "float"

    @property
    def run_parameters(self) -> list[str]:
        """Of the exported function: in the order of the signature, outputs last."""
        exported = {"float": "double", "int": "int64_t", "bool": "bool"}
        parameters = [
            f"{exported[p.kind] if isinstance(p, Scalar) else 'TensorView'} {p.name}"
            for p in self.signature.parameters
            if isinstance(p, Tensor) or not p.constant
        ]
        return parameters + [f"TensorView {output.name}" for output in self.signature.outputs]

    @property
    def fields(self) -> list[Field]:
        """The kernel's parameters as members of a struct."""
        tensors = [
            Field(t.name, f"{t.pointee}*", f"static_cast<{t.pointee}*>({t.name}.data_ptr())") for t in self.tensors
        ]
        scalars = [
            Field(
                s.name,
                self.scalar_type(s),
                f"static_cast<{self.scalar_type(s)}>({s.name})" if s.kind == "float" else s.name,
            )
            for s in self.signature.scalars
        ]
        return tensors + scalars

    @property
    def kernel_parameters(self) -> list[str]:
        pointers = [f"{tensor.pointee}* {tensor.name}_ptr" for tensor in self.tensors]
        return [*pointers, *self._scalar_parameters, "int64_t numel"]

    @property
    def element_parameters(self) -> list[str]:
        return [*(tensor.reference for tensor in self.tensors), *self._scalar_parameters]

    @property
    def _scalar_parameters(self) -> list[str]:
        return [f"{self.scalar_type(scalar)} {scalar.name}" for scalar in self.signature.scalars]

    @property
    def launch_arguments(self) -> list[str]:
        """Behind the kernel: a launch converts them to the kernel's parameters."""
        return [*(f"{tensor.name}.data_ptr()" for tensor in self.tensors), *self._scalar_names(), "numel"]

    @property
    def call_arguments(self) -> list[str]:
        tensors = [f"static_cast<{tensor.pointee}*>({tensor.name}.data_ptr())" for tensor in self.tensors]
        return [*tensors, *self._scalar_names(), self.numel]

    @property
    def vector_arguments(self) -> list[str]:
        tensors = [f"{t.name}_vec[j]" if t.role == "out" else f"{t.name}_vec[i][j]" for t in self.tensors]
        return tensors + self._scalar_names("params.")

    @property
    def scalar_arguments(self) -> list[str]:
        return [*(f"params.{tensor.name}[at]" for tensor in self.tensors), *self._scalar_names("params.")]

    @property
    def indexed_arguments(self) -> list[str]:
        return [*(f"{tensor.name}_ptr[i]" for tensor in self.tensors), *self._scalar_names()]

    def _scalar_names(self, prefix: str = "") -> list[str]:
        return [f"{prefix}{scalar.name}" for scalar in self.signature.scalars]

    @property
    def pointers(self) -> list[str]:
        return [f"params.{tensor.name}" for tensor in self.tensors]

    @property
    def elements(self) -> list[str]:
        """The element types, each once."""
        return list(dict.fromkeys(tensor.element for tensor in self.tensors))

    @property
    def whole_shape(self) -> bool:
        return self.signature.inputs[0].shape == (ELLIPSIS,)

    @property
    def shape(self) -> str:
        """As a matcher takes it."""
        if self.whole_shape:
            return "shape"
        return "{" + ", ".join(str(dimension) for dimension in self.signature.inputs[0].shape) + "}"

    @property
    def numel(self) -> str:
        return "shape.numel()" if self.whole_shape else f"{self.tensors[0].name}.numel()"

    @property
    def dimension_symbols(self) -> str:
        return ", ".join(f'{name}{{"{name}"}}' for name in self.signature.dimensions)

    @property
    def dtype_groups(self) -> list[DTypeGroup]:
        return [
            DTypeGroup(element, [f'verify({t.name}, "{t.name}")' for t in self.tensors if t.element == element])
            for element in self.elements
        ]

    @property
    def math(self) -> list[tuple[str, str]]:
        """The assignments that compute the outputs from the inputs, or change what is mut: left and right side."""
        expressions = start_expressions(self.signature)
        if self.signature.mutated:
            return [(t.name, e) for t, e in zip(self.signature.mutated, expressions, strict=True)]
        outputs = self.tensors[len(self.signature.inputs) :]
        return [(f"const {t.compute} {t.name}", e) for t, e in zip(outputs, expressions, strict=True)]


def _tensor_view(signature: Signature, tensor: Tensor) -> TensorView:
    role: Role = "out" if tensor in signature.outputs else "mut" if tensor.mutable else "in"
    if isinstance(tensor.dtype, str):
        return TensorView(tensor.name, role, tensor.dtype, f"compute_t<{tensor.dtype}>")
    cpp = tensor.dtype.cpp
    narrow = tensor.dtype.kind == "float" and tensor.dtype.bytes <= 4
    return TensorView(tensor.name, role, cpp, "float" if narrow else cpp)


def start_expressions(signature: Signature) -> list[str]:
    """What a new op computes, as expressions that mean the same in C++ and in Python: one for each output, or for each
    tensor that is changed in place."""
    factors = [p.name for p in signature.scalars if p.kind == "float"]
    summands = [p.name for p in (*signature.scalars, *signature.constants) if p.kind != "float"]
    read_only = [tensor for tensor in signature.inputs if not tensor.mutable]
    if signature.mutated:
        # Its own value and what is only read, so that one does not depend on whether another has changed yet.
        return [_expression([tensor, *read_only], factors, summands, tensor) for tensor in signature.mutated]
    return [
        _expression(read_only, factors, summands + ([str(index)] if index else []), output)
        for index, output in enumerate(signature.outputs)
    ]


def _expression(tensors: Sequence[Tensor], factors: Sequence[str], summands: Sequence[str], result: Tensor) -> str:
    terms = [tensor.name for tensor in tensors]
    only_bools = all(isinstance(tensor.dtype, DType) and tensor.dtype.kind == "bool" for tensor in tensors)
    alone = len(terms) == 1 and not factors and not summands
    # A sum of bools is a number in C++ and a bool in PyTorch.
    text = f"{terms[0]} * {terms[0]}" if alone else (" | " if only_bools else " + ").join(terms)
    if len(terms) > 1 and (factors or (only_bools and summands)):
        text = f"({text})"
    text = " * ".join([text, *factors])
    text = " + ".join([text, *summands])
    if isinstance(result.dtype, DType) and result.dtype.kind == "bool":
        return f"({text}) != 0" if " " in text else f"{text} != 0"
    return text


@dataclass(frozen=True)
class PythonView:
    """An op in Python: its wrapper, test and benchmark.

    Args:
        signature: of the op.
        dtypes: what the dtype variables stand for.
    """

    signature: Signature
    dtypes: tuple[DType, ...]

    @property
    def variables(self) -> list[str]:
        """For each dtype variable, what it is called in Python: `dtype`, or `dtype_t` and `dtype_u`."""
        if len(self.signature.variables) == 1:
            return ["dtype"]
        return [f"dtype_{variable.lower()}" for variable in self.signature.variables]

    @property
    def dtype_items(self) -> list[str]:
        """The value of `DTYPES`."""
        return [f"torch.{dtype.name}" for dtype in self.dtypes]

    @property
    def axes(self) -> list[str]:
        """What the variants are the product of: `dtype=DTYPES`, `amount=[1]`."""
        constants = [
            f"{c.name}=[False, True]" if c.kind == "bool" else f"{c.name}=[{c.default}]"
            for c in self.signature.constants
        ]
        return [*(f"{name}=DTYPES" for name in self.variables), *constants]

    @property
    def variant_parameters(self) -> list[str]:
        """Of the function that makes the spec."""
        constants = [f"{constant.name}: {constant.kind}" for constant in self.signature.constants]
        return [*(f"{name}: torch.dtype" for name in self.variables), *constants]

    @property
    def variant_names(self) -> list[str]:
        return [*self.variables, *(constant.name for constant in self.signature.constants)]

    @property
    def variant_arguments(self) -> list[str]:
        """How the wrapper calls it."""
        dtypes = [f"{self.owner(variable).name}.dtype" for variable in self.signature.variables]
        return [*dtypes, *(c.name for c in self.signature.constants), f"device={self.first}.device"]

    def owner(self, variable: str) -> Tensor:
        """The input that says what a dtype variable stands for."""
        return next(tensor for tensor in self.signature.inputs if tensor.dtype == variable)

    @property
    def first(self) -> str:
        """The tensor that says on which device the op works."""
        return self.signature.inputs[0].name

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self.signature.outputs]

    @property
    def mutated(self) -> list[str]:
        return [tensor.name for tensor in self.signature.mutated]

    @property
    def results(self) -> list[str]:
        """The tensors that a call writes to."""
        return self.outputs or self.mutated

    @property
    def result(self) -> str:
        """They as an expression: a tensor, or a tuple of tensors."""
        return self.results[0] if len(self.results) == 1 else f"({', '.join(self.results)})"

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
        return _tensors(len(self.outputs)) if self.outputs else "None"

    @property
    def reference_returned(self) -> str:
        """The annotation of what `reference` returns."""
        return _tensors(len(self.results))

    @property
    def export_arguments(self) -> list[str]:
        """What the compiled function is called with."""
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
        """For each output, the expression that makes one."""
        return [f"torch.empty_like({', '.join(self._like(output))})" for output in self.signature.outputs]

    def _like(self, output: Tensor) -> list[str]:
        if isinstance(output.dtype, DType):
            same = next((t for t in self.signature.inputs if t.dtype == output.dtype), None)
            return [same.name] if same is not None else [self.first, f"dtype=torch.{output.dtype.name}"]
        return [self.owner(output.dtype).name]

    @property
    def allocation_arguments(self) -> list[str]:
        """The inputs that the outputs are made after."""
        return list(dict.fromkeys(self._like(output)[0] for output in self.signature.outputs))

    @property
    def allocation_parameters(self) -> list[str]:
        return [f"{name}: torch.Tensor" for name in self.allocation_arguments]

    @property
    def math(self) -> list[str]:
        """What `reference` returns, an expression for each result."""
        return start_expressions(self.signature)

    @property
    def documentation(self) -> list[str]:
        """A sentence for each parameter."""
        return [f"{p.name}: {_describe(p)}." for p in self.signature.parameters] + [
            f"{output.name}: {output.type}; takes the result and is returned. Allocated when None. It may be an input"
            " itself, and must not overlap one otherwise."
            for output in self.signature.outputs
        ]

    # What follows is for the test and the benchmark.

    @property
    def variable_parameters(self) -> list[str]:
        return [f"{name}: torch.dtype" for name in self.variables]

    @property
    def first_dtypes(self) -> list[str]:
        """A dtype for each variable, where they are not parameters of the test."""
        return ["DTYPES[0]"] * len(self.variables)

    @property
    def input_names(self) -> list[str]:
        return [tensor.name for tensor in self.signature.inputs]

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors, outputs last."""
        return self.input_names + self.outputs

    def quoted(self, names: Sequence[str]) -> list[str]:
        return [f'"{name}"' for name in names]

    @property
    def parametrize_variants(self) -> str:
        """The decorators of a test that runs for every dtype, each with its line break."""
        dtypes = [f'@pytest.mark.parametrize("{name}", DTYPES, ids=str)\n' for name in self.variables]
        return "".join(dtypes)

    @property
    def changed_inputs(self) -> list[str]:
        """What an op without outputs changes, in the dictionary of a call's arguments."""
        return [f'inputs["{name}"]' for name in self.mutated]

    @property
    def in_place(self) -> tuple[str, str] | None:
        """An input, and the output that may be the same tensor."""
        for output in self.signature.outputs:
            for tensor in self.signature.inputs:
                if tensor.dtype == output.dtype:
                    return tensor.name, output.name
        return None

    @property
    def shape_is_checked(self) -> bool:
        return len(self.tensors) > 1 or self.signature.inputs[0].shape != (ELLIPSIS,)

    @property
    def sized_shape(self) -> str:
        """A shape that grows with `size`: `(size,)`; nothing where no dimension can grow by itself."""
        return self._shape_of("size")

    @property
    def large_shape(self) -> str:
        """A shape of `size` elements."""
        return self._shape_of("size" if self.fixed_elements == 1 else f"size // {self.fixed_elements}")

    def _shape_of(self, size: str) -> str:
        shape = self.signature.inputs[0].shape
        if shape == (ELLIPSIS,):
            return f"({size},)"
        # Of a dimension that is there twice, the size would be squared.
        named = [d for d in shape if isinstance(d, str) and shape.count(d) == 1]
        if not named:
            return ""
        items = [size if d == named[-1] else "1" if isinstance(d, str) else str(d) for d in shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    @property
    def fixed_elements(self) -> int:
        """The product of the dimensions that are numbers."""
        return math.prod(dimension for dimension in self.signature.inputs[0].shape if isinstance(dimension, int))

    @property
    def other_shapes(self) -> list[str]:
        """Shapes of another kind than `shape_parameters`, for the test."""
        shape = self.signature.inputs[0].shape
        if shape == (ELLIPSIS,):
            return ["()", "(3, 5, 7)", "(2, 0, 3)"]
        named = list(dict.fromkeys(dimension for dimension in shape if isinstance(dimension, str)))
        if len(named) < 2:
            return [] if named else [repr(shape)]
        primes = dict(zip(named, (3, 5, 7, 2, 11, 13), strict=False))
        shapes = [tuple(primes.get(str(d), 2) if isinstance(d, str) else d for d in shape)]
        shapes.append(tuple(0 if d == named[0] else size for d, size in zip(shape, shapes[0], strict=True)))
        return [repr(entry) for entry in shapes]

    @property
    def sample_shape(self) -> str:
        """A shape for tests that need one that is not special."""
        shape = self.signature.inputs[0].shape
        if shape == (ELLIPSIS,) or len(shape) == 1:
            return repr(shape) if isinstance(shape[0], int) else "(1001,)"
        sizes = iter((7, 143, 5, 3, 2, 2, 2, 2))
        known: dict[str, int] = {}
        return repr(tuple(d if isinstance(d, int) else known.setdefault(d, next(sizes)) for d in shape))

    @property
    def sample_arguments(self) -> list[tuple[str, str]]:
        """The parameters with a value for a test: tensors of some shape, and numbers that are no defaults."""
        return [
            (p.name, f"make(shape, {self.dtype_of(p)}, device)" if isinstance(p, Tensor) else _sample(p))
            for p in self.signature.parameters
        ]

    def dtype_of(self, tensor: Tensor) -> str:
        """The expression for a tensor's dtype."""
        if isinstance(tensor.dtype, DType):
            return f"torch.{tensor.dtype.name}"
        return self.variables[self.signature.variables.index(tensor.dtype)]

    @property
    def has_fp8(self) -> bool:
        fixed = [tensor.dtype for tensor in self.signature.tensors if isinstance(tensor.dtype, DType)]
        possible = [*fixed, *(self.dtypes if self.signature.variables else ())]
        return any(dtype.is_fp8 for dtype in possible)

    @property
    def differentiable(self) -> Tensor | None:
        """An input that could require a gradient in the first variant."""
        for tensor in self.signature.inputs:
            dtype = tensor.dtype if isinstance(tensor.dtype, DType) else self.dtypes[0]
            if dtype.kind == "float":
                return tensor
        return None

    @property
    def bytes_moved(self) -> str:
        """Bytes read and written for each element, as a factor."""
        counts: dict[str, int] = {}
        for tensor in self.signature.tensors:
            size = str(tensor.dtype.bytes) if isinstance(tensor.dtype, DType) else f"{self.dtype_of(tensor)}.itemsize"
            counts[size] = counts.get(size, 0) + (2 if tensor.mutable else 1)
        fixed = sum(int(size) * count for size, count in counts.items() if size.isdecimal())
        terms = [f"{count} * {size}" if count > 1 else size for size, count in counts.items() if not size.isdecimal()]
        terms += [str(fixed)] if fixed else []
        return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _python_type(parameter: Parameter) -> str:
    return parameter.kind if isinstance(parameter, Scalar) else "torch.Tensor"


def _python_parameter(parameter: Parameter) -> str:
    default = f" = {parameter.default!r}" if isinstance(parameter, Scalar) and parameter.default is not None else ""
    return f"{parameter.name}: {_python_type(parameter)}{default}"


def _describe(parameter: Parameter) -> str:
    if isinstance(parameter, Tensor):
        return f"{parameter.type}, contiguous{'; changed in place' if parameter.mutable else ''}"
    words = {"float": "a number", "int": "a whole number", "bool": "true or false"}[parameter.kind]
    return f"{words}, compiled into the kernel" if parameter.constant else words


def _tensors(count: int) -> str:
    return "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"


def _sample(scalar: Scalar) -> str:
    """A value for a test: a constant's own, as others are not built; else one that a default would not be."""
    if scalar.constant:
        return repr(scalar.default) if scalar.default is not None else "True"
    if scalar.kind == "float":
        return "0.5" if scalar.default != 0.5 else "0.25"
    if scalar.kind == "int":
        return "3" if scalar.default != 3 else "2"
    return repr(scalar.default is not True)
