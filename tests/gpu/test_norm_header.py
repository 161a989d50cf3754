"""kjit/impl/norm.cuh on a GPU: every form of RMSNorm against float64.

The bound. Both sides see the same rounded inputs. The sum of n squares in float has a relative error of at most
(n + 1) * 2^-24 (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2; all terms are
positive), of which half is left after the square root; a thread adds at most 64 squares in a row and the rest in a
tree, so that 128 stands for n here. The division, the sum with eps, rsqrt (2 units) and the two products add 8 units of
2^-24. That is below 2^-17. The last step rounds to the dtype: half a unit in its last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from machine import DEVICE

DTYPES = {"fp16_t": torch.float16, "bf16_t": torch.bfloat16, "fp32_t": torch.float32}
HALF_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
SMALLEST = {torch.float16: 2.0**-25, torch.bfloat16: 0.0, torch.float32: 0.0}  # half of the smallest subnormal
FLOAT_ERROR = 2.0**-17
EPS = 1e-5
ODD_SIZES = [1, 96, 100, 257, 1000, 5121, 16384]


# What is compiled where there is no GPU; the other types are instances of the same templates.
EXPORTS = [(name, f"{name}<bf16_t>") for name in ("storage", "row", "any_row")]


@pytest.fixture(scope="module", params=[pytest.param("fp16_t", marks=pytest.mark.nightly), "bf16_t", "fp32_t"])
def case(load_cuda: Callable[..., Any], request: pytest.FixtureRequest) -> tuple[Any, torch.dtype]:
    exports = [(name, f"{name}<{request.param}>") for name, _ in EXPORTS]
    return load_cuda("norm_cases", exports), DTYPES[request.param]


def make(rows: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device=DEVICE).manual_seed(rows * 100_003 + dim)
    x = torch.randn(rows, dim, device=DEVICE, generator=generator)
    x *= torch.logspace(-2, 2, rows, device=DEVICE)[:, None]  # rows of very different sizes: none gets another's sum
    weight = torch.randn(dim, device=DEVICE, generator=generator)
    return x.to(dtype), weight.to(dtype)


def check(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    exact = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + EPS) * weight.double()
    bound = exact.abs() * (HALF_UNIT[x.dtype] * (1 + FLOAT_ERROR) + FLOAT_ERROR) + SMALLEST[x.dtype]
    error = (out.double() - exact).abs()
    assert bool((error <= bound).all()), f"off by {(error / bound.clamp_min(1e-300)).max().item():.3f} bounds"


@pytest.mark.parametrize("dim", [64, 128, 768, 4096])
def test_one_vector_a_thread(case: tuple[Any, torch.dtype], dim: int) -> None:
    module, dtype = case
    x, weight = make(9, dim, dtype)
    out = torch.full_like(x, torch.nan)
    module.storage(x, weight, out, EPS)
    check(out, x, weight)


@pytest.mark.parametrize("dim", ODD_SIZES)
def test_rows_of_any_size(case: tuple[Any, torch.dtype], dim: int) -> None:
    module, dtype = case
    x, weight = make(9, dim, dtype)
    out = torch.full_like(x, torch.nan)
    module.row(x, weight, out, EPS)
    check(out, x, weight)


@pytest.mark.parametrize("dim", [1, 7, 8, 95, 1999, 2000, 2099, 2100])
def test_a_length_that_is_known_at_run_time(case: tuple[Any, torch.dtype], dim: int) -> None:
    module, dtype = case
    x, weight = make(9, dim, dtype)
    out = torch.full_like(x, torch.nan)
    module.any_row(x, weight, out, EPS)
    check(out, x, weight)


@pytest.mark.parametrize("dim", ODD_SIZES)
@pytest.mark.parametrize(("offset", "gap"), [(0, 32), (1, 0), (3, 5)], ids=["aligned", "misaligned", "both"])
def test_strided_and_misaligned_rows_leave_their_surroundings_alone(
    case: tuple[Any, torch.dtype], dim: int, offset: int, gap: int
) -> None:
    module, dtype = case
    rows, stride = 5, -(-dim // 32) * 32 + gap
    x, weight = make(rows, dim, dtype)
    room = torch.full((2, offset + rows * stride), torch.nan, dtype=dtype, device=DEVICE)
    padded_x, padded_out = (flat[offset:].view(rows, stride) for flat in room)
    padded_x[:, :dim] = x
    module.row(padded_x[:, :dim], weight, padded_out[:, :dim], EPS)
    check(padded_out[:, :dim], x, weight)
    assert bool(padded_out[:, dim:].isnan().all())
    assert bool(room[1, :offset].isnan().all())


def test_a_row_may_be_normalised_in_place(case: tuple[Any, torch.dtype]) -> None:
    module, dtype = case
    x, weight = make(6, 1000, dtype)
    out = x.clone()
    module.row(out, weight, out, EPS)
    check(out, x, weight)


def test_a_nan_stays_in_its_row_and_zeros_stay_zero(case: tuple[Any, torch.dtype]) -> None:
    module, dtype = case
    x, weight = make(9, 257, dtype)
    x[3, 256] = torch.nan
    x[5] = 0
    out = torch.full_like(x, torch.nan)
    module.row(x, weight, out, EPS)
    others = [row for row in range(9) if row != 3]
    check(out[others], x[others], weight)
    assert bool(out[3].isnan().all())
    assert not bool(out[5].any())
