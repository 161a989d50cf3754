"""`add_constant_highway` against PyTorch."""

from __future__ import annotations

import pytest
import torch

from kjit.ops.add_constant_highway import add_constant_highway

pytestmark = pytest.mark.highway


@pytest.mark.parametrize("numel", [0, 1, 3, 16, 17, 32_769, 1_000_003])
def test_every_element_is_larger_by_the_constant(numel: int) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (numel + 1,), dtype=torch.int32)[1:]  # not aligned
    assert torch.equal(add_constant_highway(x), x + 1)


def test_a_sum_wraps_around_and_may_lie_where_x_does() -> None:
    x = torch.full((35,), 2**31 - 1, dtype=torch.int32)
    assert add_constant_highway(x, out=x) is x
    assert x.tolist() == [-(2**31)] * 35


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="DType mismatch"):
        add_constant_highway(torch.zeros(3))
    with pytest.raises(RuntimeError, match="not contiguous"):
        add_constant_highway(torch.zeros(6, dtype=torch.int32)[::2])


@pytest.mark.nightly
def test_torch_compile_takes_it_whole() -> None:
    x = torch.arange(40, dtype=torch.int32)
    assert torch.equal(torch.compile(add_constant_highway, fullgraph=True)(x), x + 1)
