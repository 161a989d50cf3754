"""How much of a tensor each thread of a scaffolded CUDA kernel holds, in vectors.

As much as its registers have room for, or a block's shared memory: what is right was measured (docs/performance.md),
and depends on how many tensors there are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """How many vectors a thread holds.

    Attributes:
        inputs: how many tensors of rows are read.
        columns: how many tensors of one row lie beside them.
        writes_rows: whether rows are written, too; else each is reduced to numbers.
    """

    inputs: int
    columns: int
    writes_rows: bool

    @property
    def parts(self) -> int:
        """Of a row, so that all inputs and columns fit into the registers."""
        held = self.inputs + self.columns
        return 4 if held <= 2 else 2 if held <= 4 else 1

    @property
    def unaligned_parts(self) -> int:
        """The same where rows are not aligned, of which columns are not held."""
        return 4 if self.inputs == 1 and self.writes_rows else self.parts

    @property
    def short_parts(self) -> int:
        """The same where such rows are short."""
        return 3 * self.unaligned_parts // 2

    @property
    def long_parts(self) -> int:
        """The same where rows are long, and columns are not held if rows are written."""
        held = self.inputs if self.writes_rows else self.inputs + self.columns
        return 8 if held == 1 else 4 if held == 2 else 2 if held <= 4 else 1

    @property
    def unaligned_long_parts(self) -> int:
        """The same where such rows are not aligned, as far as clusters of half blocks hold them: to cut vectors of
        columns takes registers, too."""
        if self.long_parts == 8 and self.columns > 1:
            return 6
        return 3 if self.long_parts == 4 and self.parts == 2 else self.long_parts

    @property
    def chunk_parts(self) -> int:
        """The same where rows are too long for the registers of a block, and addresses take more of them."""
        return self.long_parts if self.inputs == 1 else self.parts
