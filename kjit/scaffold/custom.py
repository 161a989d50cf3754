"""An op with its author's kernel: checks and launch in C++, and the calls of its test.

No tensor is more to such a kernel than its signature says. So its parts are named: a parameter of the kernel for each
tensor, each named dimension and each number, and in Python a size for each named dimension.
"""

from __future__ import annotations

import keyword
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import ClassVar

from kjit.scaffold.cases import CallsView
from kjit.scaffold.cpp import CppView, Member, TensorView, max_listed
from kjit.scaffold.start import python_tuple
from kjit.signature.signature import ELLIPSIS, Dimension, Tensor, words_of
from kjit.signature.sizes import Size

LEADING = "leading"
"""The name of the dimensions of `...`: in C++ their product, in Python all of them."""


_TAKEN = frozenset({LEADING, "device", "kjit", "l", "math", "shape", "size", "torch"})
"""Names with another meaning in the code that names sizes."""

_LISTED = 3
"""The number of tensors in the lists of a test."""


@dataclass(frozen=True)
class CustomView:
    """An op in C++ whose kernel its author writes.

    Args:
        cpp: the op in C++.
    """

    cpp: CppView

    @property
    def tensor_members(self) -> list[Member]:
        """A pointer for each tensor, and the strides of strided ones."""
        members = []
        for view in self.cpp.tensors:
            tensor = view.tensor
            if tensor.listed:
                pointers = Member(f"{view.name}[kMaxTensors]", f"{view.pointee}*", "{}", self._describe(tensor))
                count = f"static_cast<int64_t>({view.name}.size())"
                members += [pointers, Member(f"{view.name}_count", "int64_t", count, "tensors")]
                continue
            members.append(Member(view.name, f"{view.pointee}*", view.data, self._describe(tensor)))
            if tensor.strided:
                ranks = range(max(1, len(tensor.shape) - 1))
                stride = f"{view.name}.has_value() ? {view.name}.value().stride(%d) : 0"
                if not tensor.optional:
                    stride = f"{view.name}.stride(%d)"
                strides = "{" + ", ".join(stride % at for at in ranks) + "}"
                what = "in elements, of all dimensions but the last" if len(tensor.shape) > 1 else "in elements"
                members.append(Member(f"{view.name}_strides[{len(ranks)}]", "int64_t", strides, what))
        return members

    @property
    def max_listed(self) -> int:
        """The most tensors in a list."""
        return max_listed(self.cpp.signature)

    @property
    def size_members(self) -> list[Member]:
        """A number for each named dimension."""
        sizes = [Member(name, "int64_t", self._size(name)) for name in self.cpp.signature.dimensions]
        if self.cpp.has_ellipsis:  # after the tensors, which have comments, too
            sizes.insert(0, Member(LEADING, "int64_t", "shape.numel()", "product of the dimensions of ..."))
        return sizes

    def _size(self, name: str) -> str:
        """The value of a named dimension; 0 if all tensors that have it are None."""
        tensors = self.cpp.signature.tensors
        owners = [tensor for tensor in tensors if any(name in words_of(d) for d in tensor.shape)]
        if all(tensor.optional for tensor in owners):
            there = " || ".join(f"{tensor.name}.has_value()" for tensor in owners)
            return f"{f'({there})' if len(owners) > 1 else there} ? {name}.unwrap() : 0"
        return f"{name}.unwrap()"

    @property
    def members(self) -> list[Member]:
        """All members, scalars last."""
        return [
            *self.tensor_members,
            *self.size_members,
            *self.cpp.members,
        ]

    @property
    def results(self) -> list[tuple[TensorView, str]]:
        """The tensors that the kernel writes, and their numbers of elements."""
        return [(view, self._numel(view.tensor)) for view in self.cpp.tensors if view.role != "in"]

    @property
    def threads(self) -> list[str]:
        """The numbers of elements of results: the initial grid has a thread for each."""
        return list(dict.fromkeys(numel for _, numel in self.results))

    @property
    def comment_column(self) -> int:
        """The column in which comments on members start."""
        return max(len(f"{member.type} {member.name};") for member in self.members if member.comment) + 2

    def _describe(self, tensor: Tensor) -> str:
        changed = ", changed in place" if tensor.mutable else ""
        absent = ", null where it is absent" if tensor.optional else ""
        return f"{'each ' if tensor.listed else ''}[{', '.join(map(str, tensor.shape))}]{changed}{absent}"

    def _numel(self, tensor: Tensor) -> str:
        values = {name: f"params.{name}" for name in self.cpp.signature.dimensions} | {ELLIPSIS: f"params.{LEADING}"}
        values |= {constant.name: constant.name for constant in self.cpp.signature.constants}
        factors = []
        for size in tensor.shape:
            text = size.cpp(values) if isinstance(size, Size) else values.get(str(size), str(size))
            factors.append(f"({text})" if " " in text and len(tensor.shape) > 1 else text)
        return " * ".join(factors) or "1"


@dataclass(frozen=True)
class CustomCases(CallsView):
    """The calls of such an op in its test and benchmark."""

    @property
    def names(self) -> list[str]:
        """The names for the sizes of `shape`: those of `...`, then the named dimensions."""
        has_ellipsis = any(ELLIPSIS in tensor.shape for tensor in self.signature.tensors)
        return [*([f"*{LEADING}"] if has_ellipsis else []), *self._names.values()]

    @property
    def _names(self) -> dict[str, str]:
        """The name of each dimension in Python, in lower case."""
        names: dict[str, str] = {}
        for dimension in self.signature.dimensions:
            name = dimension.lower()
            if keyword.iskeyword(name) or name in names.values() or name in _TAKEN or name.startswith("dtype"):
                name = f"{name}_size"
            names[dimension] = name
        return names

    def _python(self, size: Dimension) -> str:
        """A size as an expression of those names and the values of constants."""
        values = self._names | {name: str(value) for name, value in self._constants.items()}
        if isinstance(size, Size):
            return size.python(values)
        return f"*{LEADING}" if size == ELLIPSIS else values.get(str(size), str(size))

    @cached_property
    def _constants(self) -> dict[str, int]:
        """The values of constants for which the op is built and tested."""
        constants = (constant for constant in self.signature.constants if constant.kind == "int")
        return {constant.name: int(constant.default) for constant in constants if constant.default is not None}

    @cached_property
    def _steps(self) -> dict[str, tuple[int, int]]:
        """For each dimension, the number that it is a multiple of, so that divisions are exact, and its least size."""
        steps = dict.fromkeys(self.signature.dimensions, (1, 0))
        for size in (d for tensor in self.signature.tensors for d in tensor.shape if isinstance(d, Size)):
            divisor = self._constants[size.divisor] if isinstance(size.divisor, str) else size.divisor
            factor = size.factor * math.prod(self._constants.get(name, 1) for name in size.names)
            name = next((name for name in size.names if name in steps), None)
            if name is not None:
                multiple, least = steps[name]
                steps[name] = math.lcm(multiple, divisor // math.gcd(divisor, factor)), max(least, -size.plus)
        for name, (tensor, at) in self.signature.places().items():
            solved = tensor.shape[at]
            for other in solved.names if isinstance(solved, Size) and name in solved.names else ():
                if other != name and other in steps:  # a divisor
                    multiple, least = steps[other]
                    steps[other] = multiple, max(least, 1)
        return steps

    def _fitting(self, dimension: str, size: str) -> str:
        """The smallest valid size of a dimension from `size` on."""
        multiple, least = self._steps[dimension]
        if not size.isdecimal():
            return size if multiple == 1 else f"{size} * {multiple}"
        return str(-(-max(int(size), least) // multiple) * multiple)

    def attributes(self, *, has_kernels: bool) -> dict[str, str]:
        """The attributes of the test's class but for its shapes, names and expressions."""
        strided = [f'"{tensor.name}"' for tensor in self.signature.inputs if tensor.strided]
        attributes = {"strided": python_tuple(strided)} if strided else {}
        attributes |= self._any_rank
        if self.python.optional:
            attributes["absent_as_zeros"] = "False"
        if has_kernels:
            attributes["kernels"] = "kjit.testing.Kernels(spills=False)"
        return attributes

    @property
    def prepared(self) -> list[str]:
        """Statements before the arguments: the sizes, by name."""
        return [f"{self.unpacked} = shape" if self.unpacked else "assert shape == ()"]

    @property
    def unpacked(self) -> str:
        """The target of an assignment from `shape`; empty if no size has a name."""
        return f"({self.names[0]},)" if len(self.names) == 1 else ", ".join(self.names)

    def _sample_tensor(self, tensor: Tensor) -> str:
        sizes = [self._python(size) for size in tensor.shape]
        made = f"kjit.testing.random_tensor({python_tuple(sizes)}, {self._dtype_of(tensor)}, device)"
        return f"[{made} for _ in range({_LISTED})]" if tensor.listed else made

    def _shape(self, sizes: dict[str, str], *, leading: str = "2") -> str:
        """A `shape` with these sizes of some dimensions, and small ones of the others, each with another."""
        small = dict(zip(self.signature.dimensions, chain(("3", "5", "2", "7"), repeat("2")), strict=False))
        items = [self._fitting(dimension, sizes.get(dimension, size)) for dimension, size in small.items()]
        if len(items) < len(self.names) and leading:
            items.insert(0, leading)
        return python_tuple(items)

    @property
    def sample_shape(self) -> str:
        """A shape without special properties."""
        long = [name for name in self.signature.dimensions if name in self._long]
        others = [name for name in self.signature.dimensions if name not in self._long]
        sizes = dict(zip(others, chain(("7", "5", "3"), repeat("2")), strict=False))
        sizes |= dict(zip(long, chain(("24", "17", "40"), repeat("11")), strict=False))
        return self._shape(sizes if len(self.names) > 1 else dict.fromkeys(sizes, "1001"), leading="3, 5")

    @property
    def shapes(self) -> list[str]:
        """The shapes for which results are compared: each size in turn is 0, 1, and no whole number of warps, of blocks
        and of vectors."""
        if not self.names:
            return ["()"]
        ones = dict.fromkeys(self.signature.dimensions, "1")
        shapes = [self.sample_shape, self._shape(ones, leading="1")]
        if len(self.names) > len(self.signature.dimensions):
            shapes += [self._shape({}, leading=leading) for leading in ("", "0", "33", "1025")]
        for dimension in self.signature.dimensions:
            shapes += [self._shape({dimension: size}) for size in ("0", "33", self._largest(dimension))]
        return list(dict.fromkeys(shapes))

    def _largest(self, dimension: str) -> str:
        """The largest size of a dimension in a test; small where tensors grow with a power of it."""
        words = (
            [word for size in tensor.shape for word in words_of(size)].count(dimension)
            for tensor in self.signature.tensors
        )
        return {1: "1025", 2: "257"}.get(max(words), "33")

    @property
    def _long(self) -> set[Dimension]:
        """The last dimensions of tensors with several."""
        return {
            word for tensor in self.signature.tensors if len(tensor.shape) > 1 for word in words_of(tensor.shape[-1])
        }

    @property
    def _ends(self) -> tuple[str, str]:
        """The outermost and the innermost dimension."""
        dimensions = self.signature.dimensions or (LEADING,)
        return dimensions[0], dimensions[-1]

    _negative: ClassVar = ("float",)  # an integer may be a count

    # The benchmark.

    has_fp8: ClassVar = False  # `reference` says how PyTorch computes with it
    bench_axis: ClassVar = "rows"

    @property
    def bench_shape(self) -> str:
        """The sizes in the benchmark, as an expression of `size`."""
        if not self.names:
            return "()"
        inner = [word for tensor in self.signature.tensors for d in tensor.shape[1:] for word in words_of(d)]
        rank = max(len(tensor.shape) for tensor in self.signature.tensors)
        sizes = {name: ("128" if rank > 2 else "1024") if name in self._long else "8" for name in inner}
        if len(self.names) == len(self.signature.dimensions):
            sizes[self._ends[0]] = "size"
        others = dict.fromkeys(self.signature.dimensions, "8")
        return self._shape(others | sizes, leading="size")
