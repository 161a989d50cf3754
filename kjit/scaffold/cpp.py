"""The C++ code of an op.

A template should read like the file that it makes. So what takes thought (the C++ type of a number that meets elements
of type T, the arguments of a call) is worked out here, and a template only places it. What is computed is in
`start.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kjit.dtypes import DType
from kjit.projects.op_names import camel
from kjit.scaffold.patterns import Kind
from kjit.scaffold.start import View
from kjit.signature.signature import ELLIPSIS, Dimension, Scalar, Signature, Tensor, words_of
from kjit.signature.sizes import Size

Role = Literal["in", "mut", "out"]


@dataclass(frozen=True)
class TensorView:
    """A tensor in C++.

    Args:
        name: of the parameter.
        role: read, changed in place, or written.
        kind: its role in the pattern.
        element: the type of its elements, `T` or `fp16_t`.
        compute: the type that arithmetic on them is done in, `compute_t<T>` or `float`.
        optional: it may be None, and is then read as zeros.
        listed: a list of tensors.
    """

    name: str
    role: Role
    kind: Kind
    element: str
    compute: str
    optional: bool
    listed: bool = False

    @property
    def pointee(self) -> str:
        """The pointee of a pointer to its data."""
        return f"const {self.element}" if self.role == "in" else self.element

    @property
    def operand(self) -> str:
        """Its role in the call of a pattern: `In`, `OptionalPerColumn`."""
        read = {"element": "In", "column": "PerColumn", "number": "PerRow", "table": "Table", "index": "Index"}[
            self.kind
        ]
        if self.role == "in":
            return f"Optional{read}" if self.optional else read
        return f"{self.role.capitalize()}{ {'number': 'PerRow', 'table': 'Table'}.get(self.kind, '') }"

    @property
    def parameters(self) -> list[str]:
        """The parameters of the math for it: a value if it is read, a reference if it is written."""
        if self.kind == "halves":
            return [f"{self.compute} {self.name}_left", f"{self.compute} {self.name}_right"]
        return [f"{self.compute}{'' if self.role == 'in' else '&'} {self.name}"]

    @property
    def data(self) -> str:
        """The pointer to its data, on the host."""
        if self.optional:
            return f"data_of<{self.pointee}>({self.name})"
        return f"static_cast<{self.pointee}*>({self.name}.data_ptr())"

    def at(self, pointer: str, index: str) -> str:
        """The element at an index."""
        return f"element_or_zero({pointer}, {index})" if self.optional else f"{pointer}[{index}]"


@dataclass(frozen=True)
class Member:
    """A member of the op's struct or of its kernel's parameters, and the host's expression for it."""

    name: str
    type: str
    value: str
    comment: str = ""


@dataclass(frozen=True)
class Check:
    """Tensors of one shape and element type, verified by one matcher."""

    shape: str
    element: str
    verifies: list[str]
    condition: str = ""
    strides: str = ""
    is_written: bool = False


@dataclass(frozen=True)
class CppView(View):
    """An op in C++.

    Args:
        start: its math.
        op: its name.
    """

    op: str
    tensors: tuple[TensorView, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(self._tensor_view(tensor) for tensor in self.signature.tensors))

    def _tensor_view(self, tensor: Tensor) -> TensorView:
        role: Role = "out" if tensor in self.signature.outputs else "mut" if tensor.mutable else "in"
        kind = self.placed.kind(tensor)
        if kind == "table" and tensor.mutable:  # its rows are written and not read
            role = "out"
        if isinstance(tensor.dtype, str):
            element, compute = tensor.dtype, f"compute_t<{tensor.dtype}>"
        else:
            element = compute = tensor.dtype.cpp
            if tensor.dtype.kind == "float" and tensor.dtype.bytes <= 4:
                compute = "float"
        if self.start.moves:  # moved as bits
            compute = element
        return TensorView(tensor.name, role, kind, element, compute, tensor.optional, tensor.listed)

    @property
    def has_optional(self) -> bool:
        return any(tensor.optional for tensor in self.tensors)

    @property
    def headers(self) -> list[str]:
        """kjit's headers for a CUDA kernel; narrow types need one that others do not."""
        dtypes = [tensor.dtype for tensor in self.signature.tensors if isinstance(tensor.dtype, DType)]
        is_narrow = any(dtype.kind == "float" and dtype.bytes < 4 for dtype in dtypes)
        return ["tensor.h", "utils.cuh"] if is_narrow else ["launch.h", "tensor.h", "device.cuh"]

    @property
    def lists(self) -> list[str]:
        return [tensor.name for tensor in self.tensors if tensor.listed]

    @property
    def template_parameters(self) -> list[str]:
        types = {"bool": "bool", "int": "int64_t"}
        constants = [f"{types.get(c.kind) or choice_type(self.op, c.name)} {c.name}" for c in self.signature.constants]
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
    def scalar(self) -> str:
        """The type of floating-point scalars, and of sums."""
        if any(tensor.element == "double" for tensor in self.tensors):
            return "double"
        return f"scalar_t<{', '.join(self.signature.variables)}>" if self.signature.variables else "float"

    def scalar_type(self, scalar: Scalar) -> str:
        """The type of a run-time scalar in the kernel."""
        if scalar.kind != "float":
            return "bool" if scalar.kind == "bool" else "int64_t"
        return self.scalar

    @property
    def run_parameters(self) -> list[str]:
        """The parameters of the exported function, outputs last."""
        parameters = [
            f"{_exported(p) if isinstance(p, Scalar) else _argument(p)} {p.name}"
            for p in self.signature.parameters
            if isinstance(p, Tensor) or not p.constant
        ]
        return parameters + [f"TensorView {output.name}" for output in self.signature.outputs]

    @property
    def members(self) -> list[Member]:
        """The members of the op's struct: its run-time scalars."""
        members = []
        for s in self.signature.scalars:
            if s.kind == "str":  # for the host only
                continue
            kind = self.scalar_type(s)
            given = f"{s.name}.value()" if s.optional else s.name
            value = f"static_cast<{kind}>({given})" if s.kind == "float" else given
            if s.optional:
                members.append(Member(f"has_{s.name}", "bool", f"{s.name}.has_value()"))
                value = f"{s.name}.has_value() ? {value} : {kind}{{}}"
            members.append(Member(s.name, kind, value))
        return members

    @property
    def choices(self) -> list[tuple[str, str, str]]:
        """Each choice: its name, its type, and the words."""
        choices = (c for c in self.signature.constants if c.kind == "choice")
        return [(c.name, choice_type(self.op, c.name), ", ".join(c.choices)) for c in choices]

    def math_value(self, struct: str) -> str:
        """The op's struct as an argument: a variable if it has several members."""
        if len(self.members) > 1:
            return "math"
        return f"{struct}{{{''.join(member.value for member in self.members)}}}"

    @property
    def math_parameters(self) -> list[str]:
        """The parameters of `element`: the row's value, a value for each tensor that is read, a reference for each
        that is written."""
        of_row = [f"{self.scalar} {self.start.factor}"] if self.start.factor else []
        return of_row + [each for tensor in self._in_call if not _is_of_row(tensor) for each in tensor.parameters]

    @property
    def term_parameters(self) -> list[str]:
        """The parameters of `term`."""
        return [f"{tensor.compute} {tensor.name}" for tensor in self.of_term]

    @property
    def row_parameters(self) -> list[str]:
        """The parameters of `row`."""
        tensors = [tensor for tensor in self._in_call if tensor.name in self.start.row_tensors]
        return [f"{self.scalar} row_total", f"{self.scalar} row_size", *(tensor.parameters[0] for tensor in tensors)]

    @property
    def inverse_rms(self) -> str:
        """The result of `row`, from the sum of a row."""
        small = {"float": "1e-6f", "double": "1e-6"}.get(self.scalar, f"{self.scalar}(1e-6)")
        return f"rsqrt(row_total / row_size + {self.start.eps or small})"

    @property
    def of_term(self) -> list[TensorView]:
        """The tensors that are summed."""
        return [tensor for tensor in self._in_call if tensor.name in self.start.term_tensors]

    @property
    def operands(self) -> list[str]:
        """The tensors in the call of a pattern: `In<T>(x)`."""
        return [operand for tensor in self._in_call for operand in _operands(tensor)]

    @property
    def _in_call(self) -> list[TensorView]:
        """The tensors that a pattern is called with. Where rows are summed, tensors that `term` or `row` leave out
        come last."""
        if not self.start.sums:
            return [tensor for tensor in self.tensors if tensor.kind != "index"]
        row_leaves_out = any(t.kind == "number" and t.name not in self.start.row_tensors for t in self.tensors)

        def place(tensor: TensorView) -> int:
            if tensor.role == "in":
                return {"element": 0, "column": 1}.get(tensor.kind, 3)
            if tensor.kind == "number":
                return 2 if row_leaves_out else 4
            return 0 if tensor.role == "mut" else 4

        return sorted(self.tensors, key=place)

    @property
    def indices(self) -> list[str]:
        """The index in the call of a pattern: `Index<int64_t>(index)`."""
        return [operand for tensor in self.tensors if tensor.kind == "index" for operand in _operands(tensor)]

    @property
    def kernel_parameters(self) -> list[str]:
        pointers = [f"{tensor.pointee}* {tensor.name}_ptr" for tensor in self.tensors]
        scalars = [f"{self.scalar_type(scalar)} {scalar.name}" for scalar in self.signature.scalars]
        return [*pointers, *scalars, "int64_t numel"]

    @property
    def scalar_names(self) -> list[str]:
        return [scalar.name for scalar in self.signature.scalars]

    @property
    def call_arguments(self) -> list[str]:
        """The arguments of the kernel for the CPU."""
        return [*(tensor.data for tensor in self.tensors), *self.scalar_names, self.numel]

    @property
    def launch_arguments(self) -> list[str]:
        """The arguments of the kernel for a GPU; the launch converts them."""
        tensors = [tensor.data if tensor.optional else f"{tensor.name}.data_ptr()" for tensor in self.tensors]
        return [*tensors, *self.scalar_names, "numel"]

    @property
    def numel(self) -> str:
        main = self.placed.main
        return "shape.numel()" if main.shape == (ELLIPSIS,) else f"{main.name}.numel()"

    @property
    def num_rows(self) -> str:
        return _product(self.placed.leading)

    @property
    def row_size(self) -> str:
        return _product(self.placed.row)

    @property
    def table_size(self) -> str:
        return _product(self.placed.inputs("table")[0].shape[:1])

    @property
    def has_ellipsis(self) -> bool:
        return any(ELLIPSIS in tensor.shape for tensor in self.signature.tensors)

    @property
    def shape_name(self) -> str:
        """The name of the dimensions of `...` in messages."""
        return "shape" if all(t.shape in ((), (ELLIPSIS,)) for t in self.signature.tensors) else ELLIPSIS

    @property
    def dimension_symbols(self) -> list[str]:
        return [f'{name}{{"{name}"}}' for name in self.signature.dimensions]

    @property
    def checks(self) -> list[Check]:
        """The matchers: one for each shape and element type, and one for each optional tensor."""
        checks: dict[tuple[str, str, str, bool], Check] = {}
        absent: list[Check] = []
        views = {tensor.name: view for tensor, view in zip(self.signature.tensors, self.tensors, strict=True)}
        for tensor in self._in_order_of_checks():
            view, shape, strides = views[tensor.name], _matcher_shape(tensor.shape), ""
            if tensor.strided:
                strides = ", ".join(["-1"] * (len(tensor.shape) - 1) + ["1" if len(tensor.shape) > 1 else "-1"])
            written = tensor.strided and tensor.mutable
            if tensor.optional:
                verify = f'verify({view.name}.value(), "{view.name}")'
                absent.append(Check(shape, view.element, [verify], f"{view.name}.has_value()", strides, written))
            else:
                check = checks.setdefault(
                    (shape, view.element, strides, written), Check(shape, view.element, [], "", strides, written)
                )
                check.verifies.append(f'verify({view.name}, "{view.name}")')
        return [*checks.values(), *absent]

    def _in_order_of_checks(self) -> list[Tensor]:
        """The tensors in an order in which each computed size has at most one unknown name."""
        left, checked = list(self.signature.tensors), list[Tensor]()
        while left:
            known = {word for tensor in checked if not tensor.optional for d in tensor.shape for word in words_of(d)}
            known |= {constant.name for constant in self.signature.constants}

            def is_ready(tensor: Tensor, known: set[str] = known) -> bool:
                sizes = [d for d in tensor.shape if isinstance(d, Size)]
                alone = known | {d for d in tensor.shape if isinstance(d, str)}
                return all(len([word for word in size.words if word not in alone]) <= 1 for size in sizes)

            ready = next((tensor for tensor in left if is_ready(tensor)), left[0])
            left.remove(ready)
            checked.append(ready)
        return checked

    def in_order(self, names: Sequence[str]) -> list[str]:
        """These results in the order of their computation: tensors changed in place last."""
        views = sorted((t for t in self.tensors if t.name in names), key=lambda tensor: tensor.role == "mut")
        return [tensor.name for tensor in views]

    @property
    def assignments(self) -> list[tuple[str, str]]:
        """The assignments of an element in pattern minimal: left and right sides."""
        views = {tensor.name: tensor for tensor in self.tensors}
        return [
            (
                name if views[name].role == "mut" else f"const {views[name].compute} {name}",
                self.start.expression(name, "cpp"),
            )
            for name in self.in_order(self.start.element_results)
        ]


def _is_of_row(tensor: TensorView) -> bool:
    """Whether it is written once per row."""
    return tensor.kind == "number" and tensor.role != "in"


def _operands(tensor: TensorView) -> list[str]:
    if tensor.kind == "halves":
        return [f"{half}(In<{tensor.element}>({tensor.name}), sizes)" for half in ("left_half", "right_half")]
    return [f"{tensor.operand}<{tensor.element}>({tensor.name})"]


def max_listed(signature: Signature) -> int:
    """The most tensors in a list: all lists take 3 KiB of the 4 KiB of a kernel's parameters."""
    lists = sum(tensor.listed for tensor in signature.inputs)
    return 128 // -(-lists // 3)


def choice_type(op: str, name: str) -> str:
    """The enum of a choice: that of `mode` of op `pool` is `PoolMode`."""
    return f"{camel(op)}{camel(name)}"


def _exported(scalar: Scalar) -> str:
    name = {"float": "double", "int": "int64_t", "str": "StringView"}.get(scalar.kind, "bool")
    unused = "[[maybe_unused]] " if scalar.kind == "str" else ""
    return f"{unused}Optional<{name}>" if scalar.optional else f"{unused}{name}"


def _argument(tensor: Tensor) -> str:
    return "TensorListView" if tensor.listed else "Optional<TensorView>" if tensor.optional else "TensorView"


def _product(sizes: Sequence[Dimension]) -> str:
    """The product of dimensions, as an expression of the symbols that the checks bind.

    Numbers are multiplied here: in C++ their product would be an `int`, which may overflow.
    """
    number = str(math.prod(size for size in sizes if isinstance(size, int)))
    factors: list[str] = []
    for size in sizes:
        if isinstance(size, str):
            factors.append("shape.numel()" if size == ELLIPSIS else f"{size}.unwrap()")
        elif number not in factors:
            factors.append(number)
    return " * ".join(factors) or "1"


def _matcher_shape(shape: tuple[Dimension, ...]) -> str:
    """The arguments of a matcher: `shape`, `{B, D}` or `shape, {D}`."""
    written = (d.cpp() if isinstance(d, Size) else str(d) for d in shape if d != ELLIPSIS)
    sizes = "{" + ", ".join(written) + "}"
    if ELLIPSIS not in shape:
        return sizes
    return "shape" if len(shape) == 1 else f"shape, {sizes}"
