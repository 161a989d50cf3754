"""The start-up time of kjit, compared with Python's, and whether it loads torch; and the time to the first result of an
op of `kjit new`.

    python benchmarks/startup.py [--repeat 20] [--cpu-time]

The op is built before, and runs on a tensor of the CPU in new processes: with its module in the cache, in a bundle
beside its wrapper, and for comparison the same kernel by `tvm_ffi.cpp.load_inline`. torch and tvm-ffi are imported
before the clock starts; all of kjit, the wrapper, the op's registration in PyTorch and its call are counted. The second
call, with another dtype, loads one more module. `--cpu-time` counts the CPU time of that thread: what to look at
on a machine that is busy with something else; the ninja that `load_inline` starts is not in it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common

_SIDES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import kjit": [sys.executable, "-c", "import kjit"],
    "kjit --help": [sys.executable, "-m", "kjit", "--help"],
    "kjit new --help": [sys.executable, "-m", "kjit", "new", "--help"],
}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time until an op's first result")
    options = parser.parse_args(args)
    common.print_machine()
    for command in _SIDES.values():
        _run(command)  # compiles Python's own files once
    sides = {name: functools.partial(_run, command) for name, command in _SIDES.items()}
    medians = common.alternate(sides, options.repeat)
    common.print_sides("start to exit", medians, "ms", "python -c pass")
    base = medians["python -c pass"]
    for name in list(_SIDES)[1:]:
        print(f"  {name}: {medians[name] - base:+.1f} ms over Python; loads torch: {_loads_torch(_SIDES[name])}")
    _compare_first_results(options.repeat, cpu_time=options.cpu_time)


def _compare_first_results(repeat: int, *, cpu_time: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "cached")
        environment = {
            "KJIT_CACHE_DIR": f"{folder}/cache",
            "TVM_FFI_CACHE_DIR": f"{folder}/tvm_ffi",
            common.CLOCK: "cpu" if cpu_time else "wall",
        }
        package = Path(common.__file__).resolve().parents[1] / "kjit"
        for name in ("ops/add_constant.py", "csrc/add_constant.h", "csrc/add_constant.cpp", "csrc/add_constant.cuh"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(package / name, home / name)
        bundled = shutil.copytree(home, Path(folder, "bundled"))
        common.result_of_new_process("startup", "fill_bundle", str(bundled), **environment)
        further: dict[str, list[float]] = {}

        def run(side: str, function: str, *arguments: str) -> float:
            first, second = common.result_of_new_process("startup", function, *arguments, **environment)
            further.setdefault(side, []).append(second)
            return float(first)

        sides = {
            "cache": functools.partial(run, "cache", "first_results", str(home)),
            "bundle": functools.partial(run, "bundle", "first_results", str(bundled)),
            "load_inline": functools.partial(run, "load_inline", "first_results_of_load_inline"),
        }
        for side in sides.values():
            for _ in range(3):  # compiles it; finds it, as folders are too young; from then on by times
                side()
                time.sleep(1.0)
        further.clear()
        medians = common.alternate(sides, repeat)
    what = "CPU time of " if cpu_time else ""
    common.print_sides(f"{what}an op's first result in a process", medians, "ms", "load_inline")
    each = {side: median(values) for side, values in further.items()}
    common.print_sides(f"{what}its first result with another module", each, "ms", "load_inline")


def fill_bundle(home: str) -> float:
    """Write the bundle beside the wrapper. Runs in a process of its own."""
    from kjit.engine import bundle_writer, pool
    from kjit.engine.cache.store import Store
    from kjit.runtime.load import BUNDLE
    from kjit.spec import Target, Variant

    op = _import_op(home)
    specs = [op._add_constant.spec(dtype, 1) for dtype in op.DTYPES[:2]]
    targets = bundle_writer.targets_of_bundle([Target.cpu()])
    variants = [Variant(spec.only("cpu"), target) for spec in specs for target in targets]
    outcomes = pool.build_all(variants, Store.open())
    artifacts = [(each.variant, each.artifact) for each in outcomes if each.artifact is not None]
    bundle_writer.write(Path(home, "ops", BUNDLE), artifacts)
    return 0.0


def first_results(home: str) -> tuple[float, float]:
    """Milliseconds until an op has its first result, and its first with another dtype. Runs in a process of its own."""
    import torch
    import tvm_ffi  # noqa: F401 (its import is not counted)

    for name in [name for name in sys.modules if name.partition(".")[0] == "kjit"]:  # `common` has imported some of it
        del sys.modules[name]
    whole, real = torch.zeros(8, dtype=torch.int32), torch.zeros(8)
    begin = common.clock()
    op = _import_op(home)
    op.add_constant(whole)
    first = common.clock()
    op.add_constant(real)
    return (first - begin) * 1e3, (common.clock() - first) * 1e3


def first_results_of_load_inline() -> tuple[float, float]:
    """The same with `tvm_ffi.cpp.load_inline`."""
    import torch
    import tvm_ffi.cpp

    x, out = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    times = [common.clock()]
    for constant in ("1", "2"):
        source = common.TVM_FFI_CPU.replace("CONSTANT", constant)
        tvm_ffi.cpp.load_inline("add_constant", cpp_sources=source, functions="add_constant").add_constant(out, x)
        times.append(common.clock())
    return (times[1] - times[0]) * 1e3, (times[2] - times[1]) * 1e3


def _import_op(home: str) -> Any:
    sys.path.insert(0, home)
    return importlib.import_module("ops.add_constant")


def _run(command: list[str]) -> float:
    begin = common.clock()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (common.clock() - begin) * 1e3


def _loads_torch(command: list[str]) -> str:
    """Ask Python which modules it imports."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    log = subprocess.run(timed, check=True, capture_output=True, text=True).stderr
    return "yes" if any(line.rpartition("|")[2].strip() == "torch" for line in log.splitlines()) else "no"


if __name__ == "__main__":
    main()
