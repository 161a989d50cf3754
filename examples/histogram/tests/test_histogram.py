"""The op on a GPU, or without one in kjit's simulator, which reports races and accesses out of bounds."""

from __future__ import annotations

import pytest
import torch
from histogram import histogram

import kjit.testing

device = kjit.testing.device_fixture("cuda")


@pytest.mark.parametrize("size", [0, 1, 257, 10_000])
def test_it_counts_as_bincount_does(size: int, device: str) -> None:
    values = torch.randint(0, 16, (size,), dtype=torch.int32)
    counts = histogram(values.to(device), 16)
    torch.testing.assert_close(counts.cpu(), values.bincount(minlength=16).int())


def test_values_outside_of_the_bins_are_not_counted(device: str) -> None:
    values = torch.tensor([-1, 0, 15, 16, 2**31 - 1], dtype=torch.int32, device=device)
    assert histogram(values, 16).nonzero().flatten().tolist() == [0, 15]


def test_a_tensor_that_does_not_fit_is_named(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"values: .*dtype=int64"):
        histogram(torch.zeros(4, dtype=torch.int64, device=device), 16)
