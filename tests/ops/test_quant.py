"""Quantisation, bit for bit PyTorch's cast of the scaled values."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops._floats import FLOATS
from kjit.ops.quant import FP8, per_tensor_quant_fp8, per_token_group_quant, per_token_quant_fp8, static_quant_fp8

device = kjit.testing.device_fixture("cuda")


def quantised(x: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype = FP8) -> torch.Tensor:
    """The cast of `x * factor` as bits, computed on the CPU."""
    scaled = x.float().cpu() * factor.cpu()
    if dtype == torch.int8:
        return scaled.round().clamp(-128, 127).to(torch.int8)
    return scaled.clamp(-448, 448).to(dtype).view(torch.int8)


def inverse(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale == 0, 0, 1 / scale)


def expected_groups(x: torch.Tensor, group_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.float().cpu().view(x.shape[0], x.shape[1] // group_size, group_size)
    largest = groups.abs().amax(-1)
    limit = torch.full_like(largest, 127 if dtype == torch.int8 else 448)  # torch multiplies by 1 / a number
    factor = torch.where(largest > 0, limit / largest, 0)
    return quantised(groups, factor[..., None], dtype).view(x.shape), largest / limit


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("numel", [0, 1, 7, 4096, 100_003])
def test_one_scale_that_is_found(numel: int, dtype: torch.dtype, device: str) -> None:
    x = kjit.testing.random_tensor((numel,), dtype, device) * 3
    out, scale = per_tensor_quant_fp8(x)
    largest = x.float().abs().max() if numel > 0 else torch.zeros(())
    assert scale.item() == (largest.cpu() / torch.tensor(448.0)).item()
    assert torch.equal(out.view(torch.int8).cpu(), quantised(x, inverse(scale)))


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_one_scale_that_is_given(offset: int, device: str) -> None:
    x = kjit.testing.random_tensor((5, 1000), torch.bfloat16, device).view(-1)[offset:] * 100  # some are saturated
    scale = torch.full((1,), 0.37, device=device)
    out = static_quant_fp8(x, scale)
    assert torch.equal(out.view(torch.int8).cpu(), quantised(x, inverse(scale)))
    static_quant_fp8(x, torch.zeros_like(scale), out=out)
    assert not bool(out.float().any())


def test_the_scale_of_a_tensor_replaces_what_was_there(device: str) -> None:
    x = kjit.testing.random_tensor((1001,), torch.bfloat16, device)[1:]
    scale = torch.full((1,), 1e9, device=device)
    per_tensor_quant_fp8(x, scale=scale)
    assert scale.item() == (x.float().abs().max().cpu() / torch.tensor(448.0)).item()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(0, 64), (1, 1), (3, 1001), (65, 128), (2, 16_384)])
def test_a_scale_for_each_token(shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
    x = kjit.testing.random_tensor(shape, dtype, device)
    out, scale = per_token_quant_fp8(x)
    expected, expected_scale = expected_groups(x, shape[1], FP8)
    assert torch.equal(out.view(torch.int8).cpu(), expected)
    assert torch.equal(scale.cpu(), expected_scale)


@pytest.mark.parametrize("to", [FP8, torch.int8])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_a_scale_for_each_group(group_size: int, to: torch.dtype, device: str) -> None:
    x = kjit.testing.random_tensor((67, 1024), torch.bfloat16, device)
    x[3] = 0
    out, scale = per_token_group_quant(x, group_size, to)
    expected, expected_scale = expected_groups(x, group_size, to)
    assert torch.equal(out.view(torch.int8).cpu(), expected)
    assert torch.equal(scale.cpu(), expected_scale)
    assert not bool(out[3].float().any())


def test_groups_that_do_not_divide_a_row_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="100 columns are not 3 groups"):
        per_token_group_quant(torch.zeros(2, 100, device=device, dtype=torch.bfloat16), 32)


def test_other_dtypes_are_refused(device: str) -> None:
    with pytest.raises(TypeError, match="float64 is not one of"):
        per_tensor_quant_fp8(torch.zeros(2, device=device, dtype=torch.float64))
    with pytest.raises(TypeError, match="neither"):
        per_token_group_quant(torch.zeros(2, 128, device=device), 128, torch.int16)


def test_torch_compile_takes_them_whole(device: str) -> None:
    x = kjit.testing.random_tensor((65, 128), torch.bfloat16, device)
    out, scale = torch.compile(per_token_quant_fp8, fullgraph=True)(x)
    expected, expected_scale = expected_groups(x, 128, FP8)
    assert torch.equal(out.view(torch.int8).cpu(), expected)
    assert torch.equal(scale.cpu(), expected_scale)
