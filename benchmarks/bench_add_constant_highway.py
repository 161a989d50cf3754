"""The speed of add_constant with Highway's vectors, against the one that `kjit new` writes and PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]

import kjit.benchmark
from kjit.ops.add_constant import add_constant
from kjit.ops.add_constant_highway import add_constant_highway

PROVIDERS: dict[str, Callable[..., Any]] = {
    "Highway": add_constant_highway,
    "elementwise": add_constant,
    "PyTorch": lambda x: x + 1,
}


def bytes_moved(size: int) -> int:
    return 8 * size


def measure(size: int, provider: str) -> kjit.benchmark.BenchTime:
    sets = kjit.benchmark.rotated(lambda: torch.ones(size, dtype=torch.int32), nbytes=bytes_moved(size), device="cpu")
    return kjit.benchmark.run_benchmark([functools.partial(PROVIDERS[provider], x) for x in sets], device="cpu")


benchmark = triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["size"],
        x_vals=kjit.benchmark.get_benchmark_range([2**k for k in range(10, 25, 2)], [2**16]),
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=list(PROVIDERS),
        ylabel="microseconds",
        plot_name="add_constant_highway",
        args={},
    )
)(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
