"""kjit/vec.cuh on a GPU (AlignedVector itself: test_launch.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from machine import DEVICE

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WIDTHS = {"fp32": 2, "fp16": 4, "bf16": 4}
EXPORTS = [
    (f"{name}_{exact}_{count}", f"reduce_vec<{exact}, {name}x2_t, {WIDTHS[name]}, {count}>")
    for name in DTYPES
    for exact in ("true", "false")
    for count in (1, 3, 8)
]


@pytest.fixture(scope="module")
def module(load_cuda: Callable[..., Any]) -> Any:
    return load_cuda("type_cases", EXPORTS)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", DTYPES)
def test_vectors_are_added_up_in_float_and_rounded_once(module: Any, name: str, count: int) -> None:
    n = 2 * WIDTHS[name] * 96
    x = torch.randn(count, n, generator=torch.Generator().manual_seed(4)).to(DTYPES[name]).to(DEVICE)
    out = torch.empty(n, dtype=DTYPES[name], device=DEVICE)
    module[f"{name}_true_{count}"](out, x)
    total = torch.zeros(n, device=DEVICE)
    for row in x:
        total += row.float()
    assert torch.equal(out, total.to(DTYPES[name]))


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", DTYPES)
def test_vectors_are_added_up_in_their_own_type(module: Any, name: str, count: int) -> None:
    n = 2 * WIDTHS[name] * 96
    x = torch.randn(count, n, generator=torch.Generator().manual_seed(5)).to(DTYPES[name]).to(DEVICE)
    out = torch.empty(n, dtype=DTYPES[name], device=DEVICE)
    module[f"{name}_false_{count}"](out, x)
    total = x[0].clone()
    for row in x[1:]:
        total = total + row
    assert torch.equal(out, total)
