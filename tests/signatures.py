"""Random signatures, each of which a pattern serves.

Signatures without an aim reach the element-wise patterns at most. Those for a pattern have what it is about: for
`rowwise` a tensor of rows, with weights for its columns and numbers for its rows; for `gather` and `scatter` a table
and an index; for `custom` sizes that follow from others, tensors with gaps, and lists. A signature belongs to a
number, so that a failure can be had again.
"""

from __future__ import annotations

import random
from dataclasses import replace

from kjit.dtypes import DTYPES, DType
from kjit.signature.names import parameter_problem
from kjit.signature.signature import ELLIPSIS, Dimension, Parameter, Scalar, Signature, Tensor
from kjit.signature.sizes import Size

Shape = tuple[Dimension, ...]

SIZES: tuple[Dimension, ...] = (1, 2, 7, 8, 64, 100, 4096)
ANY_DTYPE: tuple[DType | str, ...] = ("T", "T", "T", "U", *dict.fromkeys(DTYPES.values()))
ROW_DTYPE = tuple(dtype for dtype in ANY_DTYPE if isinstance(dtype, str) or dtype.kind != "bool")  # bools have no mean


def signature_for(pattern: str, number: int) -> Signature:
    """A signature that `pattern` serves, the same for the same number."""
    maker = _Maker(random.Random(f"{pattern} {number}"))
    if pattern == "elementwise" and number % 5 == 2:
        return maker.halves()
    return {"rowwise": maker.rows, "gather": maker.gather, "scatter": maker.scatter, "custom": maker.custom}.get(
        pattern, maker.elements
    )()


class _Maker:
    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.names: set[str] = set()

    def elements(self) -> Signature:
        shape = self.leading(1, 3)
        main = self.tensor(shape, ANY_DTYPE)
        return self.signature([main], [shape], [shape], ANY_DTYPE, shuffled=True)

    def halves(self) -> Signature:
        """Element by element, and some inputs with rows of twice the length."""
        leading = self.leading(1, 2)
        shape: Shape = (*leading, "D")
        twice = [self.tensor((*leading, Size(("D",), 2)), ROW_DTYPE) for _ in range(self.random.randint(1, 2))]
        return self.signature([self.tensor(shape, ANY_DTYPE), *twice], [shape], [shape], ANY_DTYPE, shuffled=True)

    def rows(self) -> Signature:
        leading = self.leading(1, 3)
        columns = self.choose("D", "D", *SIZES)
        while leading == (columns,):
            columns = self.choose("D", *SIZES)
        shape = (*leading, columns)
        main = self.tensor(shape, ROW_DTYPE)
        return self.signature([main], [shape, leading, (columns,)], [shape, leading], ROW_DTYPE, shuffled=True)

    def gather(self) -> Signature:
        index = self.tensor(self.leading(1, 2), (DTYPES["int32"], DTYPES["int64"]))
        row: Shape = self.choose((), ("D",), ("D",), ("H", 64), ("H", "D"), (96,), (8, 2))
        table = self.tensor((self.choose("M", "M", 1000, 3), *row), ANY_DTYPE)
        shape = (*index.shape, *row)
        kinds = [shape, index.shape, row] if row and row != index.shape else [shape]
        more = [self.tensor(table.shape, ANY_DTYPE)] if self.random.random() < 0.3 else []
        return self.signature([table, index, *more], kinds, [shape], ANY_DTYPE, shuffled=False)

    def scatter(self) -> Signature:
        index = self.tensor(self.leading(1, 2), (DTYPES["int32"], DTYPES["int64"]))
        row: Shape = self.choose((), ("D",), ("D",), ("H", 64), ("H", "D"), (96,), (8, 2))
        x = self.tensor((*index.shape, *row), ANY_DTYPE)
        dtypes = tuple(dtype for dtype in ANY_DTYPE if not isinstance(dtype, str) or dtype == x.dtype)
        tables = [self.tensor(("M", *row), dtypes, mutable=True) for _ in range(self.random.randint(1, 2))]
        kinds = [x.shape, index.shape, row] if row and row != index.shape else [x.shape]
        more = [self.tensor(self.choose(*kinds), dtypes) for _ in range(self.random.randint(0, 2))]
        optional = [self.tensor(self.choose(*kinds), dtypes, optional=True) for _ in range(self.random.randint(0, 1))]
        return Signature((*tables, index, x, *more, *optional, *self.defaults()), ())

    def custom(self) -> Signature:
        """Several shapes, sizes that follow from others, tensors with gaps, lists of tensors, texts."""
        number = Scalar(self.name(), "int", constant=True, default=self.choose(1, 2, 16))
        names: Shape = ("N", "H", "D")[: self.random.randint(1, 3)]
        lead: Shape = self.choose((), (), (ELLIPSIS,))
        main = self.tensor((*lead, *names), ANY_DTYPE)
        name = self.choose(*map(str, names))
        sizes: list[Dimension] = [
            *names,
            4,
            number.name,
            Size((name,), self.choose(2, 3)),
            Size((name,), divisor=self.choose(2, 16, number.name)),
            Size((name,), plus=self.choose(1, 7)),
            Size((name,), more=str(names[0])),
            Size((str(names[0]), str(names[-1]))),
        ]
        shapes: list[Shape] = [(*lead, *names)]
        for _ in range(3):
            shapes.append((*lead, *(self.choose(*sizes) for _ in range(self.random.randint(1, 2)))))
        made = self.signature([main], shapes, shapes, ANY_DTYPE, shuffled=True)
        special: list[Parameter] = []
        for p in made.parameters:
            if isinstance(p, Tensor) and not lead and p.shape and self.random.random() < 0.2:
                special.append(replace(p, strided=True))
            elif isinstance(p, Tensor) and not p.optional and self.random.random() < 0.2:
                special.append(replace(p, listed=True))
            else:
                special.append(p)
        more: list[Scalar] = []
        if self.random.random() < 0.3:
            more.append(Scalar(self.name(), "choice", True, self.choose("sum", "mean"), choices=("sum", "mean", "max")))
        if self.random.random() < 0.3:
            more.append(Scalar(self.name(), self.choose("float", "int", "bool", "str"), optional=True))
        if self.random.random() < 0.2:
            more.append(Scalar(self.name(), "str", default=self.choose("", "text", "a: b")))
        return replace(made, parameters=(*special, number, *more))

    def signature(
        self,
        needed: list[Tensor],
        shapes: list[Shape],
        results: list[Shape],
        dtypes: tuple[DType | str, ...],
        *,
        shuffled: bool,
    ) -> Signature:
        """The tensors that are needed, others of `shapes`, numbers, optional tensors, and one result or several."""
        inputs = [*needed, *(self.tensor(self.choose(*shapes), dtypes) for _ in range(self.random.randint(0, 2)))]
        known = dict.fromkeys(tensor.dtype for tensor in inputs)
        # What alone is a dtype variable would stand for nothing.
        fitting = tuple(dtype for dtype in dtypes if not isinstance(dtype, str) or dtype in known)
        outputs = [self.tensor(self.choose(*results), (*known, *fitting)) for _ in range(self.random.randint(0, 2))]
        # No bools are read by a pattern that computes means; any may be a result.
        if not outputs or self.random.random() < 0.3:
            inputs.append(self.tensor(self.choose(*results), fitting, mutable=True))
        if shuffled:
            self.random.shuffle(inputs)
        numbers = [self.scalar(with_default=False) for _ in range(self.random.randint(0, 1))]
        optional = [self.tensor(self.choose(*shapes), fitting, optional=True) for _ in range(self.random.randint(0, 1))]
        return Signature((*inputs, *numbers, *optional, *self.defaults()), tuple(outputs))

    def defaults(self) -> list[Scalar]:
        return [self.scalar(with_default=True) for _ in range(self.random.randint(0, 2))]

    def tensor(
        self, shape: Shape, dtypes: tuple[DType | str, ...], *, mutable: bool = False, optional: bool = False
    ) -> Tensor:
        return Tensor(self.name(), self.choose(*dtypes), shape, mutable, optional)

    def scalar(self, *, with_default: bool) -> Scalar:
        kind = self.choose("float", "int", "bool")
        if not with_default:
            # A template argument needs a value to build the op for, unless there are only two.
            return Scalar(self.name(), kind, constant=kind == "bool" and self.choose(True, False))
        value = {
            "float": self.choose(0.0, -1.5, 1e-6, 1e300, -1e-300, 0.1, 3.0),
            "int": self.choose(0, 1, -1, 7, 2**31, -(2**63), 2**63 - 1),
            "bool": self.choose(True, False),
        }[kind]
        return Scalar(self.name(), kind, constant=kind != "float" and self.choose(True, False), default=value)

    def leading(self, least: int, most: int) -> Shape:
        count = self.random.randint(least, most)
        return self.choose(
            (ELLIPSIS,), ("N", "B", "S")[:count], tuple(self.choose("N", "B", *SIZES) for _ in range(count))
        )

    def name(self) -> str:
        while True:
            letters = "abcdefghijklmnopqrstuvwxyz"
            name = "".join(self.random.choices(letters, k=1) + self.random.choices(letters + "0123456789_", k=3))
            if name not in self.names and parameter_problem(name) is None:
                self.names.add(name)
                return name

    def choose(self, *values):  # type: ignore[no-untyped-def] # as `random.choice`
        return self.random.choice(values)
