"""How near does the element-wise scaffold come to what a GPU's memory can do?

    python benchmarks/bandwidth.py [--dtypes float32,bfloat16]

`kjit new` writes an op `scale` (`out = x * alpha`) into a temporary folder, and that op, unchanged, is measured: for
tensors of 64 MiB to 4 GiB against `copy_` of the same bytes, for small ones against PyTorch and torch.compile. Every
timing is a CUDA graph over so many sets of tensors that the cache is cold, repeated until the median is known to half
a percent; `copy_` is timed outside of a graph too, and the faster counts. Needs a GPU and nvcc; exits with status 2
where one is missing.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common
import torch

from kjit.bench.clocks import watch_throttling
from kjit.bench.hardware import find_hardware
from kjit.benchmark import rotated, run_benchmark
from kjit.project import find_project

_LARGE = [2**k for k in range(26, 33)]
_SMALL = [2**k for k in range(10, 26)]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    options = parser.parse_args(args)
    missing = "this machine has no NVIDIA GPU" if not common.has_gpu() else common.nvcc_missing()
    if missing is not None:
        print(f"bandwidth.py needs a GPU and a CUDA compiler: {missing}", file=sys.stderr)
        sys.exit(2)
    common.print_machine(gpu=True)
    gpu = find_hardware("cuda")
    if gpu.peaks is not None:
        print(f"         published peak {gpu.peaks.gbps:,.0f} GB/s ({gpu.peaks.source})")
    with tempfile.TemporaryDirectory() as folder, watch_throttling(gpu.uuid) as watch:
        scale = _scaffold(Path(folder))
        for name in options.dtypes.split(","):
            _large(scale, getattr(torch, name))
            _small(scale, getattr(torch, name))
    print(f"\nclocks were held down by: {', '.join(watch.reasons) or 'nothing'}")


def _scaffold(folder: Path) -> Callable[..., torch.Tensor]:
    """The op that `kjit new` writes."""
    (folder / "pyproject.toml").write_text('[tool.kjit]\npackage = "scaffolded_kernels"\n')
    signature = "x: T[N], alpha: float -> out: T[N]"
    command = [sys.executable, "-m", "kjit", "new", "scale", signature, "--pattern", "elementwise", "--device", "cuda"]
    subprocess.run(command, cwd=folder, check=True)
    module: Any = find_project(folder).import_wrapper("scale")
    scale: Callable[..., torch.Tensor] = module.scale
    return scale


def _pairs(nbytes: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.ones(nbytes // dtype.itemsize, dtype=dtype, device="cuda")
        return x, torch.empty_like(x)

    return rotated(make, nbytes=2 * nbytes, device="cuda")


def _time(
    call: Callable[[torch.Tensor, torch.Tensor], object], pairs: list[tuple[torch.Tensor, torch.Tensor]]
) -> float:
    calls = [lambda x=x, out=out: call(x, out) for x, out in pairs]
    return run_benchmark(calls, device="cuda").median


def _time_copy_on_stream(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Microseconds of a `copy_` outside of a graph: from 512 MiB on, a graph's memory copies take a slower way."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(31):
        start.record()
        for x, out in pairs * 5:
            out.copy_(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (5 * len(pairs)))
    return statistics.median(times)


def _large(scale: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    print(f"\n{dtype}: GB/s, read and written")
    print(f"  {'tensor':>10}  {'kjit':>8}  {'copy_':>8}  {'of copy_':>8}")
    for nbytes in _LARGE:
        pairs = _pairs(nbytes, dtype)
        ours = _time(lambda x, out: scale(x, 2.0, out=out), pairs)
        copy = min(_time(lambda x, out: out.copy_(x), pairs), _time_copy_on_stream(pairs))
        rates = (2 * nbytes / microseconds / 1e3 for microseconds in (ours, copy))
        print("  {:>6,} MiB  {:>8,.0f}  {:>8,.0f}  {:>8.1%}".format(nbytes // 2**20, *rates, copy / ours))
        del pairs
        torch.cuda.empty_cache()


def _small(scale: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    compiled = torch.compile(lambda x, out: torch.mul(x, 2.0, out=out), dynamic=True)
    print(f"\n{dtype}: us a call, and PyTorch's time as a multiple of kjit's")
    print(f"  {'tensor':>10}  {'kjit':>8}  {'eager':>8}  {'compile':>8}  {'eager':>7}  {'compile':>7}")
    for nbytes in _SMALL:
        pairs = _pairs(nbytes, dtype)
        ours = _time(lambda x, out: scale(x, 2.0, out=out), pairs)
        eager = _time(lambda x, out: torch.mul(x, 2.0, out=out), pairs)
        inductor = _time(compiled, pairs)
        print(
            f"  {nbytes // 2**10:>6,} KiB  {ours:>8.3f}  {eager:>8.3f}  {inductor:>8.3f}"
            f"  {eager / ours:>6.2f}x  {inductor / ours:>6.2f}x"
        )


if __name__ == "__main__":
    main()
