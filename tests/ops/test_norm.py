"""RMSNorm, the same of a sum, and LayerNorm against their formulas in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kjit.testing
from kjit.ops._floats import FLOATS
from kjit.ops.norm import (
    _fused_add_rmsnorm,
    _layernorm,
    _rmsnorm,
    fused_add_rmsnorm,
    layernorm,
    qknorm_across_heads,
    rmsnorm,
)

device = kjit.testing.device_fixture("cuda")

SHAPES = ((0, 64), (3, 0), (1, 1), (3, 7), (65, 128), (2, 1023), (2, 5120), (1, 16_384), (1, 20_001))


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * (weight + offset)


def add_and_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return norm(x + residual, weight, eps, offset), x + residual


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def make_inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, Any]:
    return {
        "x": kjit.testing.random_tensor(shape, dtype, device),
        "weight": kjit.testing.random_tensor(shape[-1:], dtype, device),
        "eps": 1e-5,
        "offset": 1.0,
    }


def make_two_inputs(shape: tuple[int, ...], device: str) -> dict[str, Any]:
    return make_inputs(shape, torch.bfloat16, device) | {
        "residual": kjit.testing.random_tensor(shape, torch.bfloat16, device)
    }


def make_inputs_with_bias(shape: tuple[int, ...], device: str) -> dict[str, Any]:
    inputs = make_inputs(shape, torch.float16, device)
    del inputs["offset"]
    return inputs | {"bias": kjit.testing.random_tensor(shape[-1:], torch.float16, device)}


class TestRmsNorm(kjit.testing.OpTest, op=rmsnorm, module=_rmsnorm, reference=norm, inputs=make_inputs, dtypes=FLOATS):
    shape = (3, 1001)
    shapes = SHAPES
    aligned_shape = (3, 1024)
    in_place = ("x", "out")
    huge_shape = (2**19 + 11, 4096)
    huge_inputs = ("x",)
    test_compiles_without_a_gpu = None  # tests/test_cuda_sources.py has it


class TestFusedAddRmsNorm(
    kjit.testing.OpTest,
    op=fused_add_rmsnorm,
    module=_fused_add_rmsnorm,
    reference=add_and_norm,
    inputs=make_two_inputs,
):
    shape = (3, 1001)
    shapes = SHAPES
    aligned_shape = (3, 1024)
    test_compiles_without_a_gpu = None


class TestLayerNorm(
    kjit.testing.OpTest, op=layernorm, module=_layernorm, reference=layer_norm, inputs=make_inputs_with_bias
):
    shape = (3, 1001)
    shapes = tuple(shape for shape in SHAPES if 0 not in shape)
    aligned_shape = (3, 1024)
    in_place = ("x", "out")
    test_compiles_without_a_gpu = None


@pytest.mark.parametrize("sizes", [(1024, 256), (7, 3)])
@pytest.mark.parametrize("rows", [0, 1, 65])
def test_the_norm_across_heads_of_slices_of_a_projection(rows: int, sizes: tuple[int, int], device: str) -> None:
    dtype, (of_q, of_k) = torch.bfloat16, sizes
    qkv = kjit.testing.random_tensor((rows, of_q + 2 * of_k), dtype, device)
    q, k, v = qkv.split([of_q, of_k, of_k], 1)
    weights = [kjit.testing.random_tensor((size,), dtype, device) for size in sizes]
    expected = [norm(x.double(), weight.double(), 1e-5, 0) for x, weight in zip((q, k), weights, strict=True)]
    v_before = v.clone()
    qknorm_across_heads(q, k, *weights, 1e-5)
    limits = kjit.testing.tolerances(dtype)
    torch.testing.assert_close(q, expected[0].to(dtype), **limits)
    torch.testing.assert_close(k, expected[1].to(dtype), **limits)
    assert torch.equal(v, v_before)
