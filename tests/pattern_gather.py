"""Tests of pattern gather that apply to the GPU and to the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from each_pattern import Check
from guarded import Guarded

LOOK_UPS = {
    "LookUp<fp32_t, fp32_t, fp32_t, int64_t>": (torch.float32, torch.float32, torch.float32, torch.int64),
    "LookUp<bf16_t, fp32_t, fp16_t, int32_t>": (torch.bfloat16, torch.float32, torch.float16, torch.int32),
    "LookUp<uint8_t, bf16_t, double, int64_t>": (torch.uint8, torch.bfloat16, torch.float64, torch.int64),
}
"""The ops of gather_cases.h, and the dtypes of table, column, sum and index."""

EXPORTS = [(f"look_up_{number}", f"{symbol}::run") for number, symbol in enumerate(LOOK_UPS)]

SHAPES = [(0, 257), (5, 0), (1, 1), (3, 7), (70, 16), (33, 64), (40, 65), (17, 257), (9, 1001), (200, 96), (3, 50_257)]
"""The number of selected rows, and the elements in each."""

OFFSETS = [(0, 0, 0), (0, 1, 0), (3, 0, 0), (0, 0, 1), (16, 32, 16)]
"""Elements before the first of the table, of the results, and of the per-column tensor."""


def check_look_up(
    module: Any, number: int, shape: tuple[int, int], offsets: tuple[int, int, int], device: str, *, absent: bool
) -> None:
    """Results are exact, and nothing beside them is touched; a row that the table does not have counts as zeros."""
    rows, columns = shape
    first, second, third, whole = list(LOOK_UPS.values())[number]
    of_table, of_results, of_shared = offsets
    table = Guarded(first, 11, columns, offset=of_table, device=device)
    column = Guarded(second, columns, offset=of_shared, device=device)
    bias = Guarded(third, columns, offset=of_shared, device=device)
    gate = Guarded(third, rows, device=device)
    shift = Guarded(second, rows, device=device)
    total = Guarded(third, rows, columns, offset=of_results, device=device)
    out = Guarded(first, rows, columns, offset=of_results, device=device)
    index = torch.randint(-1, 12, (rows,), device=device, dtype=whole)
    index[:3] = torch.tensor([10, 11, -1], device=device, dtype=whole)[: min(rows, 3)]
    has_row = ((index >= 0) & (index < 11))[:, None]
    chosen = torch.where(has_row, table.tensor.float()[index.long().clamp(0, 10)], 0)
    expected = total.tensor.float() + chosen * gate.tensor.float()[:, None] + column.tensor.float()
    if not absent:
        expected = expected + bias.tensor.float() + shift.tensor.float()[:, None]
    optional = (None, None) if absent else (bias.tensor, shift.tensor)
    getattr(module, f"look_up_{number}")(
        table.tensor, index, column.tensor, optional[0], gate.tensor, optional[1], total.tensor, out.tensor
    )
    assert torch.equal(total.tensor.float(), expected)
    assert torch.equal(out.tensor.float(), chosen)
    assert all(tensor.is_intact() for tensor in (table, column, bias, gate, shift, total, out))


def check_no_rows(module: Any, device: str) -> None:
    """A table without rows gives zeros."""
    for columns in (257, 256, 1):
        index = torch.ones(5, dtype=torch.int64, device=device)
        column, gate, total, out = (
            torch.ones(shape, device=device) for shape in (columns, 5, (5, columns), (5, columns))
        )
        module.look_up_0(torch.ones(0, columns, device=device), index, column, None, gate, None, total, out)
        assert out.eq(0).all()
        assert total.eq(2).all()


def checks() -> Iterator[tuple[str, Check]]:
    """Each check of the ops, with a name."""
    for number, offsets, absent in product(range(len(LOOK_UPS)), OFFSETS, (False, True)):

        def looks_up(module: Any, device: str, case: Any = (number, offsets, absent)) -> None:
            for shape in SHAPES:
                check_look_up(module, case[0], shape, case[1], device, absent=case[2])

        yield f"look_up-{number}-{offsets}-{absent}", looks_up
    yield "no_rows", check_no_rows
