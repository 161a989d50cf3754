"""The speed of expert selection, against PyTorch."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.moe import topk_softmax


def softmax_and_topk(gates: torch.Tensor, k: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    weights, experts = torch.softmax(gates, -1, dtype=torch.float32).topk(k)
    return weights / weights.sum(-1, keepdim=True) if renormalize else weights, experts


def _case(experts: int, k: int) -> Case:
    return Case(
        topk_softmax,
        softmax_and_topk,
        lambda rows: (normal(rows, experts), k, True),
        lambda rows: rows * (2 * experts + 8 * k),
    )


CASES = {f"topk_softmax, {k} of {experts}": _case(experts, k) for experts, k in ((8, 2), (128, 8), (256, 8))}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 4096)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
