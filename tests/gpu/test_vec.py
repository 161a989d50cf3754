"""kjit/vec.cuh on a GPU (AlignedVector itself: test_launch.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from machine import DEVICE

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WIDTHS = {"fp32": 2, "fp16": 4, "bf16": 4}
CASES = "type_cases"
EXPORTS = [
    (f"{name}_{exact}_{count}", f"reduce_vec<{exact}, {name}x2_t, {WIDTHS[name]}, {count}>")
    for name in DTYPES
    for exact in ("true", "false")
    for count in (1, 3, 8)
]


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("exact", ["true", "false"])
def test_vectors_are_added_up_in_float_and_rounded_once_or_in_their_own_type(
    module: Any, name: str, count: int, exact: str
) -> None:
    n = 2 * WIDTHS[name] * 96
    x = torch.randn(count, n, generator=torch.Generator().manual_seed(4)).to(DTYPES[name]).to(DEVICE)
    out = torch.empty(n, dtype=DTYPES[name], device=DEVICE)
    module[f"{name}_{exact}_{count}"](out, x)
    total, *others = x.float() if exact == "true" else x
    for row in others:
        total = total + row
    assert torch.equal(out, total.to(DTYPES[name]))
