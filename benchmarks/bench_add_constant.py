"""The speed of `add_constant`, against PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]

import kjit.benchmark
from kjit.ops.add_constant import DTYPES, add_constant

# The test defines the reference and the inputs.
TESTS = Path(__file__).parents[1] / "tests" / "ops"
TEST = kjit.benchmark.load_file(TESTS / "test_add_constant.py")
reference, make_inputs = TEST.reference, TEST.make_inputs
DEVICES = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]


def shape_for(size: int) -> tuple[int, ...]:
    """The shape of the main tensor."""
    return (size,)


def bytes_moved(size: int, dtype: torch.dtype, **_: object) -> int:
    """The bytes that one call reads and writes."""
    return int(TEST.TestAddConstant.bytes_moved(shape_for(size), dtype))


def measure(
    size: int,
    dtype: torch.dtype,
    device: str,
    provider: str,
) -> kjit.benchmark.BenchTime:
    """The time of one call, with a cold cache unless the data is small."""
    function: Callable[..., Any] = add_constant
    if provider != "kjit":
        function = reference
    if provider == "torch.compile":
        torch.compiler.reset()  # otherwise it would compile for dynamic sizes
        function = torch.compile(function)
    sets = kjit.benchmark.rotated(
        lambda: make_inputs(shape_for(size), dtype, device),
        nbytes=bytes_moved(size, dtype),
        device=device,
    )
    calls = [functools.partial(function, **inputs) for inputs in sets]
    return kjit.benchmark.run_benchmark(calls, device=device)


benchmark = triton.testing.perf_report(
    [
        triton.testing.Benchmark(
            x_names=["size"],
            x_vals=kjit.benchmark.get_benchmark_range(
                [2**k for k in range(10, 29 if device == "cuda" else 25, 2)],
                [2**16],
            ),
            line_arg="provider",
            line_vals=["kjit", "torch", "torch.compile"],
            line_names=["kjit", "PyTorch", "torch.compile"],
            ylabel="microseconds",
            plot_name="add_constant",
            args={"device": device, "dtype": dtype},
        )
        for device in DEVICES
        for dtype in DTYPES
    ]
)(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
