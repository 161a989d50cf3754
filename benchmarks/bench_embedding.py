"""The speed of a table look-up, against PyTorch."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.embedding import embedding

WORDS, WIDTH = 8192, 4096
TABLES: list[torch.Tensor] = []


def make(rows: int) -> tuple[torch.Tensor, ...]:
    """Words of one table, which is in no cache as a whole."""
    if not TABLES:
        TABLES.append(normal(WORDS, WIDTH))
    return torch.randint(WORDS, (rows,), dtype=torch.int64, device="cuda"), TABLES[0]


CASES = {
    "embedding, 4,096 columns": Case(embedding, torch.nn.functional.embedding, make, lambda rows: 4 * rows * WIDTH)
}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 4096)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
