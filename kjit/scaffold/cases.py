"""Arguments for an op's test and benchmark: shapes and dtypes of tensors, and their numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from typing import Literal

from kjit.dtypes import DType
from kjit.scaffold.python import PythonView
from kjit.scaffold.start import Start, View, python_tuple
from kjit.signature.signature import ELLIPSIS, Dimension, Scalar, Signature, Tensor
from kjit.testing import LARGEST, LONGEST_ROW

MANY = 25_000_000
"""The maximum number of elements of a tensor in a test: 200 MB, because references compute in float64. Without a limit,
an op with large sizes of its own would get tensors of many gigabytes."""

_SPARE = 3
"""The number of rows of a table that are not written to."""


@dataclass(frozen=True)
class CallsView(View):
    """The calls of an op in its test and benchmark: the part common to all patterns.

    Args:
        start: its math.
        python: the op in Python.
    """

    python: PythonView

    @property
    def variable_parameters(self) -> list[str]:
        return [f"{name}: torch.dtype" for name in self.python.variables]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """The parameters, each with a value for a test; numbers differ from their defaults and from each other."""
        numbers = sample_numbers(self.signature)
        return [
            (p.name, self._sample_tensor(p) if isinstance(p, Tensor) else numbers[p.name])
            for p in self.signature.parameters
        ]

    @property
    def values(self) -> list[str]:
        """Further values for a test, each with its parameter: all of what has few, and the negatives of numbers."""
        numbers = sample_numbers(self.signature)
        values: list[tuple[str, str]] = []
        for scalar in (*self.signature.scalars, *self.signature.constants):
            if scalar.kind == "choice":
                values += [(scalar.name, f'"{word}"') for word in scalar.choices]
            elif scalar.kind == "bool":
                values += [(scalar.name, "False"), (scalar.name, "True")]
            elif not scalar.constant and scalar.kind in self._negative and not _is_eps(scalar, self.start):
                values.append((scalar.name, f"-{numbers[scalar.name]}"))
        return [f'("{name}", {value})' for name, value in values]

    @property
    def _negative(self) -> tuple[str, ...]:
        """The kinds of numbers that may be negative in a test: an unsigned result has no defined value then."""
        dtypes = [
            dtype
            for result in self.start.results
            for dtype in ([result.dtype] if isinstance(result.dtype, DType) else self.python.dtypes)
        ]
        return () if any(dtype.name.startswith("uint") for dtype in dtypes) else ("float", "int")

    def _sample_tensor(self, tensor: Tensor) -> str:
        raise NotImplementedError

    @property
    def _any_rank(self) -> dict[str, str]:
        """The tensor that may have another dimension without an error: the only one with `...`."""
        open_ended = [tensor.name for tensor in self.signature.tensors if ELLIPSIS in tensor.shape]
        return {"any_rank": f'("{open_ended[0]}",)'} if len(open_ended) == 1 else {}

    def _dtype_of(self, tensor: Tensor) -> str:
        """The expression for a tensor's dtype."""
        if isinstance(tensor.dtype, DType):
            return f"torch.{tensor.dtype.name}"
        return self.python.variables[self.signature.variables.index(tensor.dtype)]


@dataclass(frozen=True)
class CasesView(CallsView):
    """The calls of an op whose kernel comes from a pattern."""

    # Arguments of a call.

    @property
    def inputs(self) -> list[str]:
        """The names of the tensors that a call takes."""
        return [tensor.name for tensor in self.signature.inputs]

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors, outputs last."""
        return self.inputs + self.python.outputs

    @property
    def prepared(self) -> list[str]:
        """Statements before the arguments: the number of rows of a table, and the chosen rows."""
        rows = [f"rows = {self._table_rows}"] if self.placed.index else []
        return rows + ([f"chosen = {self._chosen}"] if self._chosen else [])

    def _sample_tensor(self, tensor: Tensor) -> str:
        shape, dtype = self._shape_of(tensor), self._dtype_of(tensor)
        if tensor == self.placed.index and self.start.scattered:
            return f"chosen.view({shape})"
        if tensor == self.placed.index:
            return f"torch.randint(rows, {shape}, dtype={dtype}, device=device)"
        return f"kjit.testing.random_tensor({shape}, {dtype}, device)"

    def _shape_of(self, tensor: Tensor) -> str:
        """The expression for a tensor's shape, where `shape` is that of the main tensor."""
        kind, rank = self.placed.kind(tensor), self.placed.row_rank
        if kind == "halves":
            return "(*shape[:-1], 2 * shape[-1])"
        if kind == "column":
            return f"shape[-{rank}:]"
        if self.placed.keeps_dim(tensor):
            return "(*shape[:-1], 1)"
        if kind in ("number", "index"):
            return f"shape[:-{rank}]" if rank else "shape"
        if kind == "table":
            size = tensor.shape[0] if isinstance(tensor.shape[0], int) else "rows"
            return f"({size}, *shape[-{rank}:])" if rank else f"({size},)"
        return "shape"

    # The test.

    def attributes(self, *, has_kernels: bool) -> dict[str, str]:
        """The attributes of the test's class but for its shapes, names and expressions.

        Args:
            has_kernels: the op has a CUDA kernel that kjit generated.
        """
        attributes: dict[str, str] = {}
        if len(self.tensors) > 2 and self._even_shape != self.sample_shape:
            attributes["aligned_shape"] = self._even_shape
        # An input, and the output that may share its memory.
        for tensor, output in [(t, o) for o in self.signature.outputs for t in self.placed.replaceable(o)][:1]:
            attributes["in_place"] = f'("{tensor.name}", "{output.name}")'
        attributes |= self._any_rank
        if self.placed.index is not None:
            attributes["tables"] = python_tuple(f'"{table.name}"' for table in self.placed.inputs("table"))
            attributes["index"] = f'"{self.placed.index.name}"'
        if has_kernels:
            attributes["kernels"] = "kjit.testing.Kernels(spills=False)"
        return attributes

    @property
    def _chosen(self) -> str:
        """Distinct indices of the rows that are written to; empty if rows are only read."""
        if not self.start.scattered or self.placed.index is None:
            return ""
        return f"torch.randperm(rows, dtype={self._dtype_of(self.placed.index)}, device=device)[:-{_SPARE}]"

    @property
    def _table_rows(self) -> str:
        """The number of rows of a table in a test: at least one, and one for each chosen row; where rows are written,
        some more that must not change."""
        if self.placed.index is None:
            return ""
        rows = self.placed.inputs("table")[0].shape[0]
        if isinstance(rows, int):
            return str(rows)
        chosen = f"math.prod({self._shape_of(self.placed.index)})"
        if self.start.scattered:
            return f"{chosen} + {_SPARE}"
        return f"max(1, {chosen})"

    def _dtypes_of(self, tensors: Iterable[Tensor]) -> set[DType]:
        """All dtypes of these tensors over all variants."""
        return {
            dtype
            for tensor in tensors
            for dtype in ([tensor.dtype] if isinstance(tensor.dtype, DType) else self.python.dtypes)
        }

    @property
    def has_fp8(self) -> bool:
        return any(dtype.is_fp8 for dtype in self._dtypes_of(self.signature.tensors))

    @property
    def has_integers(self) -> bool:
        """Whether an input has integers, whose mean PyTorch does not compute."""
        return self.start.sums and any(dtype.kind == "int" for dtype in self._dtypes_of(self.signature.inputs))

    @property
    def smallest(self) -> int:
        """The smallest size to test: the mean of no elements is NaN, which has no defined value as an integer."""
        results = [result for result in self.start.results if result.name in self.start.row_results]
        return int(any(dtype.kind != "float" for dtype in self._dtypes_of(results)))

    # Shapes of the main tensor, which determine all others.

    @property
    def _free(self) -> list[Dimension]:
        """The dimensions that can grow alone; one that appears twice would square the number of elements."""
        shape = self.placed.main.shape
        return [dimension for dimension in shape if isinstance(dimension, str) and shape.count(dimension) == 1]

    @property
    def _free_leading(self) -> list[Dimension]:
        return [dimension for dimension in self._free if dimension not in self.placed.row]

    @property
    def _free_row(self) -> list[Dimension]:
        return [dimension for dimension in self._free if dimension in self.placed.row]

    def _filled(self, values: Mapping[Dimension, str], other: str) -> str:
        """The main shape with these sizes for some of its dimensions."""
        items = [values.get(d, str(d) if isinstance(d, int) else other) for d in self.placed.main.shape]
        return python_tuple(items)

    def _elements(self, shape: Sequence[int]) -> int:
        """The number of elements of the largest tensor for this shape of the main one."""
        counts = [math.prod(shape)]
        for table in self.placed.inputs("table")[:1]:
            if isinstance(table.shape[0], int):
                counts.append(table.shape[0] * math.prod(shape[len(self.placed.leading) :]))
        return max(counts)

    @property
    def sized_shapes(self) -> list[tuple[str, int]]:
        """Shapes with None for the dimension that grows, each with its largest size in a test; empty if no dimension
        can grow alone."""
        rows = self._free_leading[-1:]
        if not self.placed.row_rank:
            return [self._growing(dimension, 1) for dimension in rows]
        shapes = [self._growing(dimension, 3) for dimension in self._free_row[-1:]]
        if self.placed.index is not None or not shapes:
            shapes += [self._growing(dimension, 5) for dimension in rows]
        return shapes

    def _growing(self, dimension: Dimension, other: int) -> tuple[str, int]:
        shape = [1 if d == dimension else d if isinstance(d, int) else other for d in self.placed.main.shape]
        # A table of a fixed length grows with the length of rows, not with their number.
        each = self._elements(shape) if dimension in self.placed.row else math.prod(shape)
        return self._filled({dimension: "None"}, str(other)), max(3, MANY // each)

    def _shape(self, named: Mapping[str, int]) -> tuple[int, ...]:
        """The main shape with these sizes of its named dimensions, the largest halved until a test can allocate it."""
        sizes = dict(named)
        while True:
            shape = tuple(d if isinstance(d, int) else sizes[str(d)] for d in self.placed.main.shape)
            largest = max(sizes, key=lambda name: sizes[name], default="")
            if self._elements(shape) <= MANY or sizes.get(largest, 0) <= 3:
                return shape
            sizes[largest] = sizes[largest] // 2 | 1  # odd: rows of such a length start at every alignment

    @property
    def shapes(self) -> list[str]:
        """The shapes for which the test compares results, or calls that return shapes."""
        if not self.sized_shapes:
            return [self.sample_shape]
        growing = []
        for shape, largest in self.sized_shapes:
            arguments = [shape]
            if self.placed.row_rank:
                arguments.append("rows=True")
            if self.smallest:
                arguments.append(f"smallest={self.smallest}")
            if largest < (LONGEST_ROW if self.placed.row_rank else LARGEST):
                arguments.append(f"largest={largest}")
            growing.append(f"*kjit.testing.boundary_shapes({', '.join(arguments)})")
        return [*growing, *self._small_shapes]

    @property
    def _small_shapes(self) -> list[str]:
        shape = self.placed.main.shape
        if shape == (ELLIPSIS,):
            return ["()", "(3, 5, 7)", "(2, 0, 3)"]
        if ELLIPSIS in shape:
            rest = tuple(d if isinstance(d, int) else 5 for d in shape[1:])
            return [repr(rest), repr((3, 4, *rest)), repr((2, 0, *rest))]
        named = list(dict.fromkeys(dimension for dimension in shape if isinstance(dimension, str)))
        if len(named) < 2:
            return [] if named else [repr(shape)]
        primes = dict(zip(named, chain((3, 5, 7, 2, 11, 13), repeat(2)), strict=False))
        if self.placed.row:
            primes[named[0]] = 1001
        shapes = [self._shape(primes)]
        for empty in (named[0], *([named[-1]] if self.placed.row and not self.smallest else [])):
            shapes.append(tuple(0 if d == empty else size for d, size in zip(shape, shapes[0], strict=True)))
        return [repr(entry) for entry in shapes]

    @property
    def sample_shape(self) -> str:
        """A shape without special properties."""
        return repr(self._sample)

    @property
    def _sample(self) -> tuple[int, ...]:
        shape = self.placed.main.shape
        named = dict.fromkeys(dimension for dimension in shape if isinstance(dimension, str))
        sizes = (1001,) if len(shape) == 1 else chain((7, 143, 5, 3), repeat(2))
        return self._shape(dict(zip(named, sizes, strict=False)))

    @property
    def _even_shape(self) -> str:
        """A shape whose rows are whole vectors, if the signature allows it."""
        named = [dimension for dimension in self.placed.main.shape if isinstance(dimension, str)]
        return repr(self._shape({**dict.fromkeys(named, 3), **dict.fromkeys(named[-1:], 256)}))

    @property
    def _fixed_elements(self) -> int:
        """The product of the dimensions that are numbers."""
        return math.prod(dimension for dimension in self.placed.main.shape if isinstance(dimension, int))

    # The benchmark.

    @property
    def bench_axis(self) -> Literal["elements", "columns", "rows"]:
        """The size that the benchmark varies: elements, the length of rows, or their number."""
        if not self.placed.row_rank:
            return "elements"
        return "columns" if self._free_row and (self.start.sums or not self._free_leading) else "rows"

    @property
    def bench_shape(self) -> str:
        """The main shape in the benchmark, as an expression of `size`, if it can grow."""
        leading, row = self._free_leading, self._free_row
        sizes: dict[Dimension, str] = {}
        if self.bench_axis == "elements" and leading:
            sizes[leading[-1]] = "size" if self._fixed_elements == 1 else f"size // {self._fixed_elements}"
        elif self.bench_axis == "columns":
            sizes = {**dict.fromkeys(leading[:1], "4096"), row[-1]: "size"}
        elif leading:
            sizes = {leading[0]: "size", **dict.fromkeys(row[-1:], "1024")}
        return self._filled(sizes, "1") if sizes else self.sample_shape


def sample_numbers(signature: Signature) -> dict[str, str]:
    """A value for each number in a test: the default of a constant, as no other is built; otherwise a value other than
    the default and those of other parameters, so that one in the place of another is noticed."""
    numbers: dict[str, str] = {}
    for scalar in (*signature.scalars, *signature.constants):
        if scalar.kind == "choice":
            value = f'"{scalar.default or scalar.choices[0]}"'
        elif scalar.constant:
            value = repr(scalar.default) if scalar.default is not None else "True"
        elif scalar.kind == "bool":
            value = repr(scalar.default is not True)
        else:
            values = {
                "float": (0.5 + number / 4 for number in count()),
                "int": (3 + number for number in count()),
                "str": chain(("text", "words"), (f"text{number}" for number in count())),
            }[scalar.kind]
            given = (json.dumps(value) for value in values if value != scalar.default)
            value = next(value for value in given if value not in numbers.values())
        numbers[scalar.name] = value
    return numbers


def _is_eps(scalar: Scalar, start: Start) -> bool:
    """Whether a number keeps others positive."""
    return scalar.name == start.eps or scalar.name.startswith("eps")
