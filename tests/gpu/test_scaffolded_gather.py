"""Ops of `kjit new --pattern gather`, with rows and indices that their own tests lack."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from guarded import Guarded
from machine import DEVICE, many
from scaffolded import build

DTYPES = {"fp32_t": torch.float32, "bf16_t": torch.bfloat16, "uint8_t": torch.uint8}
OFFSETS = [(1, 0), (0, 1), (3, 3), (4, 4), (7, 2), (17, 5)]
SHAPES = [
    *((many(2000), size, 0, 0) for size in (1, 3, 16, 31, 32, 64, 65, 257, 264, 300, 1001, 2056)),
    (many(40), 50_257, 0, 0),
    (many(40), 65_536, 0, 0),
    (3, 600_003, 0, 0),
    # Aligned at the same time, in part, or never.
    *((33, size, table, rows) for size in (64, 257) for table, rows in OFFSETS),
]
"""The number of rows, their size, and the elements before the table and before the rows in memory."""


@pytest.fixture(scope="module")
def take_rows(tmp_path_factory: pytest.TempPathFactory) -> Any:
    signature = "src: T[M, D], index: int64[N] -> out: T[N, D]"
    return build(tmp_path_factory.mktemp("rows"), "take_rows", signature, pattern="gather", dtypes=DTYPES)


@pytest.fixture(scope="module")
def add_rows_(tmp_path_factory: pytest.TempPathFactory) -> Any:
    signature = "acc: mut T[N, D], table: T[M, D], index: int32[N], bias: T[D], more: Optional T[D] = None"
    return build(tmp_path_factory.mktemp("rows"), "add_rows_", signature, pattern="gather", dtypes=DTYPES)


def choose(count: int, table_size: int) -> torch.Tensor:
    """Indices, with the first and the last row of the table among them, and some that it does not have."""
    index = torch.randint(0, table_size, (count,), device=DEVICE)
    index[::7] = table_size - 1
    index[1::7] = 0
    index[2::11] = table_size
    index[3::13] = -1
    return index


def chosen(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    inside = (index >= 0) & (index < len(table))
    return torch.where(inside[:, None], table[index.long().clamp(0, len(table) - 1)], torch.zeros_like(table[:1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size", "table_offset", "row_offset"), SHAPES)
def test_rows_are_moved_wherever_they_begin(
    take_rows: Any, dtype: str, rows: int, size: int, table_offset: int, row_offset: int
) -> None:
    for table_size in (1, 2, rows):
        src = Guarded(DTYPES[dtype], table_size, size, offset=table_offset, device=DEVICE)
        out = Guarded(DTYPES[dtype], rows, size, offset=row_offset, device=DEVICE)
        index = choose(rows, table_size)
        getattr(take_rows, dtype)(src.tensor, index, out.tensor)
        assert torch.equal(out.tensor, chosen(src.tensor, index))
        assert out.is_intact()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size", "table_offset", "row_offset"), SHAPES)
def test_columns_and_rows_that_are_read_too_may_begin_anywhere(
    add_rows_: Any, dtype: str, rows: int, size: int, table_offset: int, row_offset: int
) -> None:
    table = Guarded(DTYPES[dtype], rows, size, offset=table_offset, device=DEVICE)
    bias = Guarded(DTYPES[dtype], size, offset=table_offset, device=DEVICE)
    index = choose(rows, rows).int()
    for more in (None, Guarded(DTYPES[dtype], size, offset=row_offset, device=DEVICE)):
        acc = Guarded(DTYPES[dtype], rows, size, offset=row_offset, device=DEVICE)
        expected = (acc.tensor + chosen(table.tensor, index)) * bias.tensor
        if more is not None:
            expected = expected + more.tensor
        getattr(add_rows_, dtype)(acc.tensor, table.tensor, index, bias.tensor, None if more is None else more.tensor)
        assert torch.equal(acc.tensor, expected)
        assert acc.is_intact()


def test_a_table_or_rows_may_be_empty(take_rows: Any) -> None:
    for rows, table_size, size in ((0, 5, 257), (5, 5, 0)):
        out = torch.empty(rows, size, device=DEVICE)
        take_rows.fp32_t(torch.ones(table_size, size, device=DEVICE), torch.zeros(rows, device=DEVICE).long(), out)
    for size in (257, 256, 1):
        out = torch.ones(5, size, device=DEVICE)
        take_rows.fp32_t(torch.empty(0, size, device=DEVICE), torch.zeros(5, device=DEVICE).long(), out)
        assert out.eq(0).all()
