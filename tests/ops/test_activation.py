"""Activations times values against PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kjit.testing
from kjit.ops._floats import FLOATS
from kjit.ops.activation import (
    _act_and_mul,
    gelu_and_mul,
    gelu_and_mul_fp8,
    gelu_tanh_and_mul,
    gelu_tanh_and_mul_fp8,
    silu_and_mul,
    silu_and_mul_fp8,
)

device = kjit.testing.device_fixture("cuda")


def reference(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def make_inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, Any]:
    return {"x": kjit.testing.random_tensor((shape[0], 2 * shape[1]), dtype, device)}


class TestSiluAndMul(
    kjit.testing.OpTest, op=silu_and_mul, module=_act_and_mul, reference=reference, inputs=make_inputs, dtypes=FLOATS
):
    shape = (3, 1001)
    shapes = ((0, 64), (3, 0), (1, 1), (3, 7), (65, 128), (2, 1023), (3, 14_336))
    aligned_shape = (3, 1024)
    huge_shape = (2**19 + 11, 4096)
    test_compiles_without_a_gpu = None  # tests/test_cuda_sources.py has it


@pytest.mark.parametrize(("op", "approximate"), [(gelu_and_mul, "none"), (gelu_tanh_and_mul, "tanh")])
@pytest.mark.parametrize("columns", [7, 1024])
def test_gelu(op: Any, approximate: str, columns: int, device: str) -> None:
    x = kjit.testing.random_tensor((3, 2 * columns), torch.float32, device) * 4
    gate, up = x.double().chunk(2, -1)
    expected = torch.nn.functional.gelu(gate, approximate=approximate) * up
    torch.testing.assert_close(op(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_refuses_rows_that_are_no_two_halves(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"2\*D.*expected 6, as D is 3"):
        silu_and_mul(torch.zeros(2, 7, device=device))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.nightly), torch.float32]
)
@pytest.mark.parametrize("columns", [7, 1024])
@pytest.mark.parametrize(
    ("op", "plain"),
    [(silu_and_mul_fp8, silu_and_mul), (gelu_and_mul_fp8, gelu_and_mul), (gelu_tanh_and_mul_fp8, gelu_tanh_and_mul)],
)
def test_results_in_fp8(op: Any, plain: Any, columns: int, dtype: torch.dtype, device: str) -> None:
    x = kjit.testing.random_tensor((3, 2 * columns), dtype, device) * 4
    scale = torch.full((1,), 0.02, device=device)  # some results are saturated
    expected = (plain(x.float()) / scale).clamp(-448, 448)
    out = op(x, scale)
    assert out.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(out.float(), expected, rtol=2**-4, atol=2**-10)
    assert not bool(op(x, torch.zeros_like(scale)).float().any())
