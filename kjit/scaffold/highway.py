"""What does a signature look like in C++ with Google Highway?

The functions with vectors are compiled once for each kind of CPU and know no dtype variable: everything about an op is
in its `Params`, which is a type of its own for each variant, and says in which lanes is computed (`Params::Lane`). What
the kernels for one kind of CPU have in common with these is in `cpp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kjit.scaffold.cpp import CppView, Field, TensorView
from kjit.scaffold.signature import Scalar
from kjit.scaffold.start import Language


@dataclass(frozen=True)
class HighwayView:
    """An op in C++ with vectors.

    Args:
        cpp: the op.
    """

    cpp: CppView

    @property
    def lane(self) -> str:
        """The type of the lanes: `lane_t<T, float>`."""
        elements = dict.fromkeys(tensor.element for tensor in self.cpp.tensors if tensor.kind != "index")
        if self.cpp.start.moves:
            return f"bits_t<{next(iter(elements))}>"
        floats = self.cpp.start.sums or any(scalar.kind == "float" for scalar in self.cpp.signature.scalars)
        return f"lane_t<{', '.join([*elements, *(['float'] if floats else [])])}>"

    @property
    def fields(self) -> list[Field]:
        """The members of `Params`, as the host fills them."""
        tensors = [Field(tensor.name, f"{tensor.pointee}*", tensor.data) for tensor in self.cpp.tensors]
        return [*tensors, *map(_field, self.cpp.signature.scalars)]

    @property
    def constants(self) -> list[Field]:
        """The members of `Params` that are known to the compiler."""
        return [
            Field(f"{constant.name}_constant", "bool" if constant.kind == "bool" else "int64_t", constant.name)
            for constant in self.cpp.signature.constants
        ]

    @property
    def constant_args(self) -> str:
        """Behind the name of a function: `<Params::fast_constant>`."""
        return f"<{', '.join(f'Params::{field.name}' for field in self.constants)}>" if self.constants else ""

    def _head(self, *types: str) -> str:
        constants = [f"{'bool' if c.kind == 'bool' else 'int64_t'} {c.name}" for c in self.cpp.signature.constants]
        return f"template <{', '.join([*constants, *types])}>"

    @property
    def vector_head(self) -> str:
        """Of the functions that take vectors."""
        return self._head("class Tag", "class V = hn::Vec<Tag>")

    @property
    def row_head(self) -> str:
        """Of the function that takes a row's sum."""
        return self._head("typename Lane")

    @property
    def element_parameters(self) -> list[str]:
        tensors = [f"V{'' if tensor.role == 'in' else '&'} {tensor.name}" for tensor in self.cpp.of_element]
        scalars = [_vector_parameter(scalar) for scalar in self._scalars(self.cpp.start.element_scalars)]
        factor = [f"V {self.cpp.start.factor}"] if self.cpp.start.factor else []
        return ["[[maybe_unused]] Tag tag", *tensors, *scalars, *factor]

    @property
    def element_call(self) -> list[str]:
        tensors = [self._vector(tensor) for tensor in self.cpp.of_element]
        scalars = [
            f"params.{scalar.name}" if scalar.kind == "bool" else f"hn::Set(tag, params.{scalar.name})"
            for scalar in self._scalars(self.cpp.start.element_scalars)
        ]
        factor = [f"hn::Set(tag, {self.cpp.start.factor})"] if self.cpp.start.factor else []
        return ["tag", *tensors, *scalars, *factor]

    @property
    def term_parameters(self) -> list[str]:
        return ["[[maybe_unused]] Tag tag", *(f"V {tensor.name}" for tensor in self.cpp.of_term)]

    @property
    def term_call(self) -> list[str]:
        return ["tag", *(self._vector(tensor) for tensor in self.cpp.of_term)]

    @property
    def row_parameters(self) -> list[str]:
        tensors = [f"Lane{'' if tensor.role == 'in' else '&'} {tensor.name}" for tensor in self.cpp.of_row]
        scalars = [
            f"{'bool' if scalar.kind == 'bool' else 'int64_t' if scalar.kind == 'int' else 'Lane'} {scalar.name}"
            for scalar in self._scalars(self.cpp.start.row_scalars)
        ]
        return ["Lane row_total", "Lane row_size", *tensors, *scalars]

    @property
    def row_call(self) -> list[str]:
        scalars = [f"params.{scalar.name}" for scalar in self._scalars(self.cpp.start.row_scalars)]
        tensors = [tensor.name for tensor in self.cpp.of_row]
        return ["row_total", "static_cast<Lane>(params.row_size)", *tensors, *scalars]

    @property
    def numbers(self) -> list[TensorView]:
        """The tensors with a number for each row."""
        return self.cpp.of("number")

    def load(self, tensor: TensorView) -> str:
        """A vector of a tensor, `at` elements into the row or into the whole."""
        if self.cpp.of("table") and tensor.kind != "element":
            data = f"{self.cpp.run_data(tensor, 'run')}.from(at)"
            return f"load_or_zero(tag, {data}, 0, part)" if tensor.optional else f"load(tag, {data}, part)"
        in_row = self.cpp.start.sums or self.cpp.of("table")
        where = "row_at + at" if tensor.kind == "element" and in_row else "at"
        if tensor.optional:
            return f"load_or_zero(tag, params.{tensor.name}, {where}, part)"
        return f"load(tag, params.{tensor.name} + {where}, part)"

    def results(self, names: list[str]) -> list[tuple[str, str]]:
        """The math of these results, what is changed in place last: left and right side."""
        views = sorted((t for t in self.cpp.tensors if t.name in names), key=lambda tensor: tensor.role == "mut")
        language: Language = "cpp" if any(tensor.kind == "number" for tensor in views) else "highway"
        return [(tensor.name, self.cpp.start.expression(tensor.name, language)) for tensor in views]

    def _scalars(self, names: list[str]) -> list[Scalar]:
        return [scalar for scalar in self.cpp.signature.scalars if scalar.name in names]

    def _vector(self, tensor: TensorView) -> str:
        is_one = tensor.kind == "number" and self.cpp.start.sums
        return f"hn::Set(tag, {tensor.name})" if is_one else tensor.name


def _field(scalar: Scalar) -> Field:
    if scalar.kind == "float":
        return Field(scalar.name, "Lane", f"static_cast<Lane>({scalar.name})")
    return Field(scalar.name, "bool" if scalar.kind == "bool" else "int64_t", scalar.name)


def _vector_parameter(scalar: Scalar) -> str:
    return f"{'bool' if scalar.kind == 'bool' else 'V'} {scalar.name}"
