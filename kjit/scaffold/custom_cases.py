"""The calls of an op with a kernel of its author's: of all that its signature allows, in its test and benchmark.

A shape here is the size of each named dimension, in order; `...` comes first, as any number of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Literal

from kjit.scaffold.cases import CasesView
from kjit.scaffold.dtypes import DType
from kjit.scaffold.signature import ELLIPSIS, Dimension, Tensor, words_of
from kjit.scaffold.sizes import Size

_PRIMES = (7, 143, 5, 3)
_BOUNDARIES = (1, 2, 7, 8, 9, 255, 256, 257, 1025)
_MULTIPLES = (1, 2, 5)
_ABSENT_ELSEWHERE = 5
"""The size of a dimension that only a tensor has that may be absent."""


@dataclass(frozen=True)
class CustomCases(CasesView):
    """See the module."""

    @cached_property
    def _constants(self) -> dict[str, int]:
        """The values for which the op is built and tested."""
        return {c.name: int(c.default) for c in self.signature.constants if c.default is not None and c.kind == "int"}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The dimensions that a shape has a size for."""
        places = self.signature.places()
        return tuple(name for name in self.signature.dimensions if name in places)

    @property
    def _has_ellipsis(self) -> bool:
        return any(ELLIPSIS in tensor.shape for tensor in self.signature.tensors)

    @property
    def unpacked(self) -> str:
        """What a shape is assigned to: `B, D`."""
        targets = [*(["*leading"] if self._has_ellipsis else []), *self.names]
        return ", ".join(targets) + ("," if len(targets) == 1 else "")

    @cached_property
    def _multiples(self) -> dict[str, int]:
        """What each dimension must be a multiple of, so that no division has a remainder."""
        multiples = dict.fromkeys(self.names, 1)
        for size in self._sizes_of_tensors:
            divisor = self._constants[size.divisor] if isinstance(size.divisor, str) else size.divisor
            factor = size.factor * math.prod(self._constants.get(name, 1) for name in size.names)
            name = next((name for name in size.names if name in multiples), None)
            if name is not None:
                multiples[name] = math.lcm(multiples[name], divisor // math.gcd(divisor, factor))
        return multiples

    @cached_property
    def _least(self) -> dict[str, int]:
        """The smallest size of each dimension: of `N-1` 1."""
        least = dict.fromkeys(self.names, 0)
        for size in self._sizes_of_tensors:
            for name in size.names:
                if name in least and size.plus < 0:
                    least[name] = max(least[name], -size.plus)
        return least

    @property
    def _sizes_of_tensors(self) -> list[Size]:
        return [d for tensor in self.signature.tensors for d in tensor.shape if isinstance(d, Size)]

    def _shape_of(self, tensor: Tensor) -> str:
        values = {name: name for name in self.names} | {name: str(value) for name, value in self._constants.items()}
        for name in self.signature.dimensions:
            values.setdefault(name, str(_ABSENT_ELSEWHERE))
        items = [_python(dimension, values) for dimension in tensor.shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    @property
    def in_place(self) -> tuple[str, str] | None:
        return None

    @property
    def smallest(self) -> int:
        return 0

    @property
    def strided(self) -> list[str]:
        """The tensors that may have gaps between their rows."""
        return [tensor.name for tensor in self.signature.inputs if tensor.strided]

    def _filled_sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """A shape of multiples and of sizes that are not too small."""
        return tuple(
            max(-(-sizes[name] // self._multiples[name]), -(-self._least[name] // self._multiples[name]))
            * self._multiples[name]
            for name in self.names
        )

    @property
    def _plain(self) -> tuple[int, ...]:
        sizes = (1001,) if len(self.names) == 1 else chain(_PRIMES, repeat(2))
        return self._filled_sizes(dict(zip(self.names, sizes, strict=False)))

    @property
    def sample_shape(self) -> str:
        return repr(((5,) if self._has_ellipsis else ()) + self._plain)

    @property
    def even_shape(self) -> str:
        sizes = {**dict.fromkeys(self.names, 3), **dict.fromkeys(self.names[-1:], 256)}
        return repr(((4,) if self._has_ellipsis else ()) + self._filled_sizes(sizes))

    @property
    def test_shapes(self) -> list[str]:
        shapes = [self._plain]
        for name in self.names[-1:]:
            multiple = self._multiples[name]
            for length in _BOUNDARIES if multiple == 1 else (multiple * number for number in _MULTIPLES):
                shapes.append(self._filled_sizes({**dict.fromkeys(self.names, 3), name: length}))
        for name in dict.fromkeys((*self.names[:1], *self.names[-1:])):
            if not self._least[name]:
                shapes.append(tuple(0 if n == name else size for n, size in zip(self.names, self._plain, strict=True)))
        if self._has_ellipsis:
            leads = [(), (3, 4), (2, 0)]
            return [repr((*lead, *self._plain)) for lead in leads] + [repr((5, *shape)) for shape in shapes[1:]]
        return list(dict.fromkeys(map(repr, shapes)))

    @property
    def sample_counts(self) -> dict[str, int]:
        return {"elements": 1, "columns": 1, "rows": 1}  # where no dimension has a name

    @property
    def huge_shape(self) -> str:
        return ""

    # The benchmark.

    @property
    def bench_axis(self) -> Literal["elements", "columns", "rows"]:
        return "elements" if len(self.names) + self._has_ellipsis <= 1 else "rows"

    @cached_property
    def _bench_values(self) -> dict[str, str]:
        """Each dimension in the benchmark, in which one grows."""
        values = {}
        for name in self.names:
            multiple = self._multiples[name]
            most = 1024 if name == self.names[-1] else 8
            values[name] = str(-(-most // multiple) * multiple)
        if not self._has_ellipsis and self.names:
            grows = next((name for name in self.names if self._multiples[name] == 1), self.names[0])
            multiple = self._multiples[grows]
            values[grows] = "size" if multiple == 1 else f"size * {multiple}"
        return values

    @property
    def bench_shape(self) -> str:
        sizes = [*(["size"] if self._has_ellipsis else []), *self._bench_values.values()]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})" if sizes else ""

    @property
    def bytes_moved(self) -> list[str]:
        terms = []
        for tensor in self.signature.tensors:
            itemsize = (
                str(tensor.dtype.bytes) if isinstance(tensor.dtype, DType) else f"{self._dtype_of(tensor)}.itemsize"
            )
            times = ["2"] if tensor.mutable else []
            terms.append(" * ".join([*times, *self._counts(tensor.shape), itemsize]))
        return terms

    def _counts(self, shape: Sequence[Dimension]) -> list[str]:
        values = {name: f"({value})" if " " in value else value for name, value in self._bench_values.items()}
        values |= {name: str(value) for name, value in self._constants.items()}
        for name in self.signature.dimensions:
            values.setdefault(name, str(_ABSENT_ELSEWHERE))
        counts = []
        for dimension in shape:
            known = {name: int(values[name]) for name in words_of(dimension) if values[name].isdecimal()}
            if isinstance(dimension, Size) and len(known) == len(set(words_of(dimension))):
                counts.append(str(dimension.value(known)))
                continue
            text = "size" if dimension == ELLIPSIS else _python(dimension, values)
            counts.append(f"({text})" if any(mark in text for mark in ("+", "-", "//")) else text)
        return counts

    @property
    def bench_constant(self) -> str:
        return ""


def _python(dimension: Dimension, values: Mapping[str, str]) -> str:
    if isinstance(dimension, Size):
        return dimension.python(values)
    if dimension == ELLIPSIS:
        return "*leading"
    return values[dimension] if isinstance(dimension, str) else str(dimension)
