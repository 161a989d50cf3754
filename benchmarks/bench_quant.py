"""The speed of quantisation to 8 bits, against PyTorch."""

from __future__ import annotations

import functools

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.quant import per_tensor_quant_fp8, per_token_group_quant, per_token_quant_fp8, static_quant_fp8

WIDTH = 4096


def static(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x.float() * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)


def of_groups(x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.float().view(-1, size)
    scale = groups.abs().amax(-1, keepdim=True) / 448
    return (groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(x.shape), scale


CASES = {
    "static_quant_fp8": Case(
        static_quant_fp8,
        static,
        lambda rows: (normal(rows, WIDTH), torch.full((1,), 0.01, device="cuda")),
        lambda rows: 3 * rows * WIDTH,
    ),
    "per_tensor_quant_fp8": Case(
        per_tensor_quant_fp8,
        lambda x: static(x, x.abs().max().float() / 448),
        lambda rows: (normal(rows, WIDTH),),
        lambda rows: 5 * rows * WIDTH,
    ),
    "per_token_quant_fp8": Case(
        per_token_quant_fp8,
        functools.partial(of_groups, size=WIDTH),
        lambda rows: (normal(rows, WIDTH),),
        lambda rows: 3 * rows * WIDTH,
    ),
    "per_token_group_quant, groups of 128": Case(
        per_token_group_quant,
        functools.partial(of_groups, size=128),
        lambda rows: (normal(rows, WIDTH),),
        lambda rows: 3 * rows * WIDTH + rows * WIDTH // 32,
    ),
}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
