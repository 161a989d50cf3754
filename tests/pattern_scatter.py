"""Tests of pattern scatter that apply to the GPU and to the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from each_pattern import Check
from guarded import Guarded

STORES = {
    "Store<fp32_t, fp32_t, fp32_t, int64_t>": (torch.float32, torch.float32, torch.float32, torch.int64),
    "Store<bf16_t, fp32_t, fp16_t, int32_t>": (torch.bfloat16, torch.float32, torch.float16, torch.int32),
    "Store<uint8_t, bf16_t, double, int64_t>": (torch.uint8, torch.bfloat16, torch.float64, torch.int64),
}
"""The ops of scatter_cases.h, and the dtypes of the rows, of what belongs to columns and rows, of the table that is
changed, and of the index."""

EXPORTS = [(f"store_{number}", f"{symbol}::run") for number, symbol in enumerate(STORES)]

SHAPES = [
    (1, 1),
    (3, 7),
    (70, 16),
    (33, 64),
    (40, 65),
    (17, 257),
    (9, 1001),
    (200, 96),
    (0, 8),
    (4, 0),
    (13, 44),
    (21, 150),
]
"""The number of stored rows, and the elements in each: whole vectors, shorter ones, and neither."""

OFFSETS = [(0, 0, 0), (0, 1, 0), (3, 0, 0), (0, 0, 1), (16, 32, 16), (4, 8, 2)]
"""Elements before the first of the tables, of the rows, and of the per-column tensor."""


def choose(rows: int, table_size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Numbers of which none is there twice, some of rows that the table does not have."""
    index = torch.randperm(table_size, device=device)[:rows].to(dtype)
    wrong = [-1, table_size, torch.iinfo(dtype).min, torch.iinfo(dtype).max]
    index[1 : 4 * len(wrong) : 4] = torch.tensor(wrong, dtype=dtype, device=device)[: len(index[1:16:4])]
    return index


def check_store(
    module: Any, number: int, shape: tuple[int, int], offsets: tuple[int, int, int], device: str, *, absent: bool
) -> None:
    """Rows are exact, and nothing beside them is touched: a row that is not named, or that the table does not have."""
    rows, columns = shape
    size = rows + 3
    first, second, third, whole = list(STORES.values())[number]
    of_tables, of_rows, of_shared = offsets
    cache = Guarded(first, size, columns, offset=of_tables, device=device)
    total = Guarded(third, size, columns, offset=of_tables, device=device)
    x = Guarded(first, rows, columns, offset=of_rows, device=device)
    more = Guarded(second, rows, columns, offset=of_rows, device=device)
    bias = Guarded(third, columns, offset=of_shared, device=device)
    gate = Guarded(second, rows, device=device)
    index = choose(rows, size, whole, device)
    added = x.tensor.float() * gate.tensor.float()[:, None]
    if not absent:
        added = added + more.tensor.float() + bias.tensor.float()
    kept = (index >= 0) & (index < size)
    expected_cache, expected_total = cache.tensor.clone(), total.tensor.float()
    expected_cache[index[kept].long()] = x.tensor[kept]
    expected_total[index[kept].long()] += added[kept]
    optional = (None, None) if absent else (more.tensor, bias.tensor)
    getattr(module, f"store_{number}")(cache.tensor, total.tensor, index, x.tensor, gate.tensor, *optional)
    assert torch.equal(cache.tensor, expected_cache)
    assert torch.equal(total.tensor.float(), expected_total)
    assert all(tensor.is_intact() for tensor in (cache, total, x, more, bias, gate))


def check_duplicates(module: Any, device: str) -> None:
    """A row that is named several times has one of the values in each element."""
    size = 64
    x = torch.arange(8.0, device=device)[:, None].repeat(1, size).contiguous()
    index = torch.tensor([2, 0, 2, 2, 0, 2, 2, 2], device=device)
    cache, total = torch.full((4, size), -1.0, device=device), torch.zeros(4, size, device=device)
    module.store_0(cache, total, index, x, torch.ones(8, device=device), None, None)
    assert cache[1].eq(-1).all() and cache[3].eq(-1).all()
    assert all(float(value) in (1, 4) for value in cache[0])
    assert all(float(value) in (0, 2, 3, 5, 6, 7) for value in cache[2])


def checks() -> Iterator[tuple[str, Check]]:
    """Each check of the ops, with a name."""
    for number, offsets, absent in product(range(len(STORES)), OFFSETS, (False, True)):

        def stores(module: Any, device: str, case: Any = (number, offsets, absent)) -> None:
            for shape in SHAPES:
                check_store(module, case[0], shape, case[1], device, absent=case[2])

        yield f"store-{number}-{offsets}-{absent}", stores
    yield "duplicates", check_duplicates
