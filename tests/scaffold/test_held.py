"""How much each thread of a scaffolded CUDA kernel holds."""

from __future__ import annotations

import itertools

import pytest

from kjit.scaffold.held import Held


@pytest.mark.parametrize("writes_rows", [True, False])
def test_no_kernel_is_without_vectors_and_long_rows_have_no_fewer(writes_rows: bool) -> None:
    for inputs, columns in itertools.product(range(1, 12), range(12)):
        held = Held(inputs, columns, writes_rows)
        assert held.short_parts >= held.unaligned_parts >= held.parts >= 1
        assert held.long_parts >= held.unaligned_long_parts >= 1
        assert held.chunk_parts >= 1
        assert held.long_parts * inputs <= max(8, inputs)


def test_columns_are_not_held_beside_long_rows_that_are_written() -> None:
    assert {Held(1, columns, True).long_parts for columns in range(12)} == {8}
    assert Held(1, 0, False).long_parts > Held(1, 3, False).long_parts


@pytest.mark.parametrize(("inputs", "columns", "parts"), [(1, 1, 8), (1, 2, 6), (2, 0, 4), (2, 1, 3)])
def test_columns_beside_unaligned_rows_take_registers(inputs: int, columns: int, parts: int) -> None:
    assert Held(inputs, columns, True).unaligned_long_parts == parts
