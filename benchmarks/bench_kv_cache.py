"""The speed of stores into a paged cache, against PyTorch's indexing."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.kv_cache import store_kv_cache

SLOTS = 8192


def index_put(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    k_cache[slots] = k
    v_cache[slots] = v


def _case(columns: int) -> Case:
    def make(rows: int) -> tuple[torch.Tensor, ...]:
        k, v = normal(rows, columns), normal(rows, columns)
        caches = (torch.empty(SLOTS, columns, dtype=k.dtype, device="cuda") for _ in range(2))
        return k, v, *caches, torch.randperm(SLOTS, device="cuda")[:rows]

    return Case(store_kv_cache, index_put, make, lambda rows: 8 * rows * columns)


CASES = {f"store_kv_cache, {columns:,} columns": _case(columns) for columns in (128, 1024)}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 4096)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
