"""CUB's operations of a block and of a warp: CUB's own on a GPU, kjit's replacements in the simulator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from machine import DEVICE

THREADS = 96
CASES = "cub_cases"


@pytest.fixture
def numbers() -> torch.Tensor:
    """Four items for each thread."""
    return torch.randint(-50, 50, (4 * THREADS,), dtype=torch.int32, device=DEVICE)


def empty(*shape: int) -> torch.Tensor:
    return torch.full(shape, -77, dtype=torch.int32, device=DEVICE)


def test_a_block_reduces(module: Any) -> None:
    x = torch.randn(THREADS, device=DEVICE)
    out = torch.empty(5, device=DEVICE)
    module.run_reduce(x, out)
    torch.testing.assert_close(out[0], x.sum())
    assert out[1:].tolist() == [x[:71].max(), x.argmax(), x.max(), sum(range(THREADS)) + THREADS]


def test_a_block_scans(module: Any, numbers: torch.Tensor) -> None:
    sums, running, largest, total = empty(4 * THREADS), empty(4 * THREADS), empty(THREADS), empty(2)
    module.run_scan(numbers, sums, largest, running, total)
    inclusive = numbers.cumsum(0, dtype=torch.int32)
    assert torch.equal(sums[:-3], (inclusive - numbers)[:-3])
    assert sums[-3:].tolist() == [-77] * 3
    assert torch.equal(largest, numbers[:THREADS].cummax(0).values)
    assert torch.equal(running, inclusive + 1000)
    assert total.tolist() == [THREADS - 1, THREADS - 2]


@pytest.mark.parametrize("how", range(4))
def test_a_block_loads_and_stores_a_tile(module: Any, numbers: torch.Tensor, how: int) -> None:
    out = empty(4 * THREADS)
    module.run_copy(numbers, out, how)
    assert torch.equal(out[:371], numbers[:371])
    assert out[371:].tolist() == [-1] * 13


def test_a_block_sorts(module: Any) -> None:
    keys = torch.randint(-9, 9, (2 * THREADS,), device=DEVICE) / 4
    up, down, by_bits = empty(2 * THREADS), empty(2 * THREADS), empty(2 * THREADS)
    module.run_sort(keys, up, down, by_bits)
    assert torch.equal(up, keys.sort(stable=True).indices.int())
    assert torch.equal(down, keys.sort(stable=True, descending=True).indices.int())
    values = torch.arange(2 * THREADS, dtype=torch.int32, device=DEVICE) * 37 % 256
    assert torch.equal(by_bits, values[(values // 16).sort(stable=True).indices])


def test_a_warp_reduces_and_scans(module: Any, numbers: torch.Tensor) -> None:
    x = numbers[:64]
    out = empty(64, 4)
    module.run_warps(x, out)
    assert torch.equal(out[::16, 0], x.view(4, 16).sum(1, dtype=torch.int32))
    heads = [i for i in range(64) if i % 32 == 0 or x[i] % 5 == 0]
    for head, end in zip(heads, [*heads[1:], 64], strict=True):
        assert out[head, 1] == x[head:end].sum()
    warps = x.view(2, 32)
    assert torch.equal(out[:, 2].view(2, 32), warps.cumsum(1, dtype=torch.int32) - warps)
    assert torch.equal(out[::32, 3], warps.sum(1, dtype=torch.int32))
