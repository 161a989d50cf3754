"""The speed of gated activations, against PyTorch."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.activation import gelu_tanh_and_mul, silu_and_mul, silu_and_mul_fp8


def silu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def gelu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def silu_fp8(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (silu(x.float()) * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)


def _cases(width: int) -> dict[str, Case]:
    def make(rows: int) -> tuple[torch.Tensor, ...]:
        return (normal(rows, 2 * width),)

    def nbytes(rows: int) -> int:
        return 6 * rows * width

    return {
        f"silu_and_mul, 2 x {width:,} columns": Case(silu_and_mul, silu, make, nbytes),
        f"gelu_tanh_and_mul, 2 x {width:,} columns": Case(gelu_tanh_and_mul, gelu, make, nbytes),
        f"silu_and_mul_fp8, 2 x {width:,} columns": Case(
            silu_and_mul_fp8,
            silu_fp8,
            lambda rows: (*make(rows), torch.full((1,), 0.01, device="cuda")),
            lambda rows: 5 * rows * width,
        ),
    }


CASES = {name: case for width in (4096, 14_336) for name, case in _cases(width).items()}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 4096)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
