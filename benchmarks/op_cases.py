"""Common parts of the benchmarks of kjit's ops: cases, and the providers that each measures.

    CASES = {"softmax": Case(softmax, lambda x: torch.softmax(x, -1), make, nbytes)}
    benchmark = triton.testing.perf_report(sweeps(CASES))(measure)    # measure(rows, op, provider) asks `measured`

If Liger is installed, its kernels of the same op are measured too.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]

import kjit.benchmark

DEVICE = "cuda"
ROWS = (1, 16, 256, 4096, 32_768)


@dataclass(frozen=True)
class Case:
    """One op at one width.

    Attributes:
        kjit, torch, liger: called with the arguments that `make` gives; None if there is no such function.
        make: arguments for a number of rows, by position.
        nbytes: the bytes that a call with this number of rows reads and writes.
    """

    kjit: Callable[..., Any]
    torch: Callable[..., Any]
    make: Callable[[int], tuple[Any, ...]]
    nbytes: Callable[[int], int]
    liger: Callable[..., Any] | None = None


def sweeps(cases: Mapping[str, Case], rows: Sequence[int] = ROWS) -> list[Any]:
    """One plot for each case, over the numbers of rows."""
    return [
        triton.testing.Benchmark(
            x_names=["rows"],
            x_vals=kjit.benchmark.get_benchmark_range(list(rows), [16]),
            line_arg="provider",
            line_vals=[provider for provider, _ in _providers(case)],
            line_names=[provider for provider, _ in _providers(case)],
            ylabel="microseconds",
            plot_name=name,
            args={"op": name},
        )
        for name, case in cases.items()
    ]


def _providers(case: Case) -> list[tuple[str, Callable[..., Any]]]:
    found = [("kjit", case.kjit), ("torch", case.torch), ("torch.compile", case.torch)]
    if case.liger is not None and importlib.util.find_spec("liger_kernel") is not None:
        found.append(("Liger", case.liger))
    return found


def measured(case: Case, rows: int, provider: str) -> kjit.benchmark.BenchTime:
    """The time of one call, with a cold cache unless the data is small."""
    if not torch.cuda.is_available():
        raise RuntimeError("needs an NVIDIA GPU")
    function = dict(_providers(case))[provider]
    if provider == "torch.compile":
        torch.compiler.reset()  # otherwise it would compile for dynamic sizes
        function = torch.compile(function)
    sets = kjit.benchmark.rotated(lambda: case.make(rows), nbytes=case.nbytes(rows), device=DEVICE)
    return kjit.benchmark.run_benchmark([functools.partial(function, *each) for each in sets], device=DEVICE)


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Random numbers on the GPU."""
    return torch.randn(shape, device=DEVICE).to(dtype)
