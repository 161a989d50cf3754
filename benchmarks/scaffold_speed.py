"""The speed of what `kjit new` writes, unchanged, against `copy_` of as many bytes and PyTorch's own ops.

    python benchmarks/scaffold_speed.py [--patterns elementwise,rowwise,gather] [--dtypes float32,float16,bfloat16]
                                        [--quick] [--unaligned]

An op of each pattern is scaffolded into a temporary folder and measured as it stands:

- `scale`: `x * alpha`, against `torch.mul(out=)`;
- `rms_norm`, for rows of many lengths, against `torch.nn.functional.rms_norm`;
- `take_rows`: a random permutation of the rows of a table, against `torch.index_select(out=)`.

Tensors of 64 MiB to 4 GiB are compared with `copy_` of the bytes that the op has to move, and small ones with PyTorch's
op. With `--unaligned` there are only rows and look-ups of 256 MiB that are not aligned to 16 bytes, and beside the
scaffolded RMSNorm kjit's own row-wise ops: add and RMSNorm, LayerNorm and softmax. Every timing is a CUDA graph over so
many sets of tensors that the cache is cold, repeated until the median is known to half a percent; `copy_` is timed
outside of a graph too, and the faster counts. Ahead of timings of large tensors the GPU rests, so that its power limit
does not hold clocks down for what ran before; a line says so where it did in the op's own time. It needs a GPU and
nvcc, and exits with status 2 where one is missing; `cpu_speed.py` measures the same ops on the CPU.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import common
import torch
from clocks import watch_throttling

from kjit.bench.hardware import find_hardware
from kjit.benchmark import quick, rotated
from kjit.ops import norm, softmax

Tensors = tuple[torch.Tensor, ...]
_MIB = 2**20
_REST = 0.2
"""Seconds that the GPU rests before a large tensor is timed."""


@dataclass(frozen=True)
class Case:
    """One op on tensors of one size.

    Attributes:
        label: says which.
        make: new tensors for a call, the output last.
        nbytes: read and written.
    """

    label: str
    make: Callable[[], Tensors]
    nbytes: int


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", default=",".join(_LARGE))
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, and shorter measurements")
    parser.add_argument("--unaligned", action="store_true", help="rows and look-ups that are not aligned alone")
    options = parser.parse_args(args)
    unknown = set(options.patterns.split(",")) - set(_LARGE)
    if unknown:
        parser.error(f"there is no pattern {', '.join(sorted(unknown))} here; there are {', '.join(_LARGE)}")
    common.require_gpu("scaffold_speed.py")
    common.print_machine(gpu=True)
    with tempfile.TemporaryDirectory() as folder, quick() if options.quick else nullcontext():
        for pattern in options.patterns.split(","):
            if options.unaligned and pattern not in _UNALIGNED:
                continue
            op = common.OF_PATTERN[pattern]
            calls = common.scaffold(Path(folder), "scaffolded_kernels", op), common.torch_side(op)
            for dtype in (getattr(torch, name) for name in options.dtypes.split(",")):
                if options.unaligned:
                    cases = list(_UNALIGNED[pattern](dtype, options.quick))
                    _report(f"{pattern}, unaligned, {dtype}", calls, cases, copy=True)
                    for op, both in _ROW_OPS.items() if pattern == "rowwise" else ():
                        cases = list(_row_op(op, dtype, _unaligned_shapes(dtype, options.quick)))
                        _report(f"kjit.ops.{op}, unaligned, {dtype}", both, cases, copy=True)
                    continue
                for title, sizes, copy in (("", _LARGE[pattern], True), (", small", _SMALL[pattern], False)):
                    cases = list(sizes(dtype, options.quick))
                    _report(f"{pattern}, {dtype}{title}", calls, cases, copy=copy)


def _report(
    title: str, calls: tuple[Callable[..., object], Callable[..., object]], cases: list[Case], *, copy: bool
) -> None:
    if not cases:
        return
    unit = "GB/s, read and written" if copy else "us a call"
    print(f"\n{title}: {unit}; PyTorch's time as a multiple of kjit's")
    print(f"  {'':<26}  {'kjit':>9}  {'torch':>9}  {'ratio':>7}" + (f"  {'copy_':>7}  {'of copy_':>8}" if copy else ""))
    for case in cases:
        sets = rotated(case.make, nbytes=case.nbytes, device="cuda")
        (ours, held), (theirs, _) = (_time(function, sets, rested=copy) for function in calls)
        shown = [case.nbytes / taken / 1e3 if copy else taken for taken in (ours, theirs)]
        line = "  {:<26}  {:>9,.2f}  {:>9,.2f}  {:>6.2f}x".format(case.label, *shown, theirs / ours)
        if copy:
            copied = _time_copy(case.nbytes)
            line += f"  {case.nbytes / copied / 1e3:>7,.0f}  {copied / ours:>8.1%}"
        print(line + (f"  (held down by {', '.join(held)})" if held else ""), flush=True)
        del sets
        torch.cuda.empty_cache()


def _time(function: Callable[..., object], sets: list[Tensors], *, rested: bool) -> tuple[float, tuple[str, ...]]:
    """Microseconds of a call, and what held the GPU's clocks down meanwhile."""
    torch.cuda.synchronize()
    if rested:
        time.sleep(_REST)
    with watch_throttling(_uuid()) as watch:
        taken = common.time_calls(function, sets)
    return taken, watch.reasons


@functools.cache
def _time_copy(nbytes: int) -> float:
    time.sleep(_REST)
    return common.time_copy(nbytes)


@functools.cache
def _uuid() -> str | None:
    return find_hardware("cuda").uuid


def _sizes(short: bool) -> list[int]:
    """Bytes of a large tensor."""
    return [1024 * _MIB] if short else [64 * _MIB, 1024 * _MIB, 4096 * _MIB]


def _size(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.0f} MiB" if nbytes >= _MIB else f"{nbytes / 2**10:,.0f} KiB"


def _elementwise(dtype: torch.dtype, sizes: Sequence[int]) -> Iterator[Case]:
    def make(nbytes: int) -> Tensors:
        x = torch.ones(nbytes // dtype.itemsize, dtype=dtype, device="cuda")
        return x, torch.empty_like(x)

    for nbytes in sizes:
        yield Case(_size(nbytes), functools.partial(make, nbytes), 2 * nbytes)


def _rowwise(dtype: torch.dtype, shapes: Sequence[tuple[int, int]]) -> Iterator[Case]:
    def make(rows: int, columns: int) -> Tensors:
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        return x, torch.randn(columns, device="cuda").to(dtype), torch.empty_like(x)

    for rows, columns in shapes:
        nbytes = (2 * rows + 1) * columns * dtype.itemsize
        label = f"{rows:,} rows of {columns:,}"
        yield Case(label, functools.partial(make, rows, columns), nbytes)


def _gather(dtype: torch.dtype, shapes: Sequence[tuple[int, int]]) -> Iterator[Case]:
    def make(rows: int, nbytes: int) -> Tensors:
        src = torch.randn(rows, nbytes // dtype.itemsize, device="cuda").to(dtype)
        return src, torch.randperm(rows, device="cuda"), torch.empty_like(src)

    for rows, nbytes in shapes:
        label = f"{rows:,} rows of {_size(nbytes)}" if nbytes % 1024 == 0 else f"{rows:,} rows of {nbytes} B"
        yield Case(label, functools.partial(make, rows, nbytes), rows * (2 * nbytes + 8))


def _row_shapes(dtype: torch.dtype, short: bool) -> list[tuple[int, int]]:
    sizes = _sizes(short)
    lengths = [64, 4096, 65536] if short else [2**k for k in range(6, 17)]
    middle = sizes[len(sizes) // 2]
    # Rows that fill no warps or blocks, and rows that are not aligned.
    others = [66, 72, 80, 96, 136, 192, 264, 1032, 5120, 10000, 14336, 40960]
    others += [67, 100, 127, 257, 300, 500, 517, 1001, 1500, 4097, 11001, 20001, 50257, 65535]
    shapes = [(middle // n // dtype.itemsize, n) for n in (lengths if short else [*lengths, *others])]
    of_ends = (64, 1024, 16384, 40960, 65536, 20001, 50257)
    ends = [(size // n // dtype.itemsize, n) for size in sizes if size != middle for n in of_ends]
    return shapes + ends


def _gather_shapes(short: bool) -> list[tuple[int, int]]:
    """The number of rows, and the bytes in each."""
    shapes = [(size // n, n) for size in _sizes(short) for n in (512, 2048, 16384, 131072)]
    others = (528, 1040, 4112, 10000, 516, 600, 1028, 4100, 40004)  # the last five are not aligned
    return shapes if short else [*shapes, *((1024 * _MIB // n, n) for n in others)]


def _odd_gather_shapes(dtype: torch.dtype, short: bool) -> list[tuple[int, int]]:
    """The same of rows with an odd number of halves."""
    sizes = (64 * _MIB, 256 * _MIB)
    return [] if short or dtype.itemsize > 2 else [(size // n, n) for n in (514, 602, 1034, 2002) for size in sizes]


def _unaligned_shapes(dtype: torch.dtype, short: bool) -> list[tuple[int, int]]:
    lengths = (67, 257, 1001, 4097, 10001, 50257)
    others = () if short else (127, 517, 2049, 20001, 30522, 65535, 128257, 250002)
    return [(256 * _MIB // n // dtype.itemsize, n) for n in sorted((*lengths, *others))]


def _row_op(op: str, dtype: torch.dtype, shapes: Sequence[tuple[int, int]]) -> Iterator[Case]:
    def make(rows: int, columns: int) -> Tensors:
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        weights = [
            torch.randn(columns, device="cuda").to(dtype) for _ in range({"softmax": 0, "layernorm": 2}.get(op, 1))
        ]
        return x, *weights, torch.empty_like(x)

    moved = 4 if op == "fused_add_rmsnorm" else 2  # tensors of rows that are read or written
    for rows, columns in shapes:
        label = f"{rows:,} rows of {columns:,}"
        yield Case(label, functools.partial(make, rows, columns), moved * rows * columns * dtype.itemsize)


def _add_rms_norm(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> None:
    residual.add_(x)
    x.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, 1e-6))


def _small_shapes(short: bool) -> list[tuple[int, int]]:
    return [(rows, n) for n in ([4096] if short else [64, 256, 1024, 4096, 16384, 65536]) for rows in (1, 8, 64)]


_LARGE: dict[str, Callable[[torch.dtype, bool], Iterator[Case]]] = {
    "elementwise": lambda dtype, short: _elementwise(dtype, _sizes(short)),
    "rowwise": lambda dtype, short: _rowwise(dtype, _row_shapes(dtype, short)),
    "gather": lambda dtype, short: _gather(dtype, _gather_shapes(short) + _odd_gather_shapes(dtype, short)),
}
"""Of each pattern the cases to compare with `copy_`."""
_SMALL: dict[str, Callable[[torch.dtype, bool], Iterator[Case]]] = {
    "elementwise": lambda dtype, short: _elementwise(dtype, [2**k for k in range(10, 26, 5 if short else 1)]),
    "rowwise": lambda dtype, short: _rowwise(dtype, _small_shapes(short)),
    "gather": lambda dtype, short: _gather(dtype, [(rows, 4 * n) for rows, n in _small_shapes(short)]),
}
"""The cases to compare with PyTorch alone."""
_UNALIGNED: dict[str, Callable[[torch.dtype, bool], Iterator[Case]]] = {
    "rowwise": lambda dtype, short: _rowwise(dtype, _unaligned_shapes(dtype, short)),
    "gather": lambda dtype, short: _gather(
        dtype, [(rows, n * dtype.itemsize) for rows, n in _unaligned_shapes(dtype, short)]
    ),
}
"""Of these patterns the cases of `--unaligned`, compared with `copy_`."""
_ROW_OPS: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "fused_add_rmsnorm": (lambda x, weight, residual: norm.fused_add_rmsnorm(x, residual, weight), _add_rms_norm),
    "layernorm": (
        lambda x, weight, bias, out: norm.layernorm(x, weight, bias, out=out),
        lambda x, weight, bias, _: torch.nn.functional.layer_norm(x, weight.shape, weight, bias),
    ),
    "softmax": (
        lambda x, out: softmax.softmax(x, out=out),
        lambda x, out: torch.softmax(x, -1, out=out),
    ),
}
"""Row-wise ops of kjit's own, beside the scaffolded one, and PyTorch's."""


if __name__ == "__main__":
    main()
