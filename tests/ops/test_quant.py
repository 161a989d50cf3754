"""Quantisation, bit for bit PyTorch's cast of the scaled values."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops._floats import FP8
from kjit.ops.quant import per_tensor_quant_fp8, per_token_group_quant, per_token_quant_fp8, static_quant_fp8

device = kjit.testing.device_fixture("cuda")


def quantised(x: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype = FP8) -> torch.Tensor:
    """The cast of `x * factor` as bits, computed on the CPU."""
    scaled = x.float().cpu() * factor.cpu()
    if dtype == torch.int8:
        return scaled.round().clamp(-128, 127).to(torch.int8)
    return scaled.clamp(-448, 448).to(dtype).view(torch.int8)


def inverse(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale == 0, 0, 1 / scale)


def scale_of(largest: torch.Tensor, dtype: torch.dtype = FP8) -> torch.Tensor:
    return largest * (1 / torch.tensor(127.0 if dtype == torch.int8 else 448.0))


def expected_groups(x: torch.Tensor, group_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.float().cpu().view(x.shape[0], x.shape[1] // group_size, group_size)
    largest = groups.abs().amax(-1)
    scale = scale_of(largest, dtype)
    return quantised(groups, inverse(scale)[..., None], dtype).view(x.shape), scale


def quantised_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 448
    return x * inverse(scale), scale


REFERENCES = {per_token_quant_fp8: quantised_rows}


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.nightly), torch.float32]
)
@pytest.mark.parametrize("numel", [0, 1, 7, 4096, 50_001, 100_003, 131_072])
def test_one_scale_that_is_found(numel: int, dtype: torch.dtype, device: str) -> None:
    x = kjit.testing.random_tensor((numel,), dtype, device) * 3
    out, scale = per_tensor_quant_fp8(x)
    largest = x.float().abs().max() if numel > 0 else torch.zeros(())
    assert scale.item() == scale_of(largest.cpu()).item()
    assert torch.equal(out.view(torch.int8).cpu(), quantised(x, inverse(scale)))


@pytest.mark.parametrize("numel", [1000, 100_000])
def test_nan_does_not_count_for_a_scale(numel: int, device: str) -> None:
    x = kjit.testing.random_tensor((numel,), torch.float32, device)
    x[[0, 9]] = torch.nan
    out, scale = per_tensor_quant_fp8(x)
    assert scale.item() == scale_of(x.nan_to_num(0).abs().max().cpu()).item()
    assert out.float().isnan().nonzero().flatten().tolist() == [0, 9]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_more_than_two_to_the_31_elements() -> None:
    numel = 2**31 + 4099
    x = torch.full((numel,), 0.5, dtype=torch.bfloat16, device="cuda")
    x[-1], x[2**31] = -896.0, 448.0
    out, scale = per_tensor_quant_fp8(x)
    assert scale.item() == 2.0
    assert [out[at].float().item() for at in (-1, 2**31, 0)] == [-448.0, 224.0, 0.25]
    assert torch.equal(static_quant_fp8(x, scale).view(torch.int8), out.view(torch.int8))


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_one_scale_that_is_given(offset: int, device: str) -> None:
    x = kjit.testing.random_tensor((5, 1000), torch.bfloat16, device).view(-1)[offset:] * 100  # some are saturated
    scale = torch.full((1,), 0.37, device=device)
    out = static_quant_fp8(x, scale)
    assert torch.equal(out.view(torch.int8).cpu(), quantised(x, inverse(scale)))
    static_quant_fp8(x, torch.zeros_like(scale), out=out)
    assert not bool(out.float().any())


@pytest.mark.parametrize("numel", [1000, 100_000])
def test_the_scale_of_a_tensor_replaces_what_was_there(numel: int, device: str) -> None:
    x = kjit.testing.random_tensor((numel + 1,), torch.bfloat16, device)[1:]
    scale = torch.full((1,), 1e9, device=device)
    per_tensor_quant_fp8(x, scale=scale)
    assert scale.item() == scale_of(x.float().abs().max().cpu()).item()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.nightly), torch.float32]
)
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


@pytest.mark.nightly
def test_torch_compile_takes_them_whole(device: str) -> None:
    x = kjit.testing.random_tensor((65, 128), torch.bfloat16, device)
    out, scale = torch.compile(per_token_quant_fp8, fullgraph=True)(x)
    expected, expected_scale = expected_groups(x, 128, FP8)
    assert torch.equal(out.view(torch.int8).cpu(), expected)
    assert torch.equal(scale.cpu(), expected_scale)
