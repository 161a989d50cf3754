"""The time that a new process takes to load modules that are built already.

    python benchmarks/warm_load.py [--modules 50] [--repeat 5] [--only cuda] [--arch 9.0a] [--sglang DIR] [--keep DIR]

`--modules` variants of `add_constant` are built first, by kjit, by `tvm_ffi.cpp.load_inline` and by SGLang's own
`load_jit`, each into a cache of its own. Then new processes load all of them, one side after the other: the first
module, and each further one. torch and tvm-ffi are imported before the clock starts, and `tvm_ffi.cpp` and SGLang are;
kjit's own imports are part of its first module. CPU modules, CUDA modules, and for kjit alone simulated ones. kjit's
time is also printed in its parts, and a process that it would start ends the run with an error. `--cpu-time` counts the
CPU time of the thread that loads: that is what to look at on a machine that is busy with something else.

To load a CUDA module takes CUDA's runtime library and no GPU. Without one, kjit and SGLang are given an architecture;
`load_inline` asks the driver for it, and is left out. SGLang's side needs `pip install msgspec`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import common

PARTS = ("import", "toolchain", "find", "load")


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("cpu", "cuda", "sim"), help="only these modules")
    parser.add_argument("--arch", default="9.0a", help="of CUDA modules, if there is no GPU")
    parser.add_argument("--sglang", type=Path, help="folder of an unpacked wheel of SGLang; fetched from PyPI without")
    parser.add_argument("--keep", type=Path, help="a folder for the caches, for the next run; temporary without")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time, not the time of the clock on the wall")
    options = parser.parse_args(args)
    gpu = common.has_gpu()
    common.print_machine(gpu=gpu)
    for kind in (options.only,) if options.only else ("cpu", "cuda", "sim"):
        missing = common.nvcc_missing() if kind == "cuda" else None
        if missing is None:
            _compare(kind, options, gpu=gpu)
        else:
            print(f"\n{kind}: left out: {missing}")


def _compare(kind: str, options: argparse.Namespace, *, gpu: bool) -> None:
    count: int = options.modules
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary if options.keep is None else options.keep.resolve()
        environment = {
            "KJIT_CACHE_DIR": f"{folder}/kjit",
            "TVM_FFI_CACHE_DIR": f"{folder}/tvm_ffi",
            "SGLANG_JIT_CACHE_DIR": f"{folder}/sglang",
            common.CLOCK: "cpu" if options.cpu_time else "wall",
        }
        if kind == "cuda" and not gpu:
            environment["KJIT_CUDA_ARCH_LIST"] = options.arch

        def run(script: str, function: str, *arguments: object) -> Any:
            return common.result_of_new_process(script, function, *arguments, **environment)

        parts: dict[str, list[float]] = {part: [] for part in PARTS}

        firsts: dict[str, list[float]] = {}

        def further(side: str, first: float, seconds: float) -> float:
            firsts.setdefault(side, []).append(first)
            return seconds

        def kjit() -> float:
            first, seconds, of_parts = run("warm_load", "load_with_kjit", kind, count)
            for part, values in parts.items():
                values.append(of_parts[part])
            return further("kjit", first, seconds)

        print(f"\nbuilding {count} {kind} modules on each side", flush=True)
        run("warm_load", "build_with_kjit", kind, count)
        sides: dict[str, Callable[[], float]] = {"kjit": kjit}
        if kind == "cuda":
            environment["SGLANG_ROOT"] = str(common.find_sglang(options.sglang))
            run("sglang_loader", "fill_sglang_cache", count)
            sides["SGLang's load_jit"] = lambda: further(
                "SGLang's load_jit", *run("sglang_loader", "load_with_sglang", count)
            )
        if kind == "cpu" or (kind == "cuda" and gpu):
            run("warm_load", "load_inline_in_parallel", kind, count)
            sides["load_inline"] = lambda: further("load_inline", *run("warm_load", "load_inline", kind, count))
        medians = common.alternate(sides, options.repeat)
        what = "CPU time to load" if options.cpu_time else "load"
        first = {name: median(values) * 1e3 for name, values in firsts.items()}
        common.print_sides(f"{kind}: {what} the first module of a process", first, "ms", list(sides)[-1])
        each = {name: seconds * 1e3 / (count - 1) for name, seconds in medians.items()}
        common.print_sides(f"{kind}: {what} each further one", each, "ms", list(sides)[-1])
        shares = ", ".join(f"{part} {median(values) * 1e3 / count:.3f} ms" for part, values in parts.items())
        print(f"  kjit's parts, a module: {shares}")


def build_with_kjit(kind: str, modules: int) -> float:
    """Only to fill the cache."""
    from kjit.engine import pool
    from kjit.engine.cache.store import Store

    outcomes = pool.build_all(_variants(kind, modules), Store.open())
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return 0.0


def load_with_kjit(kind: str, modules: int) -> tuple[float, float, dict[str, float]]:
    """Seconds for the first module and for all others, and of both together in each of `PARTS`. Runs in a process of
    its own."""
    import torch  # noqa: F401 (its import is not counted)
    import tvm_ffi

    if kind == "cuda":
        _load_cuda_runtime()
    unloaded = [name for name in sys.modules if name.partition(".")[0] == "kjit"]
    for name in unloaded:  # this script has imported some of it
        del sys.modules[name]
    parts = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = common.clock()
            try:
                return function(*args, **kwargs)
            finally:
                parts[part] += common.clock() - begin

        return call

    tvm_ffi.load_module = timed("load", tvm_ffi.load_module)
    sys.addaudithook(_refuse_processes)
    begin = common.clock()
    from kjit.runtime import load, manifest

    parts["import"] = common.clock() - begin
    manifest.toolchain_in = timed("toolchain", manifest.toolchain_in)
    manifest.find = timed("find", manifest.find)
    load.load_variant(_variant(kind, 0))
    first = common.clock() - begin
    variants = [_variant(kind, constant) for constant in range(1, modules)]
    begin = common.clock()
    for variant in variants:
        load.load_variant(variant)
    return first, common.clock() - begin, parts


def _variants(kind: str, modules: int) -> list[Any]:
    return [_variant(kind, constant) for constant in range(modules)]


def _variant(kind: str, constant: int) -> Any:
    from kjit.runtime.load import runtime_target
    from kjit.spec import Spec, Target, Variant

    target = Target.sim() if kind == "sim" else runtime_target("cpu" if kind == "cpu" else "cuda", None)
    spec = common.add_constant(constant).only(target.side)
    # Of the classes that are imported now: `common` has those of before.
    return Variant(Spec(spec.name, *spec.args, **{name: getattr(spec, name) for name in spec._fields[2:]}), target)


def _load_cuda_runtime() -> None:
    """Load CUDA's runtime, as importing a torch for CUDA does."""
    import ctypes

    import torch

    from kjit.engine.toolchain.cuda import find_cuda

    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    ctypes.CDLL(os.path.realpath(find_cuda().cudart), mode=ctypes.RTLD_GLOBAL)


def _refuse_processes(event: str, args: object) -> None:
    del args
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        raise RuntimeError(f"loading a built module starts a process ({event})")


def load_inline(kind: str, modules: int) -> tuple[float, float]:
    """Seconds for the first module and for all others with `tvm_ffi.cpp.load_inline`."""
    import torch
    import tvm_ffi.cpp  # noqa: F401 (imports are not counted)

    if kind == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    begin = common.clock()
    _load_inline(kind, 0)
    first = common.clock() - begin
    begin = common.clock()
    for constant in range(1, modules):
        _load_inline(kind, constant)
    return first, common.clock() - begin


def load_inline_in_parallel(kind: str, modules: int) -> float:
    """Only to fill the cache."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda constant: _load_inline(kind, constant), range(modules)))
    return 0.0


def _load_inline(kind: str, constant: int) -> None:
    import tvm_ffi.cpp

    if kind == "cpu":
        source = common.TVM_FFI_CPU.replace("CONSTANT", str(constant))
        tvm_ffi.cpp.load_inline("add_constant", cpp_sources=source, functions="add_constant")
    else:
        source = common.TVM_FFI_CUDA.replace("CONSTANT", str(constant))
        tvm_ffi.cpp.load_inline("add_constant", cuda_sources=source, functions="add_constant")


if __name__ == "__main__":
    main()
