"""The speed of softmax, against PyTorch and Liger."""

from __future__ import annotations

from typing import Any

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.softmax import softmax


def liger_softmax(x: torch.Tensor) -> Any:
    from liger_kernel.ops.softmax import _softmax_forward  # type: ignore[import-not-found, unused-ignore]

    return _softmax_forward(x)[0]


def _case(width: int) -> Case:
    return Case(
        softmax,
        lambda x: torch.softmax(x, -1),
        lambda rows: (normal(rows, width),),
        lambda rows: 4 * rows * width,
        liger_softmax,
    )


CASES = {f"softmax, {width:,} columns": _case(width) for width in (1024, 32_768, 151_936)}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 2048)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
