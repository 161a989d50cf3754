"""What does a signature look like in C++ and in Python?

A template should read like the file that it makes. So what takes thought (the C++ type of a number that meets elements
of type T, the expression that a new op starts with) is worked out here, and a template only places it. What is computed
is in `start.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kjit.scaffold.dtypes import DType
from kjit.scaffold.patterns import Kind, Kinds
from kjit.scaffold.signature import ELLIPSIS, Dimension, Parameter, Scalar, Signature, Tensor
from kjit.scaffold.start import Start

Role = Literal["in", "mut", "out"]


@dataclass(frozen=True)
class TensorView:
    """A tensor in C++.

    Args:
        name: of the parameter.
        role: read, changed in place, or written.
        kind: what it is to the kernel.
        element: the type of its elements, `T` or `fp16_t`.
        compute: the type that arithmetic on them is done in, `compute_t<T>` or `float`.
        optional: it may be absent, and is then read as zeros.
    """

    name: str
    role: Role
    kind: Kind
    element: str
    compute: str
    optional: bool

    @property
    def pointee(self) -> str:
        """What a pointer to its data points to."""
        return f"const {self.element}" if self.role == "in" else self.element

    @property
    def reference(self) -> str:
        return f"{self.pointee}& {self.name}_ref"

    @property
    def const_reference(self) -> str:
        """The same where it is only read, whatever becomes of it elsewhere."""
        return f"const {self.element}& {self.name}_ref"

    @property
    def data(self) -> str:
        """The pointer to its data, on the host."""
        if self.optional:
            return f"data_of<{self.pointee}>({self.name})"
        return f"static_cast<{self.pointee}*>({self.name}.data_ptr())"

    def at(self, pointer: str, index: str) -> str:
        """One of its elements."""
        return f"element_or_zero({pointer}, {index})" if self.optional else f"{pointer}[{index}]"


@dataclass(frozen=True)
class Field:
    """A member of the kernel's parameters, and how the host fills it."""

    name: str
    type: str
    value: str


@dataclass(frozen=True)
class Check:
    """Tensors of one shape and element type, which one matcher verifies."""

    shape: str
    element: str
    verifies: list[str]
    condition: str = ""


@dataclass(frozen=True)
class CppView:
    """An op in C++.

    Args:
        signature: of the op.
        kinds: what its tensors are to the kernel.
        start: what it computes.
    """

    signature: Signature
    kinds: Kinds
    start: Start
    tensors: tuple[TensorView, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(self._tensor_view(tensor) for tensor in self.signature.tensors))

    def _tensor_view(self, tensor: Tensor) -> TensorView:
        role: Role = "out" if tensor in self.signature.outputs else "mut" if tensor.mutable else "in"
        if isinstance(tensor.dtype, str):
            element, compute = tensor.dtype, f"compute_t<{tensor.dtype}>"
        else:
            element = compute = tensor.dtype.cpp
            if tensor.dtype.kind == "float" and tensor.dtype.bytes <= 4:
                compute = "float"
        if self.start.moves:  # bits that are not computed with
            compute = element
        return TensorView(tensor.name, role, self.kinds[tensor.name], element, compute, tensor.optional)

    def of(self, *kinds: Kind, roles: Sequence[Role] = ("in", "mut", "out")) -> list[TensorView]:
        """The tensors of these kinds and roles."""
        return [tensor for tensor in self.tensors if tensor.kind in kinds and tensor.role in roles]

    @property
    def has_optional(self) -> bool:
        return any(tensor.optional for tensor in self.tensors)

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
        floats = self.start.sums or any(scalar.kind == "float" for scalar in self.signature.scalars)
        return floats and bool(self.signature.variables) and not self._has_double

    @property
    def _has_double(self) -> bool:
        return any(tensor.element == "double" for tensor in self.tensors)

    @property
    def scalar(self) -> str:
        """The type of a number that comes along with elements, and of sums of them."""
        if self.scalar_alias:
            return f"scalar_t<{', '.join(self.signature.variables)}>"
        return "double" if self._has_double else "float"

    def scalar_type(self, scalar: Scalar) -> str:
        """The type of a run-time number in the kernel."""
        if scalar.kind != "float":
            return "bool" if scalar.kind == "bool" else "int64_t"
        return self.scalar

    @property
    def run_parameters(self) -> list[str]:
        """Of the exported function: in the order of the signature, outputs last."""
        exported = {"float": "double", "int": "int64_t", "bool": "bool"}
        parameters = [
            f"{exported[p.kind] if isinstance(p, Scalar) else _argument(p)} {p.name}"
            for p in self.signature.parameters
            if isinstance(p, Tensor) or not p.constant
        ]
        return parameters + [f"TensorView {output.name}" for output in self.signature.outputs]

    @property
    def fields(self) -> list[Field]:
        """The kernel's parameters as members of a struct."""
        tensors = [Field(t.name, f"{t.pointee}*", t.data) for t in self.tensors]
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
        return [*pointers, *self.scalar_parameters(), "int64_t numel"]

    @property
    def element_parameters(self) -> list[str]:
        """Of the function that computes one element of every tensor."""
        total = [f"{self.scalar} {self.start.factor}"] if self.start.factor else []
        tensors = [tensor.reference for tensor in self.of_element]
        return [*tensors, *self.scalar_parameters(self.start.element_scalars), *total]

    @property
    def of_element(self) -> list[TensorView]:
        """The tensors that the function for one element takes."""
        rows = ("element", "column", "table")
        return [t for t in self.tensors if t.kind in rows or (t.kind == "number" and t.role == "in")]

    @property
    def of_term(self) -> list[TensorView]:
        """The tensors that the function for what is summed takes."""
        return [tensor for tensor in self.tensors if tensor.name in self.start.term_tensors]

    @property
    def of_row(self) -> list[TensorView]:
        """The tensors that the function for what becomes of a sum takes."""
        return [tensor for tensor in self.tensors if tensor.name in self.start.row_tensors]

    @property
    def row_parameters(self) -> list[str]:
        tensors = [tensor.reference for tensor in self.of_row]
        sums = [f"{self.scalar} row_total", f"{self.scalar} row_size"]
        return [*sums, *tensors, *self.scalar_parameters(self.start.row_scalars)]

    def scalar_parameters(self, names: Sequence[str] | None = None) -> list[str]:
        chosen = [s for s in self.signature.scalars if names is None or s.name in names]
        return [f"{self.scalar_type(scalar)} {scalar.name}" for scalar in chosen]

    @property
    def launch_arguments(self) -> list[str]:
        """Behind the kernel: a launch converts them to the kernel's parameters."""
        tensors = [tensor.data if tensor.optional else f"{tensor.name}.data_ptr()" for tensor in self.tensors]
        return [*tensors, *self.scalar_names(), "numel"]

    @property
    def call_arguments(self) -> list[str]:
        return [*(tensor.data for tensor in self.tensors), *self.scalar_names(), self.numel]

    @property
    def vector_arguments(self) -> list[str]:
        tensors = [f"{t.name}_vec[j]" if t.role == "out" else f"{t.name}_vec[i][j]" for t in self.tensors]
        return tensors + self.scalar_names("params.")

    @property
    def scalar_arguments(self) -> list[str]:
        return [*(tensor.at(f"params.{tensor.name}", "at") for tensor in self.tensors), *self.scalar_names("params.")]

    @property
    def staged_arguments(self) -> list[str]:
        """The arguments of the function for one element, of what is staged."""
        return [*self._staged(self.of_element), *self._element_numbers("")]

    @property
    def staged_term_arguments(self) -> list[str]:
        """Those of the function for what is summed, of rows that are staged."""
        return self._staged(self.of_term)

    @staticmethod
    def _staged(tensors: Sequence[TensorView]) -> list[str]:
        return [f"{t.name}_row" if t.kind == "number" else t.at(f"{t.name}_data", "i") for t in tensors]

    def staged_class(self, tensor: TensorView, name: str = "Staged") -> str:
        """What holds some elements of a tensor: converted, where the function for one element is a template over their
        type."""
        arguments = [tensor.pointee, *(["false"] if tensor.role == "out" else [])]
        if tensor.element == "fp16_t":
            arguments = [tensor.pointee, "false" if tensor.role == "out" else "true", tensor.pointee]
        return f"{name}<{', '.join(arguments)}>"

    def staged_pointee(self, tensor: TensorView) -> str:
        """The type of the elements in it."""
        return f"staged_t<{tensor.pointee}>" if tensor.element in self.signature.variables else tensor.pointee

    @property
    def staged_args(self) -> str:
        """The same function's template arguments."""
        names = [f"staged_t<{variable}>" for variable in self.signature.variables]
        names += [constant.name for constant in self.signature.constants]
        return f"<{', '.join(names)}>" if names else ""

    def scalar_names(self, prefix: str = "", names: Sequence[str] | None = None) -> list[str]:
        return [f"{prefix}{s.name}" for s in self.signature.scalars if names is None or s.name in names]

    def term_arguments(self, element: str, index: str = "") -> list[str]:
        """The arguments of the function for what is summed: `element` follows a tensor's name, or an index."""
        return [self._row_element(t, index) if index else f"{t.name}{element}" for t in self.of_term]

    def _row_element(self, tensor: TensorView, index: str) -> str:
        pointer = f"params.{tensor.name}" if tensor.kind == "column" else f"{tensor.name}_row"
        return tensor.at(pointer, index)

    @property
    def row_call(self) -> list[str]:
        """The arguments of the function for what becomes of a row's sum."""
        tensors = [f"{tensor.name}_row" for tensor in self.of_row]
        count = f"static_cast<{self.scalar}>(params.row_size)"
        return ["row_total", count, *tensors, *self.scalar_names("params.", self.start.row_scalars)]

    @property
    def element_call_vectors(self) -> list[str]:
        """The arguments of the function for one element, which are parts of vectors."""
        tensors = []
        for tensor in self.of_element:
            part = "" if tensor.role == "out" else "[i % kColumns]" if tensor.kind == "column" else "[i]"
            tensors.append(f"{tensor.name}_row" if tensor.kind == "number" else f"{tensor.name}_vec{part}[j]")
        return [*tensors, *self._element_numbers("params.")]

    @property
    def element_call_singles(self) -> list[str]:
        """The same for an element in memory."""
        tensors = [f"{t.name}_row" if t.kind == "number" else self._row_element(t, "at") for t in self.of_element]
        return [*tensors, *self._element_numbers("params.")]

    def _element_numbers(self, prefix: str) -> list[str]:
        factor = [self.start.factor] if self.start.factor else []
        return [*self.scalar_names(prefix, self.start.element_scalars), *factor]

    def _cpu_element(self, tensor: TensorView) -> str:
        if tensor.kind == "number":
            return f"{tensor.name}_row"
        return tensor.at(f"{tensor.name}_ptr" if tensor.kind == "column" else f"{tensor.name}_row", "i")

    @property
    def cpu_row_call(self) -> list[str]:
        tensors = [f"{tensor.name}_row" for tensor in self.of_row]
        size = f"static_cast<{self.scalar}>(row_size)"
        return ["row_total", size, *tensors, *self.scalar_names("", self.start.row_scalars)]

    @property
    def cpu_element_call(self) -> list[str]:
        return [*(self._cpu_element(tensor) for tensor in self.of_element), *self.scalar_names()]

    @property
    def cpu_zero_call(self) -> list[str]:
        """The same where the table has no such row."""
        tensors = [f"{t.name}_zero" if t.kind == "table" else self._cpu_element(t) for t in self.of_element]
        return [*tensors, *self.scalar_names()]

    @property
    def gather_call(self) -> list[str]:
        """The arguments of the function for one element: vectors that were read before, or right now."""
        tensors = []
        for tensor in self.of_element:
            part = "" if tensor.role == "out" or tensor.kind == "column" else "[i]"
            tensors.append(f"{tensor.name}_row" if tensor.kind == "number" else f"{tensor.name}_vec{part}[j]")
        return [*tensors, *self.scalar_names("params.")]

    @property
    def vector_pointers(self) -> list[str]:
        return [f"params.{tensor.name}" for tensor in self.of("element", "column", "table")]

    @property
    def parts(self) -> int:
        """How many vectors of its row a thread holds, so that those of all inputs fit into its registers."""
        held = len(self.of("element", roles=("in", "mut"))) + len(self.of("column"))
        return 4 if held <= 2 else 2 if held <= 4 else 1

    @property
    def long_parts(self) -> int:
        """The same where rows are long and columns are not held."""
        held = len(self.of("element", roles=("in", "mut")))
        held += 0 if self.start.writes_rows else len(self.of("column"))
        return 8 if held == 1 else 4 if held == 2 else 2 if held <= 4 else 1

    @property
    def chunk_parts(self) -> int:
        """The same where rows are too long for the registers of a block, and addresses take more of them."""
        inputs = len(self.of("element", roles=("in", "mut")))
        return self.long_parts if inputs == 1 else self.parts

    @property
    def row_pointers(self) -> list[str]:
        return [f"params.{tensor.name}" for tensor in self.of("element")]

    @property
    def column_pointers(self) -> list[str]:
        return [f"params.{tensor.name}" for tensor in self.of("column")]

    @property
    def pointers(self) -> list[str]:
        return [f"params.{tensor.name}" for tensor in self.tensors]

    @property
    def elements(self) -> list[str]:
        """The element types that vectors are made of, each once."""
        return list(dict.fromkeys(t.element for t in self.tensors if t.kind in ("element", "column", "table")))

    @property
    def numel(self) -> str:
        return "shape.numel()" if self._main.shape == (ELLIPSIS,) else f"{self._main.name}.numel()"

    @property
    def _main(self) -> Tensor:
        """The tensor that says how much there is to do."""
        always = [tensor for tensor in self.signature.tensors if not tensor.optional]
        return next(tensor for tensor in always if self.kinds[tensor.name] == "element")

    @property
    def leading(self) -> tuple[Dimension, ...]:
        """The dimensions that count the rows."""
        index = next((t for t in self.signature.inputs if self.kinds[t.name] == "index"), None)
        return self._main.shape[:-1] if index is None else index.shape

    @property
    def num_rows(self) -> str:
        return _product(self.leading)

    @property
    def row_size(self) -> str:
        return _product(self._main.shape[len(self.leading) :])

    @property
    def table_size(self) -> str:
        table = next(t for t in self.signature.inputs if self.kinds[t.name] == "table")
        return _product(table.shape[:1])

    @property
    def has_ellipsis(self) -> bool:
        return any(ELLIPSIS in tensor.shape for tensor in self.signature.tensors)

    @property
    def shape_name(self) -> str:
        """What a message calls the dimensions that `...` stands for."""
        return "shape" if all(t.shape in ((), (ELLIPSIS,)) for t in self.signature.tensors) else ELLIPSIS

    @property
    def dimension_symbols(self) -> str:
        return ", ".join(f'{name}{{"{name}"}}' for name in self.signature.dimensions)

    @property
    def checks(self) -> list[Check]:
        """The matchers: one for each shape and element type, and one for each tensor that may be absent."""
        checks: dict[tuple[str, str], Check] = {}
        absent: list[Check] = []
        for tensor, view in zip(self.signature.tensors, self.tensors, strict=True):
            shape = _matcher_shape(tensor.shape)
            if tensor.optional:
                verify = f'verify({view.name}.value(), "{view.name}")'
                absent.append(Check(shape, view.element, [verify], f"{view.name}.has_value()"))
            else:
                check = checks.setdefault((shape, view.element), Check(shape, view.element, []))
                check.verifies.append(f'verify({view.name}, "{view.name}")')
        return [*checks.values(), *absent]

    def assignments(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """The math of these results, what is changed in place last: left and right side."""
        views = sorted((t for t in self.tensors if t.name in names), key=lambda tensor: tensor.role == "mut")
        return [
            (t.name if t.role == "mut" else f"const {t.compute} {t.name}", self.start.expression(t.name, "cpp"))
            for t in views
        ]


def _argument(tensor: Tensor) -> str:
    return "Optional<TensorView>" if tensor.optional else "TensorView"


def _product(sizes: Sequence[Dimension]) -> str:
    """The product of dimensions, as an expression of what the checks have read off."""
    names = ["shape.numel()" if d == ELLIPSIS else f"{d}.unwrap()" if isinstance(d, str) else str(d) for d in sizes]
    return " * ".join(names) or "1"


def _matcher_shape(shape: tuple[Dimension, ...]) -> str:
    """As a matcher takes it: `shape`, `{B, D}` or `shape, {D}`."""
    sizes = "{" + ", ".join(str(dimension) for dimension in shape if dimension != ELLIPSIS) + "}"
    if ELLIPSIS not in shape:
        return sizes
    return "shape" if len(shape) == 1 else f"shape, {sizes}"


@dataclass(frozen=True)
class PythonView:
    """An op in Python: its wrapper, test and benchmark.

    Args:
        signature: of the op.
        kinds: what its tensors are to the kernel.
        start: what it computes.
        dtypes: what the dtype variables stand for.
    """

    signature: Signature
    kinds: Kinds
    start: Start
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
        return [*dtypes, *(c.name for c in self.signature.constants), f"device={self.first}"]

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
    def optional(self) -> list[str]:
        """The inputs that may be absent."""
        return [tensor.name for tensor in self.signature.inputs if tensor.optional]

    @property
    def results(self) -> list[str]:
        """The tensors that a call writes to: outputs, then what is changed in place."""
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
    def allocations(self) -> list[tuple[str, list[str]]]:
        """For each output, the function that makes one and its arguments."""
        return [self._allocation(output) for output in self.signature.outputs]

    def _allocation(self, output: Tensor) -> tuple[str, list[str]]:
        always = [tensor for tensor in self.signature.inputs if not tensor.optional]
        alike = [tensor for tensor in always if tensor.shape == output.shape]
        same = next((tensor for tensor in alike if tensor.dtype == output.dtype), None)
        if same is not None:
            return "torch.empty_like", [same.name]
        if isinstance(output.dtype, str):
            dtype = f"{self.owner(output.dtype).name}.dtype"
        else:
            dtype = f"torch.{output.dtype.name}"
        if alike:
            return "torch.empty_like", [alike[0].name, f"dtype={dtype}"]
        source = self.owner(output.dtype) if isinstance(output.dtype, str) else always[0]
        typed = [] if source.dtype == output.dtype else [f"dtype={dtype}"]
        return f"{source.name}.new_empty", [self._sizes(output.shape, always), *typed]

    def _sizes(self, shape: tuple[Dimension, ...], inputs: Sequence[Tensor]) -> str:
        """A shape as an expression of the inputs' shapes."""
        whole = [tensor.name for tensor in inputs if tensor.shape[:-1] == shape and shape]
        if whole:
            return f"{whole[0]}.shape[:-1]"
        sizes = []
        for dimension in shape:
            if isinstance(dimension, int):
                sizes.append(str(dimension))
                continue
            # The `...` from the tensor that has the least besides it.
            having = [tensor for tensor in inputs if dimension in tensor.shape]
            owner = min(having, key=lambda tensor: len(tensor.shape) if dimension == ELLIPSIS else 0)
            behind = len(owner.shape) - 1
            if dimension == ELLIPSIS:
                sizes.append(f"*{owner.name}.shape" + (f"[:-{behind}]" if behind else ""))
            else:
                place = owner.shape.index(dimension)
                sizes.append(f"{owner.name}.shape[{place - len(owner.shape) if ELLIPSIS in owner.shape else place}]")
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    @property
    def allocation_arguments(self) -> list[str]:
        """The inputs that the outputs are made after."""
        text = " ".join(" ".join([function, *arguments]) for function, arguments in self.allocations)
        words = set(re.findall(r"\w+", text))
        return [tensor.name for tensor in self.signature.inputs if tensor.name in words]

    @property
    def allocation_parameters(self) -> list[str]:
        return [f"{name}: torch.Tensor" for name in self.allocation_arguments]

    @property
    def math(self) -> list[str]:
        """What `reference` returns, an expression for each result."""
        return [self.start.expression(name, "python") for name in self.results]

    @property
    def documentation(self) -> list[str]:
        """A sentence for each parameter."""
        overlap = "It must not overlap an input."
        if "table" not in self.kinds.values():
            overlap = "It may be an input itself, and must not overlap one otherwise."
        return [f"{p.name}: {_describe(p, self.kinds)}." for p in self.signature.parameters] + [
            f"{output.name}: {output.type}; takes the result and is returned. Allocated when None. {overlap}"
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
    def written(self) -> list[str]:
        """What a call writes to, in the dictionary of its arguments."""
        return [f'inputs["{name}"]' for name in self.results]

    @property
    def in_place(self) -> tuple[str, str] | None:
        """An input, and the output that may be the same tensor."""
        for output in self.signature.outputs:
            for tensor in self.signature.inputs:
                alike = tensor.dtype == output.dtype and tensor.shape == output.shape
                if alike and self.kinds[tensor.name] == "element" and not (tensor.mutable or tensor.optional):
                    return tensor.name, output.name
        return None

    @property
    def shape_checked(self) -> list[str]:
        """The tensors that one dimension more is an error for: not for what alone says what `...` stands for."""
        open_ended = [tensor.name for tensor in self.signature.tensors if ELLIPSIS in tensor.shape]
        return [name for name in self.tensors if open_ended != [name]]

    @property
    def main(self) -> Tensor:
        """The tensor whose shape all others follow from."""
        always = [tensor for tensor in self.signature.tensors if not tensor.optional]
        return next(tensor for tensor in always if self.kinds[tensor.name] == "element")

    @property
    def row_rank(self) -> int:
        """Dimensions of the main tensor that a row has; 0 where there are no rows, or rows of one element."""
        index = next((t for t in self.signature.inputs if self.kinds[t.name] == "index"), None)
        if index is not None:
            return len(self.main.shape) - len(index.shape)
        return 1 if self.start.sums else 0

    def shape_of(self, tensor: Tensor) -> str:
        """The expression for a tensor's shape, where `shape` is that of the main tensor."""
        kind, rank = self.kinds[tensor.name], self.row_rank
        if kind == "column":
            return f"shape[-{rank}:]"
        if kind in ("number", "index"):
            return f"shape[:-{rank}]" if rank else "shape"
        if kind == "table":
            size = tensor.shape[0] if isinstance(tensor.shape[0], int) else "rows"
            return f"({size}, *shape[-{rank}:])" if rank else f"({size},)"
        return "shape"

    @property
    def table(self) -> Tensor | None:
        return next((t for t in self.signature.inputs if self.kinds[t.name] == "table"), None)

    @property
    def index(self) -> Tensor | None:
        return next((t for t in self.signature.inputs if self.kinds[t.name] == "index"), None)

    @property
    def table_rows(self) -> str:
        """How many rows the table of a test has: as many as are chosen, at least one."""
        if self.table is not None and isinstance(self.table.shape[0], int):
            return str(self.table.shape[0])
        return f"max(1, math.prod({self.shape_of(self.index)}))" if self.index is not None else ""

    def _filled(self, values: Mapping[Dimension, str], other: str) -> str:
        """The main shape with these sizes for some of its dimensions."""
        items = [values.get(d, str(d) if isinstance(d, int) else other) for d in self.main.shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    @property
    def _free(self) -> list[Dimension]:
        """The dimensions that can grow by themselves: of one that is there twice, the size would be squared."""
        shape = self.main.shape
        return [d for d in shape if isinstance(d, str) and shape.count(d) == 1]

    @property
    def _free_of_row(self) -> list[Dimension]:
        return [d for d in self._free if d in self.main.shape[len(self.main.shape) - self.row_rank :]]

    @property
    def sized_shapes(self) -> list[str]:
        """Shapes that grow with `size`; nothing where no dimension can grow by itself."""
        rows = [d for d in self._free if d not in self._free_of_row]
        if not self.row_rank:
            return [self._filled({rows[-1]: "size"}, "1")] if rows else []
        shapes = [self._filled({self._free_of_row[-1]: "size"}, "3")] if self._free_of_row else []
        if rows and (self.index is not None or not shapes):
            shapes.append(self._filled({rows[-1]: "size"}, "5"))
        return shapes

    @property
    def past_shape(self) -> str:
        """The shape of a tensor with `size` rows that together are more than an int can count."""
        rows = [d for d in self._free if d not in self._free_of_row]
        if not rows or self.main.shape[0] != rows[0]:
            return ""
        return self._filled({rows[0]: "size", **dict.fromkeys(self._free_of_row[-1:], "1024")}, "1")

    @property
    def past_columns(self) -> int:
        """The elements of each of those rows."""
        return self.fixed_elements * (1024 if self._free_of_row else 1)

    @property
    def past_ends(self) -> list[str]:
        """The arguments for the last rows of it."""
        ends = [t.name for t in self.signature.inputs if self.kinds[t.name] in ("element", "number", "index")]
        return [f'"{name}": inputs["{name}"][-9:]' for name in ends]

    @property
    def tables(self) -> list[str]:
        return [tensor.name for tensor in self.signature.inputs if self.kinds[tensor.name] == "table"]

    @property
    def smallest(self) -> int:
        """The smallest size to test: the mean of no elements is no number, and as an integer it is nothing certain."""
        rows = [result for result in self.start.results if result.name in self.start.row_results]
        dtypes = [d for r in rows for d in (self.dtypes if isinstance(r.dtype, str) else [r.dtype])]
        return int(any(dtype.kind != "float" for dtype in dtypes))

    @property
    def bench_axis(self) -> Literal["elements", "columns", "rows"]:
        """What grows in the benchmark: the tensor, the length of its rows, or their number."""
        if not self.row_rank:
            return "elements"
        return "columns" if self.start.sums and self._free_of_row else "rows"

    @property
    def bench_shape(self) -> str:
        """The main shape in the benchmark, for a `size`; nothing where it cannot grow."""
        rows = [d for d in self._free if d not in self._free_of_row]
        if self.bench_axis == "elements":
            size = "size" if self.fixed_elements == 1 else f"size // {self.fixed_elements}"
            return self._filled({rows[-1]: size}, "1") if rows else ""
        sizes: dict[Dimension, str] = {}
        if self._free_of_row:
            sizes[self._free_of_row[-1]] = "size" if self.bench_axis == "columns" else "COLUMNS"
        if rows:
            sizes[rows[0]] = "ROWS" if self.bench_axis == "columns" else "size"
        return self._filled(sizes, "1") if rows or self.bench_axis == "columns" else ""

    @property
    def fixed_elements(self) -> int:
        """The product of the dimensions that are numbers."""
        return math.prod(dimension for dimension in self.main.shape if isinstance(dimension, int))

    @property
    def other_shapes(self) -> list[str]:
        """Shapes of another kind than `sized_shapes`, for the test."""
        shape = self.main.shape
        row = shape[len(shape) - self.row_rank :]
        if shape == (ELLIPSIS,):
            return ["()", "(3, 5, 7)", "(2, 0, 3)"]
        if ELLIPSIS in shape:
            rest = tuple(d if isinstance(d, int) else 5 for d in shape[1:])
            return [repr(rest), repr((3, 4, *rest)), repr((2, 0, *rest))]
        named = list(dict.fromkeys(dimension for dimension in shape if isinstance(dimension, str)))
        if len(named) < 2:
            return [] if named else [repr(shape)]
        primes = dict(zip(named, (3, 5, 7, 2, 11, 13), strict=False))
        if row:
            primes[named[0]] = 1001
        shapes = [tuple(primes.get(str(d), 2) if isinstance(d, str) else d for d in shape)]
        for empty in (named[0], *([named[-1]] if row and not self.smallest else [])):
            shapes.append(tuple(0 if d == empty else size for d, size in zip(shape, shapes[0], strict=True)))
        return [repr(entry) for entry in shapes]

    @property
    def sample_shape(self) -> str:
        """A shape for tests that need one that is not special."""
        shape = self.main.shape
        if shape == (ELLIPSIS,) or len(shape) == 1:
            return repr(shape) if isinstance(shape[0], int) else "(1001,)"
        sizes = iter((7, 143, 5, 3, 2, 2, 2, 2))
        known: dict[str, int] = {}
        return repr(tuple(d if isinstance(d, int) else known.setdefault(d, next(sizes)) for d in shape))

    @property
    def sample_arguments(self) -> list[tuple[str, str]]:
        """The parameters with a value for a test: tensors of some shape, and numbers that are no defaults."""
        return [
            (p.name, self._sample_tensor(p) if isinstance(p, Tensor) else _sample(p)) for p in self.signature.parameters
        ]

    def _sample_tensor(self, tensor: Tensor) -> str:
        if self.kinds[tensor.name] == "index":
            return f"choose(rows, {self.shape_of(tensor)}, {self.dtype_of(tensor)}, device)"
        return f"make({self.shape_of(tensor)}, {self.dtype_of(tensor)}, device)"

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
    def has_integers(self) -> bool:
        """Whether PyTorch could not take the mean of an input."""
        fixed = [tensor.dtype for tensor in self.signature.inputs if isinstance(tensor.dtype, DType)]
        possible = [*fixed, *(self.dtypes if self.signature.variables else ())]
        return self.start.sums and any(dtype.kind == "int" for dtype in possible)

    @property
    def has_integer_results(self) -> bool:
        """Whether a result is cut off to a whole number after a computation in floating point."""
        dtypes: list[DType] = []
        for result in self.start.results:
            dtypes += self.dtypes if isinstance(result.dtype, str) else [result.dtype]
        return self.start.sums and any(dtype.kind == "int" for dtype in dtypes)

    @property
    def bytes_moved(self) -> list[str]:
        """Bytes read and written, as terms: the elements, columns and rows of the benchmark, times their sizes."""
        counts: dict[tuple[str, str], int] = {}
        names = {"element": "elements", "table": "elements", "column": "columns", "number": "rows", "index": "rows"}
        for tensor in self.signature.tensors:
            size = str(tensor.dtype.bytes) if isinstance(tensor.dtype, DType) else f"{self.dtype_of(tensor)}.itemsize"
            key = names[self.kinds[tensor.name]], size
            counts[key] = counts.get(key, 0) + (2 if tensor.mutable else 1)
        terms = []
        for name in ("elements", "columns", "rows"):
            sizes = {size: count for (of, size), count in counts.items() if of == name}
            if sizes:
                terms.append(f"{self._bench_count(name)} * {_sum_of_sizes(sizes)}")
        return terms

    def _bench_count(self, name: str) -> str:
        """How many elements, columns or rows there are in the benchmark."""
        if self.bench_axis == "elements":
            return "size"
        split = len(self.main.shape) - self.row_rank
        columns = self._bench_factors(self.main.shape[split:], self._free_of_row[-1:])
        rows = self._bench_factors(self.main.shape[:split], [d for d in self._free if d not in self._free_of_row][:1])
        chosen = {"rows": rows, "columns": columns}.get(name, [*rows, *columns])
        return " * ".join(chosen) or "1"

    def _bench_factors(self, shape: tuple[Dimension, ...], free: list[Dimension]) -> list[str]:
        numbers = [str(dimension) for dimension in shape if isinstance(dimension, int)]
        of_row = free == self._free_of_row[-1:] and bool(free)
        if of_row:
            return ["size" if self.bench_axis == "columns" else "COLUMNS", *numbers]
        return (["ROWS" if self.bench_axis == "columns" else "size"] if free else []) + numbers

    @property
    def bench_constant(self) -> str:
        """What is fixed in the benchmark."""
        text = f"{self.bench_shape} {' '.join(self.bytes_moved)}"
        return next((name for name in ("ROWS", "COLUMNS") if re.search(rf"\b{name}\b", text)), "")


def _sum_of_sizes(sizes: Mapping[str, int]) -> str:
    fixed = sum(int(size) * count for size, count in sizes.items() if size.isdecimal())
    terms = [f"{count} * {size}" if count > 1 else size for size, count in sizes.items() if not size.isdecimal()]
    terms += [str(fixed)] if fixed else []
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _python_type(parameter: Parameter) -> str:
    if isinstance(parameter, Scalar):
        return parameter.kind
    return "torch.Tensor | None" if parameter.optional else "torch.Tensor"


def _python_parameter(parameter: Parameter) -> str:
    default = ""
    if isinstance(parameter, Tensor):
        default = " = None" if parameter.optional else ""
    elif parameter.default is not None:
        default = f" = {parameter.default!r}"
    return f"{parameter.name}: {_python_type(parameter)}{default}"


def _describe(parameter: Parameter, kinds: Kinds) -> str:
    if isinstance(parameter, Tensor):
        changed = "; changed in place" if parameter.mutable else ""
        absent = "; None counts as zeros" if parameter.optional else ""
        is_index = kinds[parameter.name] == "index"
        outside = ". A number that is no row of the table reads zeros" if is_index else ""
        return f"{parameter.type}, contiguous{changed}{absent}{outside}"
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
