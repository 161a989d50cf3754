"""The effect of a change to kjit on the speed of what `kjit new` writes: two versions of kjit in one run.

    git worktree add ../before HEAD~1
    python benchmarks/before_after.py ../before [--ops rms_norm,norm_both_,softmax,take_rows,scale]
                                      [--dtypes float32,float16,bfloat16] [--lengths 1000,33000] [--sizes 64,256,1024]
                                      [--device cuda] [--rounds 3] [--warm]

Each version writes the ops with its own `kjit new`, and compiles and calls them unchanged, with its own headers and
runtime, in a process of its own. The processes take turns. A line says for rows of one length, in tensors of one size
in MiB, what share of the speed of `copy_` (of as many bytes, in the same process) each version has, as the median of
all turns, and the time that it took before as a multiple of the time that it takes now.

- `scale`: `x * alpha`; the length of its rows does not matter;
- `rms_norm`: RMSNorm;
- `norm_both_`: two tensors, normalised in place by what the sum of their elements' squares gives;
- `softmax`: of rows, written by hand (kjit/csrc/softmax.cuh) with pattern rowwise; if the other version has
  no such pattern, `torch.softmax` is measured instead;
- `take_rows`: a random permutation of the rows of a table.

A size of 0 MiB is one row. With `--warm` a call has the same tensors each time, which a cache should hold
(`--sizes 14` for 50 MiB of L2): what a kernel could do if the memory were faster, as that of another GPU may be.

With `--device cuda` it needs a GPU and nvcc, and exits with status 2 where one is missing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import common
import torch

Case = tuple[str, str, int, int]
"""An op, a dtype, the length of a row, and how many MiB each large tensor has."""

Times = tuple[float, float]
"""Microseconds of a call, and of a `copy_` of as many bytes."""


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other version: a checkout of kjit")
    parser.add_argument("--ops", default="rms_norm,norm_both_")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--lengths", default="1000,4096,10001,33000", help="of a row, in elements")
    parser.add_argument("--sizes", default="256", help="of each large tensor, in MiB")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each version")
    parser.add_argument("--warm", action="store_true", help="the same tensors in each call, as the caches hold them")
    options = parser.parse_args(args)
    known = [*common.SCAFFOLDED, "softmax"]
    unknown = set(options.ops.split(",")) - set(known)
    if unknown:
        parser.error(f"there is no op {', '.join(sorted(unknown))} here; there are {', '.join(known)}")
    if not (options.before / "kjit" / "__init__.py").is_file():
        parser.error(f"{options.before} is no checkout of kjit")
    if options.device == "cuda":
        common.require_gpu("before_after.py")
    common.print_machine(gpu=options.device == "cuda")
    lengths, sizes = ([int(number) for number in text.split(",")] for text in (options.lengths, options.sizes))
    cases = list(itertools.product(options.ops.split(","), options.dtypes.split(","), lengths, sizes))
    trees = {"before": options.before.resolve(), "now": Path(__file__).resolve().parent.parent}
    turns: dict[str, list[list[Times]]] = {version: [] for version in trees}
    for _ in range(options.rounds):
        for version, tree in trees.items():
            arguments = (str(tree), options.device, cases, options.warm)
            turns[version].append(
                common.result_of_new_process("before_after", "measure", *arguments, PYTHONPATH=str(tree))
            )
    _report(cases, turns)


def measure(tree: str, device: str, cases: Sequence[Case], warm: bool) -> list[Times]:
    """The times of all cases, by the version of kjit in `tree`, which is what this process imports."""
    import kjit

    if not Path(kjit.__file__).is_relative_to(tree):
        sys.exit(f"this Python imports kjit from {kjit.__file__}, and not from {tree}")
    times = []
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            op: _softmax(Path(tree))
            if op == "softmax"
            else common.scaffold(Path(folder) / op, f"kernels_{op}", op, "--device", device)
            for op in dict.fromkeys(op for op, *_ in cases)
        }
        for op, dtype, length, mib in cases:
            make, nbytes = _tensors(op, getattr(torch, dtype), length, mib * 2**20, device)
            time = _time(calls[op], make, nbytes, device, warm)
            times.append((time, common.time_copy(nbytes, device, warm=warm)))
    return times


def _softmax(tree: Path) -> Callable[..., object]:
    """Softmax with pattern rowwise of the kjit in `tree`, or PyTorch's if that has none."""
    if not (tree / "kjit" / "include" / "kjit" / "patterns" / "rowwise.h").is_file():
        return lambda x, out: torch.softmax(x, -1, out=out)
    import kjit

    source = common.OPS / "softmax.cuh"
    modules = {
        dtype: kjit.load_jit(
            "softmax", symbol, cuda_files=[source], cuda_wrappers=[("softmax", f"Softmax<{symbol}>::run")]
        )
        for dtype, symbol in ((torch.float32, "fp32_t"), (torch.float16, "fp16_t"), (torch.bfloat16, "bf16_t"))
    }
    return lambda x, out: modules[x.dtype].softmax(x, 1.0, out)


def _time(
    function: Callable[..., object], make: Callable[[], tuple[torch.Tensor, ...]], nbytes: int, device: str, warm: bool
) -> float:
    sets = common.tensor_sets(make, nbytes, device, warm=warm)
    time = common.time_calls(function, sets, device)
    del sets
    if device == "cuda":
        torch.cuda.empty_cache()
    return time


def _tensors(
    op: str, dtype: torch.dtype, length: int, size: int, device: str
) -> tuple[Callable[[], tuple[torch.Tensor, ...]], int]:
    """A function that makes the tensors of a call, and the bytes that the call reads and writes."""
    rows = max(1, size // length // dtype.itemsize)
    nbytes = rows * length * dtype.itemsize

    def large() -> torch.Tensor:
        return torch.randn(rows, length, device=device).to(dtype)

    def column() -> torch.Tensor:
        return torch.ones(length, dtype=dtype, device=device)

    if op == "scale":
        return lambda: ((x := large()).view(-1), torch.empty_like(x).view(-1)), 2 * nbytes
    if op == "take_rows":
        return lambda: (x := large(), torch.randperm(rows, device=device), torch.empty_like(x)), 2 * nbytes + 8 * rows
    if op == "softmax":
        return lambda: (x := large(), torch.empty_like(x)), 2 * nbytes
    if op == "rms_norm":
        return lambda: (x := large(), column(), torch.empty_like(x)), 2 * nbytes
    return lambda: (large(), large(), column()), 4 * nbytes


def _report(cases: Sequence[Case], turns: dict[str, list[list[Times]]]) -> None:
    """`turns` has of each version the times of all cases in each of its turns."""
    print(f"\n{'':<36}  {'before':>9}  {'now':>9}  {'before / now':>12}")
    print(f"{'':<36}  {'of copy_':>9}  {'of copy_':>9}  {'(time)':>12}")
    for number, (op, dtype, length, mib) in enumerate(cases):
        times = [[turn[number] for turn in of_version] for of_version in turns.values()]
        shares = [statistics.median(copied / time for time, copied in of_version) for of_version in times]
        before, now = (statistics.median(time for time, _ in of_version) for of_version in times)
        label = f"{op}, {dtype}, {length:,}, {mib:,} MiB"
        print("{:<36}  {:>9.1%}  {:>9.1%}  {:>12.3f}".format(label, *shares, before / now))


if __name__ == "__main__":
    main()
