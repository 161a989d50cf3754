"""The C++ code of an op.

A template should read like the file that it makes. So what takes thought (the C++ type of a number that meets elements
of type T, the arguments of a call) is worked out here, and a template only places it. What is computed is in
`start.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from kjit.dtypes import DType
from kjit.projects.op_names import camel
from kjit.scaffold.patterns import Kind
from kjit.scaffold.start import View
from kjit.signature.signature import ELLIPSIS, Dimension, Parameter, Scalar, Signature, Tensor, words_of
from kjit.signature.sizes import Size

Role = Literal["in", "mut", "out"]


@dataclass(frozen=True)
class TensorView:
    """A tensor in C++.

    Args:
        tensor: in the signature.
        role: read, changed in place, or written.
        kind: its role in the pattern.
        element: the type of its elements, `T` or `fp16_t`.
        compute: the type that arithmetic on them is done in, `compute_t<T>` or `float`.
    """

    tensor: Tensor
    role: Role
    kind: Kind
    element: str
    compute: str

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def pointee(self) -> str:
        """The pointee of a pointer to its data."""
        return f"const {self.element}" if self.role == "in" else self.element

    @property
    def data(self) -> str:
        """The pointer to its data, on the host."""
        return f"data_of<{self.pointee}>({self.name})"

    @property
    def operands(self) -> list[str]:
        """Its arguments in the call of a pattern: `In<T>(x)`, `OptionalPerColumn<T>(bias)`."""
        if self.kind == "halves":
            return [f"{half}(In<{self.element}>({self.name}), sizes)" for half in ("left_half", "right_half")]
        where = {"column": "PerColumn", "number": "PerRow", "table": "Table", "index": "Index"}.get(self.kind, "")
        if self.role == "in":
            where = f"{'Optional' if self.tensor.optional else ''}{where or 'In'}"
        else:
            where = self.role.capitalize() + where
        return [f"{where}<{self.element}>({self.name})"]

    @property
    def parameters(self) -> list[str]:
        """The parameters of the math for it: a value if it is read, a reference if it is written."""
        if self.kind == "halves":
            return [f"{self.compute} {self.name}_left", f"{self.compute} {self.name}_right"]
        return [f"{self.compute}{'' if self.role == 'in' else '&'} {self.name}"]


@dataclass(frozen=True)
class Member:
    """A member of the op's struct or of its kernel's parameters, and the host's expression for it."""

    name: str
    type: str
    value: str
    comment: str = ""


@dataclass(frozen=True)
class CppView(View):
    """An op in C++.

    Args:
        start: its math.
        op: its name.
        dtypes: what the dtype variables stand for.
    """

    op: str
    dtypes: tuple[DType, ...]

    @cached_property
    def tensors(self) -> list[TensorView]:
        return [self._tensor_view(tensor) for tensor in self.signature.tensors]

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
        return TensorView(tensor, role, kind, element, element if self.start.moves else compute)

    @property
    def headers(self) -> list[str]:
        """kjit's headers for a CUDA kernel; narrow types need one that others do not."""
        dtypes = [tensor.dtype for tensor in self.signature.tensors if isinstance(tensor.dtype, DType)]
        is_narrow = any(dtype.kind == "float" and dtype.bytes < 4 for dtype in dtypes)
        return ["tensor.h", "utils.cuh"] if is_narrow else ["launch.h", "tensor.h", "device.cuh"]

    @property
    def lists(self) -> list[str]:
        return [tensor.name for tensor in self.signature.inputs if tensor.listed]

    @property
    def template_head(self) -> str:
        """The line `template <typename T>`; nothing for an op without variants."""
        types = {"bool": "bool", "int": "int64_t"}
        parameters = [f"typename {variable}" for variable in self.signature.variables]
        parameters += [
            f"{types.get(c.kind) or choice_type(self.op, c.name)} {c.name}" for c in self.signature.constants
        ]
        return f"template <{', '.join(parameters)}>\n" if parameters else ""

    @property
    def template_args(self) -> str:
        names = [*self.signature.variables, *(constant.name for constant in self.signature.constants)]
        return f"<{', '.join(names)}>" if names else ""

    @property
    def first_args(self) -> str:
        """The template arguments of a variant, with the first dtype: `<fp32_t, 1>`."""
        values = [self.dtypes[0].cpp] * len(self.signature.variables)
        for c in self.signature.constants:
            chosen = f"{choice_type(self.op, c.name)}::{c.choices[0]}" if c.kind == "choice" else ""
            values.append(chosen or ("true" if c.kind == "bool" else str(c.default)))
        return f"<{', '.join(values)}>"

    @property
    def scalar(self) -> str:
        """The type of floating-point scalars, and of sums."""
        if any(tensor.element == "double" for tensor in self.tensors):
            return "double"
        return f"scalar_t<{', '.join(self.signature.variables)}>" if self.signature.variables else "float"

    def _scalar_type(self, scalar: Scalar) -> str:
        """The type of a run-time scalar in the kernel."""
        return {"float": self.scalar, "bool": "bool"}.get(scalar.kind, "int64_t")

    @property
    def run_parameters(self) -> list[str]:
        """The parameters of the exported function, outputs last."""
        parameters = (*self.signature.parameters, *self.signature.outputs)
        return [f"{_argument(p)} {p.name}" for p in parameters if isinstance(p, Tensor) or not p.constant]

    @property
    def members(self) -> list[Member]:
        """The members of the op's struct: its run-time scalars."""
        members = []
        for s in self.signature.scalars:
            if s.kind == "str":  # for the host only
                continue
            kind = self._scalar_type(s)
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

    def parameters(self, function: Literal["term", "row", "element"]) -> list[str]:
        """The parameters of a function of the math."""
        tensors = self._in_call
        if function == "term":
            return [f"{tensor.compute} {tensor.name}" for tensor in tensors if tensor.name in self.start.term_tensors]
        if function == "row":
            numbers = [tensor.parameters[0] for tensor in tensors if tensor.name in self.start.row_tensors]
            return [f"{self.scalar} row_total", f"{self.scalar} row_size", *numbers]
        of_row = [f"{self.scalar} {self.start.factor}"] if self.start.factor else []
        each = [t for t in tensors if t.kind != "index" and (t.kind != "number" or t.role == "in")]
        return of_row + [parameter for tensor in each for parameter in tensor.parameters]

    @property
    def operands(self) -> list[str]:
        """The tensors in the call of a pattern: `In<T>(x)`."""
        return [operand for tensor in self._in_call for operand in tensor.operands]

    @property
    def _in_call(self) -> list[TensorView]:
        """The tensors that a pattern is called with: an index first. Where rows are summed, tensors that `term` or
        `row` leave out come last."""
        row_leaves_out = any(t.kind == "number" and t.name not in self.start.row_tensors for t in self.tensors)

        def place(tensor: TensorView) -> int:
            if not self.start.sums:
                return int(tensor.kind != "index")
            if tensor.role == "in":
                return {"element": 0, "column": 1}.get(tensor.kind, 3)
            if tensor.kind == "number":
                return 2 if row_leaves_out else 4
            return 0 if tensor.role == "mut" else 4

        return sorted(self.tensors, key=place)

    @property
    def kernel_parameters(self) -> list[str]:
        """The parameters of the kernel of pattern minimal."""
        pointers = [f"{tensor.pointee}* {tensor.name}_ptr" for tensor in self.tensors]
        scalars = [f"{self._scalar_type(scalar)} {scalar.name}" for scalar in self.signature.scalars]
        return [*pointers, *scalars, "int64_t numel"]

    @property
    def kernel_arguments(self) -> list[str]:
        """The arguments for all but the last of them."""
        return [*(tensor.data for tensor in self.tensors), *(scalar.name for scalar in self.signature.scalars)]

    @property
    def numel(self) -> str:
        main = self.placed.main
        return "shape.numel()" if main.shape == (ELLIPSIS,) else f"{main.name}.numel()"

    @staticmethod
    def product(sizes: Sequence[Dimension]) -> str:
        """The product of dimensions, as an expression of the symbols that the checks bind.

        Numbers are multiplied here: in C++ their product would be an `int`, which may overflow.
        """
        number = math.prod(size for size in sizes if isinstance(size, int))
        factors = ["shape.numel()" if d == ELLIPSIS else f"{d}.unwrap()" for d in sizes if isinstance(d, str)]
        return " * ".join([*factors, *([str(number)] if number != 1 or not factors else [])])

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

    def checks(self, kind: str, device: str) -> list[tuple[str, list[str]]]:
        """The matchers, one for tensors of the same shape, element type and strides, and their calls."""
        checks: dict[str, list[str]] = {}
        for tensor in self._in_order_of_checks():
            shape = tensor.tensor.shape
            matcher = f"TensorMatcher({_matcher_shape(shape)})"
            if tensor.tensor.strided:
                strides = ", ".join(["-1"] * (len(shape) - 1) + ["1" if len(shape) > 1 else "-1"])
                matcher += f".with_strides({{{strides}}})" + (".ensure_no_overlap()" if tensor.role != "in" else "")
            matcher += f".with_device<{kind}>({device}).with_dtype<{tensor.element}>()"
            checks.setdefault(matcher, []).append(f'.verify({tensor.name}, "{tensor.name}")')
        return list(checks.items())

    def _in_order_of_checks(self) -> list[TensorView]:
        """The tensors in an order in which each computed size has at most one unknown name; optional ones, which may
        bind none, last."""
        left, checked = sorted(self.tensors, key=lambda view: view.tensor.optional), list[TensorView]()
        while left:
            known = {constant.name for constant in self.signature.constants}
            known |= {word for v in checked if not v.tensor.optional for d in v.tensor.shape for word in words_of(d)}

            def is_ready(view: TensorView, known: set[str] = known) -> bool:
                alone = known | {d for d in view.tensor.shape if isinstance(d, str)}
                sizes = [d for d in view.tensor.shape if isinstance(d, Size)]
                return all(len([word for word in size.words if word not in alone]) <= 1 for size in sizes)

            ready = next((view for view in left if is_ready(view)), left[0])
            left.remove(ready)
            checked.append(ready)
        return checked

    def in_order(self, names: Sequence[str]) -> list[TensorView]:
        """These results in the order of their computation: tensors changed in place last."""
        return sorted((t for t in self.tensors if t.name in names), key=lambda tensor: tensor.role == "mut")


def max_listed(signature: Signature) -> int:
    """The most tensors in a list: all lists take 3 KiB of the 4 KiB of a kernel's parameters."""
    lists = sum(tensor.listed for tensor in signature.inputs)
    return 128 // -(-lists // 3)


def choice_type(op: str, name: str) -> str:
    """The enum of a choice: that of `mode` of op `pool` is `PoolMode`."""
    return f"{camel(op)}{camel(name)}"


def _argument(parameter: Parameter) -> str:
    """The type of a parameter of the exported function."""
    if isinstance(parameter, Tensor):
        name = "TensorListView" if parameter.listed else "TensorView"
    else:
        name = {"float": "double", "int": "int64_t", "str": "StringView"}.get(parameter.kind, "bool")
    unused = "[[maybe_unused]] " if name == "StringView" else ""
    return unused + (f"Optional<{name}>" if parameter.optional else name)


def _matcher_shape(shape: tuple[Dimension, ...]) -> str:
    """The arguments of a matcher: `shape`, `{B, D}` or `shape, {D}`."""
    written = (d.cpp() if isinstance(d, Size) else str(d) for d in shape if d != ELLIPSIS)
    sizes = "{" + ", ".join(written) + "}"
    if ELLIPSIS not in shape:
        return sizes
    return "shape" if len(shape) == 1 else f"shape, {sizes}"
