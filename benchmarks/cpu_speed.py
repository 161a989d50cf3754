"""The speed of what `kjit new --device cpu` writes, unchanged, against PyTorch.

    python benchmarks/cpu_speed.py [--patterns elementwise,rowwise,gather,lengths] [--dtypes float32,float16,bfloat16]
                                   [--threads N] [--quick]

An op of each pattern is scaffolded into a temporary folder, and measured as it stands, with `out=` given:

- `scale`: `x * alpha`, against `torch.mul(out=)`, tensors of 1 KiB to 256 MiB;
- `rms_norm`, against `torch.nn.functional.rms_norm`, 1 row to some thousand rows of 64 to 65,536 elements;
- `take_rows`: a random permutation of the rows of a table, against `torch.index_select(out=)`. With `--patterns
  lengths` rows of 27 lengths, most of them odd, in tables of four sizes.

Both sides use PyTorch's threads (kjit's modules share its OpenMP). They are measured in turns, many times, because the
speed of a shared machine changes from second to second; the fastest turn of each side counts. With `--threads 1` a
call's CPU time is taken, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
import torch

_KIB, _MIB = 2**10, 2**20
_LARGEST = 256 * _MIB

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """One call: its label, its tensors (the output last), the bytes read and written, and what it is reported with."""

    label: str
    tensors: Tensors
    nbytes: int
    group: str = ""


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", default="elementwise,rowwise,gather")
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--threads", type=int, help="as many for both sides; default: as PyTorch has")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, and fewer turns")
    options = parser.parse_args(args)
    unknown = set(options.patterns.split(",")) - set(_CASES)
    if unknown:
        parser.error(f"there is no pattern {', '.join(sorted(unknown))} here; there are {', '.join(_CASES)}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    common.print_machine(gpu=False)
    print(f"         {torch.get_num_threads()} threads, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for pattern in options.patterns.split(","):
            op = common.OF_PATTERN["gather" if pattern == "lengths" else pattern]
            scaffolded = common.scaffold(Path(folder) / pattern, f"kernels_{pattern}", op, "--device", "cpu")
            sides = {"torch": common.torch_side(op), "kjit": scaffolded}
            for dtype in (getattr(torch, name) for name in options.dtypes.split(",")):
                for group, cases in itertools.groupby(_CASES[pattern](dtype, options.quick), lambda case: case.group):
                    _report(f"{pattern}{group}, {dtype}", sides, cases, options.quick)


def _report(title: str, sides: dict[str, Callable[..., object]], cases: Iterator[Case], quick: bool) -> None:
    print(f"\n{title}: us a call (GB/s read and written); PyTorch's time as a multiple of kjit's")
    print(f"  {'':<24}" + "".join(f"  {side:>19}" for side in sides) + f"  {'ratio':>7}")
    ratios: list[float] = []
    for case in cases:
        best = _fastest(sides, case.tensors, turns=5 if quick else 15)
        ratios.append(best["torch"] / best["kjit"])
        times = "".join(f"  {sec * 1e6:>10,.1f} ({case.nbytes / sec / 1e9:>6.1f})" for sec in best.values())
        print(f"  {case.label:<24}{times}  {ratios[-1]:>6.2f}x", flush=True)
    if len(ratios) > 3:
        quarter, median, _ = statistics.quantiles(ratios, n=4, method="inclusive")
        print(f"  {min(ratios):.2f}x to {max(ratios):.2f}x, median {median:.2f}x, three quarters above {quarter:.2f}x")


def _fastest(sides: dict[str, Callable[..., object]], tensors: Tensors, turns: int) -> dict[str, float]:
    """Seconds of a call of each side: the fastest of several turns, in each of which they come one after another."""
    counts = {}
    for side, function in sides.items():
        function(*tensors)
        once = max(min(_time(function, tensors, 1) for _ in range(3)), 1e-7)
        counts[side] = max(1, int(0.01 / once))
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(turns):
        for side, function in sides.items():
            best[side] = min(best[side], _time(function, tensors, counts[side]))
    return best


def _time(function: Callable[..., object], tensors: Tensors, count: int) -> float:
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    for _ in range(count):
        function(*tensors)
    return (clock() - started) / count


def _size(nbytes: int) -> str:
    for unit, name in ((_MIB, "MiB"), (_KIB, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


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


def _look_up(rows: int, columns: int, dtype: torch.dtype, group: str = "") -> Case:
    src = torch.randn(rows, columns).to(dtype)
    size = columns * dtype.itemsize
    tensors = (src, torch.randperm(rows), torch.empty_like(src))
    return Case(f"{rows:,} rows of {_size(size)}", tensors, rows * (2 * size + 8), group)


def _gather(dtype: torch.dtype, quick: bool) -> Iterator[Case]:
    sizes = (64, 128, 256, 512, 2048, 16384, 131072)
    shapes = [(rows, size) for size in sizes for rows in (1, 64, 64 * _MIB // size, _LARGEST // size)]
    for rows, size in [(64, 512), (64 * _MIB // 512, 512)] if quick else shapes:
        yield _look_up(rows, size // dtype.itemsize, dtype)


_LENGTHS = [
    *range(1, 6),
    8,
    12,
    15,
    16,
    17,
    20,
    24,
    31,
    32,
    33,
    40,
    48,
    63,
    64,
    80,
    100,
    128,
    200,
    257,
    500,
    1000,
    4000,
]


def _lengths(dtype: torch.dtype, quick: bool) -> Iterator[Case]:
    for table in (_MIB // 2, 32 * _MIB) if quick else (_MIB // 2, 8 * _MIB, 32 * _MIB, 128 * _MIB):
        for columns in _LENGTHS[::5] if quick else _LENGTHS:
            yield _look_up(table // (columns * dtype.itemsize), columns, dtype, f" of {_size(table)}")


_CASES = {"elementwise": _elementwise, "rowwise": _rowwise, "gather": _gather, "lengths": _lengths}


if __name__ == "__main__":
    main()
