"""How fast is what `kjit new --device cpu` writes, unchanged, with both ways to use vectors, against PyTorch?

    python benchmarks/cpu_speed.py [--patterns elementwise,rowwise,gather] [--dtypes float32,float16,bfloat16]
                                   [--threads N] [--quick]

An op of each pattern is scaffolded twice into a temporary folder, with `--simd compiler` and with `--simd highway`, and
measured as it stands, with `out=` given:

- `scale`: `x * alpha`, against `torch.mul(out=)`, tensors of 1 KiB to 256 MiB;
- `rms_norm`, against `torch.nn.functional.rms_norm`, 1 row to some thousand rows of 64 to 65,536 elements;
- `take_rows`: a random permutation of the rows of a table, against `torch.index_select(out=)`.

All sides use PyTorch's threads (kjit's modules share its OpenMP). They are measured in turns, many times, because the
speed of a shared machine changes from second to second; the fastest turn of each side counts. With `--threads 1` a
call's CPU time is taken, which other programs on the machine disturb less. Without Google Highway its column is left
out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
import torch

from kjit.build.highway import find_highway
from kjit.errors import ToolchainError

_KIB, _MIB = 2**10, 2**20
_LARGEST = 256 * _MIB

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """One call: its label, its tensors (the output last), and the bytes read and written."""

    label: str
    tensors: Tensors
    nbytes: int


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", default="elementwise,rowwise,gather")
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--threads", type=int, help="as many for all sides; default: as PyTorch has")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, and fewer turns")
    options = parser.parse_args(args)
    unknown = set(options.patterns.split(",")) - set(_CASES)
    if unknown:
        parser.error(f"there is no pattern {', '.join(sorted(unknown))} here; there are {', '.join(_CASES)}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    common.print_machine(gpu=False)
    try:
        ways = ["compiler", "highway"] if find_highway() else []
    except ToolchainError as error:
        print(f"         {error}")
        ways = ["compiler"]
    print(f"         {torch.get_num_threads()} threads, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for pattern in options.patterns.split(","):
            sides = {"torch": common.torch_side(pattern)}
            for way in ways:
                written = ("--device", "cpu", "--simd", way)
                sides[way] = common.scaffold(Path(folder) / way, f"kernels_{way}", pattern, *written)
            for dtype in (getattr(torch, name) for name in options.dtypes.split(",")):
                _report(f"{pattern}, {dtype}", sides, _CASES[pattern](dtype, options.quick), options.quick)


def _report(title: str, sides: dict[str, Callable[..., object]], cases: Iterator[Case], quick: bool) -> None:
    print(f"\n{title}: us a call (GB/s read and written); PyTorch's time as a multiple of kjit's")
    print(f"  {'':<24}  {'torch':>19}" + "".join(f"  {way:>19}  {'ratio':>7}" for way in sides if way != "torch"))
    for case in cases:
        best = _fastest(sides, case.tensors, turns=5 if quick else 15)
        line = f"  {case.label:<24}"
        for way, seconds in best.items():
            line += f"  {seconds * 1e6:>10,.1f} ({case.nbytes / seconds / 1e9:>6.1f})"
            if way != "torch":
                line += f"  {best['torch'] / seconds:>6.2f}x"
        print(line, flush=True)


def _fastest(sides: dict[str, Callable[..., object]], tensors: Tensors, turns: int) -> dict[str, float]:
    """Seconds of a call of each side: the fastest of several turns, in each of which they come one after another."""
    counts = {}
    for way, function in sides.items():
        function(*tensors)
        once = max(min(_time(function, tensors, 1) for _ in range(3)), 1e-7)
        counts[way] = max(1, int(0.01 / once))
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(turns):
        for way, function in sides.items():
            best[way] = min(best[way], _time(function, tensors, counts[way]))
    return best


def _time(function: Callable[..., object], tensors: Tensors, count: int) -> float:
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    for _ in range(count):
        function(*tensors)
    return (clock() - started) / count


def _size(nbytes: int) -> str:
    if nbytes < _KIB:
        return f"{nbytes} B"
    return f"{nbytes // _MIB} MiB" if nbytes >= _MIB else f"{nbytes // _KIB} KiB"


def _elementwise(dtype: torch.dtype, quick: bool) -> Iterator[Case]:
    for power in (10, 16, 20, 26) if quick else (10, 13, 15, 16, 17, 18, 20, 22, 24, 26, 28):
        x = torch.ones(2**power // dtype.itemsize, dtype=dtype)
        yield Case(_size(2**power), (x, torch.empty_like(x)), 2 * 2**power)


def _rowwise(dtype: torch.dtype, quick: bool) -> Iterator[Case]:
    shapes = [(rows, columns) for columns in (64, 1024, 16384) for rows in (1, 64, _LARGEST // 16 // columns)]
    for rows, columns in [(64, 1024), (4096, 4096)] if quick else [*shapes, (64, 65536), (1001, 1001)]:
        x = torch.randn(rows, columns).to(dtype)
        label = f"{rows:,} rows of {columns:,}"
        nbytes = (2 * rows + 1) * columns * dtype.itemsize
        yield Case(label, (x, torch.randn(columns).to(dtype), torch.empty_like(x)), nbytes)


def _gather(dtype: torch.dtype, quick: bool) -> Iterator[Case]:
    sizes = (64, 128, 256, 512, 2048, 16384, 131072)
    shapes = [(rows, size) for size in sizes for rows in (1, 64, 64 * _MIB // size, _LARGEST // size)]
    for rows, size in [(64, 512), (64 * _MIB // 512, 512)] if quick else shapes:
        src = torch.randn(rows, size // dtype.itemsize).to(dtype)
        index = torch.randperm(rows)
        label = f"{rows:,} rows of {_size(size)}"
        yield Case(label, (src, index, torch.empty_like(src)), rows * (2 * size + 8))


_CASES = {"elementwise": _elementwise, "rowwise": _rowwise, "gather": _gather}


if __name__ == "__main__":
    main()
