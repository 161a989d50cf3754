"""kjit/device.cuh on a GPU (vectors, lanes and dependent launches: test_launch.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from formats import FORMATS
from machine import DEVICE

CASES = "device_cases"
EXPORTS = [(f"largest_{name}", f"largest<{name}_t>") for name in FORMATS]


def test_raw_pointers_are_read_and_written_by_type(module: Any) -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(6)).to(DEVICE)
    out = torch.full((96,), torch.nan, device=DEVICE)
    module.accesses(out, x)
    assert torch.equal(out[:32], 2 * x[1:33] + x[1:33])
    assert torch.equal(out[32:64], 4 * x[:32])
    assert torch.equal(out[64:], x[0::2] + x[1::2])


def test_a_function_for_both_sides_runs_on_the_host(module: Any) -> None:
    assert module.on_the_host(1.5) == 4.5


@pytest.mark.parametrize("name", FORMATS)
def test_the_largest_value_is_the_one_of_the_format(module: Any, name: str) -> None:
    assert module[f"largest_{name}"]() == FORMATS[name].largest
