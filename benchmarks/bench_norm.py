"""The speed of row norms, against PyTorch and Liger."""

from __future__ import annotations

from typing import Any

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.norm import fused_add_rmsnorm, layernorm, qknorm_across_heads, rmsnorm

WIDTHS = (1024, 4096, 8192)


def fused_add(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    residual += x
    x.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, 1e-6))


def across_heads(q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor) -> None:
    for x, weight in ((q, q_weight), (k, k_weight)):
        x.copy_(torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6))


def liger_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> Any:
    from liger_kernel.ops.rms_norm import rms_norm_forward  # type: ignore[import-not-found, unused-ignore]

    return rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)[0]


def liger_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    from liger_kernel.ops.layer_norm import layer_norm_forward  # type: ignore[import-not-found, unused-ignore]

    return layer_norm_forward(x, weight, bias, 1e-5)[0]


def _cases(width: int) -> dict[str, Case]:
    return {
        f"rmsnorm, {width:,} columns": Case(
            rmsnorm,
            lambda x, weight: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6),
            lambda rows: (normal(rows, width), normal(width)),
            lambda rows: 4 * rows * width,
            liger_rms_norm,
        ),
        f"fused_add_rmsnorm, {width:,} columns": Case(
            fused_add_rmsnorm,
            fused_add,
            lambda rows: (normal(rows, width), normal(rows, width), normal(width)),
            lambda rows: 8 * rows * width,
        ),
        f"layernorm, {width:,} columns": Case(
            layernorm,
            lambda x, weight, bias: torch.nn.functional.layer_norm(x, weight.shape, weight, bias),
            lambda rows: (normal(rows, width), normal(width), normal(width)),
            lambda rows: 4 * rows * width,
            liger_layer_norm,
        ),
    }


CASES = {name: case for width in WIDTHS for name, case in _cases(width).items()}
CASES["qknorm_across_heads, 4,096 and 1,024 of 6,144 columns"] = Case(
    qknorm_across_heads,
    across_heads,
    lambda rows: (*torch.split(normal(rows, 6144), [4096, 1024, 1024], 1)[:2], normal(4096), normal(1024)),
    lambda rows: 4 * rows * 5120,
)


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
