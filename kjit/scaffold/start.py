"""The computation of a new op, until its author replaces it.

It uses every parameter, so that a test notices a lost one, and is the same in C++ and in Python:

- elementwise, minimal: the sum of the inputs (the square of a single one), times every float, plus every int and bool.
  For the default signature: `x * alpha`.
- gather: the same with the rows that the index chooses; those of a single table are copied.
- scatter: the same with the rows that are written to a table; with several tables and as many inputs, each table gets
  the rows of its own input.
- rowwise: RMSNorm. The sum of the rows, divided by its root mean square, times every input for columns or rows and
  every float but the first, which is the epsilon; plus optional tensors and every int and bool. A result with a
  number for each row is one over the root mean square.

An absent optional tensor counts as zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kjit.dtypes import DType
from kjit.scaffold.patterns import Kind, Placed
from kjit.signature.signature import Scalar, Signature, Tensor

Language = Literal["cpp", "python"]

FACTOR = "inverse_rms"
"""The variable that a row's elements are multiplied by, in both languages."""


@dataclass(frozen=True)
class Start:
    """The math of a new op.

    Args:
        placed: its signature, with the roles of its tensors.
    """

    placed: Placed

    @property
    def signature(self) -> Signature:
        return self.placed.signature

    @property
    def sums(self) -> bool:
        """Whether the kernel reduces rows."""
        return self.placed.sums

    @property
    def results(self) -> list[Tensor]:
        """The tensors that a call writes to: outputs, then those changed in place."""
        return [*self.signature.outputs, *self.signature.mutated]

    @property
    def writes_rows(self) -> bool:
        """Whether any result has more than one element per row."""
        return any(self.placed.kind(tensor) == "element" for tensor in self.results)

    @property
    def scattered(self) -> list[Tensor]:
        """The tables whose rows are written."""
        return [tensor for tensor in self.signature.mutated if self.placed.kind(tensor) == "table"]

    def _rows_for(self, table: Tensor) -> list[Tensor]:
        """The inputs that the rows of a table are computed from."""
        rows = self._of("element", optional=False)
        if len(rows) == len(self.scattered):
            return [rows[self.scattered.index(table)]]
        return self._of("element")

    @property
    def moves(self) -> bool:
        """Whether elements are only copied: from one table to one output, or from each input to its own table."""
        if self.scattered:
            others = len(self.signature.parameters) - len(self.scattered) - 1  # the index
            return others == len(self.scattered) and all(
                [row.dtype for row in self._rows_for(table)] == [table.dtype] for table in self.scattered
            )
        inputs = [tensor for tensor in self.signature.inputs if tensor != self.placed.index]
        numbers = [parameter for parameter in self.signature.parameters if isinstance(parameter, Scalar)]
        if [self.placed.kind(tensor) for tensor in inputs] != ["table"] or numbers or len(self.results) != 1:
            return False
        return inputs[0].dtype == self.results[0].dtype

    @property
    def factor(self) -> str:
        """The variable for the result of a row's sum; empty for an op without sums."""
        return FACTOR if self.sums else ""

    def _of(self, *kinds: Kind, optional: bool | None = None) -> list[Tensor]:
        return [tensor for tensor in self.placed.inputs(*kinds) if optional in (None, tensor.optional)]

    @property
    def eps(self) -> str | None:
        """The parameter that keeps a row of zeros from being divided by zero, if there is one."""
        return next((s.name for s in self.signature.scalars if s.kind == "float"), None) if self.sums else None

    @property
    def term_tensors(self) -> list[str]:
        """The tensors in a term of the sum; if no result is a row, per-column tensors too."""
        if not self.sums:
            return []
        tensors = self._of("element") if self.writes_rows else self._of("element", "column")
        return [tensor.name for tensor in tensors]

    @property
    def row_tensors(self) -> list[str]:
        """The tensors that are read or written once per row, with the sum."""
        if not self.sums:
            return []
        inputs = [t.name for t in self._of("number") if t.mutable or not self.writes_rows]
        return inputs + [t.name for t in self.signature.outputs if self.placed.kind(t) == "number"]

    @property
    def row_results(self) -> list[str]:
        """The results with one element per row, where rows are summed."""
        return [t.name for t in self.results if self.sums and self.placed.kind(t) == "number"]

    @property
    def element_results(self) -> list[str]:
        return [t.name for t in self.results if self.placed.kind(t) == "element" or t in self.scattered]

    @property
    def summed(self) -> str:
        """The expression that is squared and summed over a row."""
        tensors = [t for name in self.term_tensors for t in self.signature.inputs if t.name == name]
        terms = [tensor.name for tensor in tensors if self.placed.kind(tensor) == "element"]
        factors = [tensor.name for tensor in tensors if self.placed.kind(tensor) == "column" and not tensor.optional]
        summands = [tensor.name for tensor in tensors if self.placed.kind(tensor) == "column" and tensor.optional]
        return _combine(terms, factors, summands)

    def expression(self, name: str, language: Language) -> str:
        """The expression for a result."""
        result = next(tensor for tensor in self.results if tensor.name == name)
        index = self.signature.outputs.index(result) if result in self.signature.outputs else 0
        if self.sums and self.placed.kind(result) == "number":
            return self._boolean(result, self._row_result(result, index, language))
        # Its own value and read-only ones: results must not depend on the order in which they are written.
        read = [
            t for t in self._of("element", "halves", "table") if not t.mutable or (t is result) or not result.mutable
        ]
        if not self.sums and not result.mutable and not self._of("table"):
            read = [tensor for tensor in read if not tensor.mutable] or read
        if self.scattered:
            read = list(dict.fromkeys([*self._rows_for(result), *self._of("element", optional=True)]))
        always = [t for t in self._of("column", "number", optional=False) if not t.mutable]
        absent = self._of("column", "number", optional=True)
        factors = [*([self.factor] if self.sums else []), *(self._name(t, language) for t in always)]
        factors += [s.name for s in self.signature.scalars if s.kind == "float" and s.name != self.eps]
        summands = [self._name(tensor, language) for tensor in absent]
        # Whether a sum of several rounded numbers is zero depends on the rounding.
        if not self._is_bool(result) or all(self._is_bool(other) for other in self.results):
            summands += self._whole_numbers + ([str(index)] if index else [])
        text = self._sum(read, factors, summands, language)
        return self._boolean(result, text)

    def _row_result(self, result: Tensor, index: int, language: Language) -> str:
        keeps_dim = self.placed.keeps_dim(result)

        def of_row(tensor: Tensor) -> str:
            if language != "python" or self.placed.keeps_dim(tensor) == keeps_dim:
                return tensor.name
            return f"{tensor.name}[..., {None if keeps_dim else 0}]"

        factor = FACTOR if language != "python" or keeps_dim else f"{FACTOR}[..., 0]"
        factors, summands = [], [str(index)] if index else []
        if not self.writes_rows:
            factors = [of_row(t) for t in self._of("number", optional=False) if not t.mutable]
            factors += [s.name for s in self.signature.scalars if s.kind == "float" and s.name != self.eps]
            absent = [of_row(t) for t in self._of("number", optional=True)]
            summands = [*absent, *self._whole_numbers, *summands]
        own = [result.name] if result.mutable else []
        return _combine([factor], factors, [*own, *summands])

    @property
    def _whole_numbers(self) -> list[str]:
        return [p.name for p in (*self.signature.scalars, *self.signature.constants) if p.kind != "float"]

    def _sum(self, tensors: Sequence[Tensor], factors: list[str], summands: list[str], language: Language) -> str:
        terms = [name for tensor in tensors for name in self._names(tensor, language)]
        is_lone = len(terms) == 1 and not factors and not summands
        if is_lone and not self.scattered and self.placed.kind(tensors[0]) == "element":
            return f"{terms[0]} * {terms[0]}"
        # A sum of bools is a number in C++ and a bool in PyTorch.
        bools = all(isinstance(tensor.dtype, DType) and tensor.dtype.kind == "bool" for tensor in tensors)
        return _combine(terms, factors, summands, plus=" | " if bools else " + ")

    def _names(self, tensor: Tensor, language: Language) -> list[str]:
        """The names of a tensor's values for an element."""
        if self.placed.kind(tensor) == "halves":
            return [f"{tensor.name}_left", f"{tensor.name}_right"]
        return [self._name(tensor, language)]

    def _name(self, tensor: Tensor, language: Language) -> str:
        """A tensor in an expression: in Python a whole tensor, in C++ an element."""
        if language != "python":
            return tensor.name
        if self.placed.kind(tensor) == "table":
            (index,) = self.placed.inputs("index")
            return f"{tensor.name}[{index.name}]"
        if self.placed.kind(tensor) == "number" and not self.placed.keeps_dim(tensor):
            columns = 1 if self.sums else len(self._of("table")[0].shape) - 1
            return f"{tensor.name}[{', '.join(['...', *['None'] * columns])}]" if columns else tensor.name
        return tensor.name

    @staticmethod
    def _is_bool(tensor: Tensor) -> bool:
        return isinstance(tensor.dtype, DType) and tensor.dtype.kind == "bool"

    def _boolean(self, result: Tensor, text: str) -> str:
        if self._is_bool(result):
            return f"({text}) != 0" if " " in text else f"{text} != 0"
        return text


@dataclass(frozen=True)
class View:
    """An op, as the templates of one language need it.

    Args:
        start: its math.
    """

    start: Start

    @property
    def placed(self) -> Placed:
        return self.start.placed

    @property
    def signature(self) -> Signature:
        return self.placed.signature


def python_tuple(items: Iterable[str]) -> str:
    """A tuple of these expressions, in Python."""
    texts = list(items)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _combine(terms: Sequence[str], factors: Sequence[str], summands: Sequence[str], *, plus: str = " + ") -> str:
    """`(terms) * factors + summands`."""
    text = plus.join(terms)
    if len(terms) > 1 and (factors or (plus == " | " and summands)):
        text = f"({text})"
    return " + ".join([" * ".join([text, *factors]), *summands])
