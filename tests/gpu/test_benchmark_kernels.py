"""The kernels of benchmarks/kernels, on a GPU or in the simulator: right against torch, at the edges too.

They are what users would write with kjit's headers: a fault here is a fault of the headers or of their documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, QUICKLY, gpu_only, many

import kjit

KERNELS = Path(__file__).parents[2] / "benchmarks" / "kernels"
CPP = {torch.float16: "fp16_t", torch.bfloat16: "bf16_t", torch.float32: "fp32_t"}
BYTES = {torch.uint8: "uint8_t", torch.bfloat16: "bf16_t"}
# Half a unit in the last place, for the last rounding, and what float arithmetic adds: see test_norm_header.py.
HALF_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
SMALLEST = {torch.float16: 2.0**-25, torch.bfloat16: 0.0, torch.float32: 0.0}
FLOAT_ERROR = 2.0**-17

Load = Callable[[str, list[tuple[str, str]]], Any]


@pytest.fixture(scope="module")
def load() -> Load:
    def build(source: str, exports: list[tuple[str, str]]) -> Any:
        name = source.removesuffix(".cuh")
        return kjit.load_jit(
            f"{name}_kernels",
            cuda_files=[KERNELS / source],
            cuda_wrappers=exports,
            extra_cuda_cflags=list(QUICKLY),
        )

    return build


@pytest.fixture(scope="module")
def copies(load: Load) -> Any:
    return load("copy.cuh", [(f"copy_{cpp}", f"Copy<{cpp}>::run") for cpp in BYTES.values()])


@pytest.fixture(scope="module")
def add_constant(load: Load) -> Any:
    return load("add_constant.cuh", [("add_constant", "add_constant<7>")]).add_constant


@pytest.fixture(scope="module")
def row_reduce(load: Load) -> Any:
    exports = [
        (f"{op}_{cpp}", f"RowReduce<ReductionOp::{op.upper()}, {cpp}>::run")
        for op in ("max", "sum")
        for cpp in CPP.values()
    ]
    return load("row_reduce.cuh", exports)


def normal(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, generator=torch.Generator(device=DEVICE).manual_seed(seed)).to(dtype)


def bound_of(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return exact.abs() * (HALF_UNIT[dtype] * (1 + FLOAT_ERROR) + FLOAT_ERROR) + SMALLEST[dtype]


# copy and add_constant


@pytest.mark.parametrize("dtype", list(BYTES))
@pytest.mark.parametrize("numel", [0, 1, 15, 16, 17, 4096, 100_003])
@pytest.mark.parametrize(("to", "since"), [(0, 0), (1, 1), (3, 0), (0, 5), (7, 8)])
def test_copy_with_every_kind_of_alignment(copies: Any, dtype: torch.dtype, numel: int, to: int, since: int) -> None:
    room = torch.full((numel + 40,), 9, device=DEVICE).to(dtype)
    src = torch.randint(0, 100, (numel + 8,), device=DEVICE).to(dtype)[since : since + numel]
    copies[f"copy_{BYTES[dtype]}"](room[to : to + numel], src)
    assert torch.equal(room[to : to + numel], src)
    assert bool((room[:to] == 9).all())
    assert bool((room[to + numel :] == 9).all())


@pytest.mark.parametrize("numel", [0, 1, 3, 1023, many(1_000_003)])
@pytest.mark.parametrize(("to", "since"), [(0, 0), (1, 1), (0, 1)])
def test_add_constant(add_constant: Any, numel: int, to: int, since: int) -> None:
    room = torch.zeros(numel + 4, dtype=torch.int32, device=DEVICE)
    src = torch.arange(numel + 1, dtype=torch.int32, device=DEVICE)[since : since + numel]
    add_constant(room[to : to + numel], src)
    assert torch.equal(room[to : to + numel], src + 7)
    assert int(room[:to].sum() + room[to + numel :].sum()) == 0


# Row maxima and sums


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("columns", [1, 7, 128, 1000, 1001, 4096, 33_333])
@pytest.mark.parametrize("rows", [0, 1, 65, many(4001)])
def test_row_max(row_reduce: Any, dtype: torch.dtype, columns: int, rows: int) -> None:
    x = normal(rows, columns, dtype=dtype) - 20  # all negative: nothing may start from zero
    out = torch.full((rows,), torch.nan, dtype=dtype, device=DEVICE)
    row_reduce[f"max_{CPP[dtype]}"](x, out)
    assert torch.equal(out, x.amax(-1))


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("columns", [0, 1, 7, 128, 1000, 1001, 4096, 33_333])
@pytest.mark.parametrize("rows", [0, 1, 65, many(4001)])
def test_row_sum(row_reduce: Any, dtype: torch.dtype, columns: int, rows: int) -> None:
    x = normal(rows, columns, dtype=dtype)
    out = torch.full((rows,), torch.nan, dtype=dtype, device=DEVICE)
    row_reduce[f"sum_{CPP[dtype]}"](x, out)
    exact = x.double().sum(-1)
    # A thread adds at most 131 numbers one after the other (33,333 columns, element by element, over 256 threads), the
    # rest is a tree of 9 levels: an error of less than 256 * 2^-24 of the sum of magnitudes, and one rounding.
    bound = 256 * 2.0**-24 * x.double().abs().sum(-1) + bound_of(exact, dtype)
    assert bool(((out.double() - exact).abs() <= bound).all())


# Streams and graphs


@gpu_only
def test_they_run_on_the_stream_that_torch_uses(copies: Any, row_reduce: Any) -> None:
    x = normal(64, 1024, dtype=torch.bfloat16)
    late, copied = torch.zeros_like(x), torch.zeros_like(x)
    largest = torch.zeros(64, dtype=torch.bfloat16, device=DEVICE)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        # Each reads what the one before has written: launches that overlap have to wait for that.
        copies.copy_bf16_t(copied, late)
        row_reduce.max_bf16_t(copied, largest)
    stream.synchronize()
    assert torch.equal(copied, x)
    assert torch.equal(largest, x.amax(-1))
