"""How long does a new process take to load modules that are built already?

    python benchmarks/warm_load.py [--modules 50] [--repeat 5] [--only cuda] [--arch 9.0a] [--sglang DIR] [--keep DIR]

`--modules` variants of `add_constant` are built first, by kjit, by `tvm_ffi.cpp.load_inline` and by SGLang's own
`load_jit`, each into a cache of its own. Then new processes load all of them, one side after the other; imports are not
counted. CPU modules, CUDA modules, and for kjit alone simulated ones. kjit's time is also printed in its parts, and a
process that it would start ends the run with an error. `--cpu-time` counts the CPU time of the thread that loads: that
is what to look at on a machine that is busy with something else.

To load a CUDA module takes CUDA's runtime library and no GPU. Without one, kjit and SGLang are told an architecture;
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

PARTS = ("toolchain", "key", "find", "load")


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("cpu", "cuda", "sim"), help="only these modules")
    parser.add_argument("--arch", default="9.0a", help="of CUDA modules, where there is no GPU")
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

        def kjit() -> float:
            seconds, of_parts = run("warm_load", "load_with_kjit", kind, count)
            for part, values in parts.items():
                values.append(of_parts[part])
            return float(seconds)

        print(f"\nbuilding {count} {kind} modules on each side", flush=True)
        run("warm_load", "build_with_kjit", kind, count)
        sides: dict[str, Callable[[], float]] = {"kjit": kjit}
        if kind == "cuda":
            environment["SGLANG_ROOT"] = str(common.find_sglang(options.sglang))
            run("sglang_loader", "fill_sglang_cache", count)
            sides["SGLang's load_jit"] = lambda: float(run("sglang_loader", "load_with_sglang", count))
        if kind == "cpu" or (kind == "cuda" and gpu):
            run("warm_load", "load_inline_in_parallel", kind, count)
            sides["load_inline"] = lambda: float(run("warm_load", "load_inline", kind, count))
        medians = common.alternate(sides, options.repeat)
        per_module = {name: seconds * 1e3 / count for name, seconds in medians.items()}
        what = "CPU time to load" if options.cpu_time else "load"
        common.print_sides(f"{kind}: {what} {count} modules, each", per_module, "ms", list(sides)[-1])
        shares = ", ".join(f"{part} {median(values) * 1e3 / count:.3f} ms" for part, values in parts.items())
        print(f"  kjit's parts: {shares}")


def build_with_kjit(kind: str, modules: int) -> float:
    """Only to fill the cache."""
    from kjit.build import plan
    from kjit.build.store import Store

    outcomes = plan.build_all(_variants(kind, modules), Store.open())
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return 0.0


def load_with_kjit(kind: str, modules: int) -> tuple[float, dict[str, float]]:
    """Seconds to load all modules, and of that in each of `PARTS`. Runs in a process of its own."""
    import tvm_ffi

    from kjit.build.key import Key
    from kjit.build.store import Store
    from kjit.build.toolchain import Toolchain
    from kjit.runtime import load

    if kind == "cuda":
        _load_cuda_runtime()
    parts = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = common.clock()
            try:
                return function(*args, **kwargs)
            finally:
                parts[part] += common.clock() - begin

        return call

    variants = _variants(kind, modules)
    for part, home, name in (
        ("toolchain", Toolchain, "for_target"),
        ("key", Key, "of"),
        ("find", Store, "find"),
        ("load", tvm_ffi, "load_module"),
    ):
        setattr(home, name, timed(part, getattr(home, name)))
    sys.addaudithook(_refuse_processes)
    begin = common.clock()
    for variant in variants:
        load.load_variant(variant)
    return common.clock() - begin, parts


def _variants(kind: str, modules: int) -> list[Any]:
    from kjit.build.toolchain import runtime_target
    from kjit.spec import Target, Variant

    target = Target.sim() if kind == "sim" else runtime_target("cpu" if kind == "cpu" else "cuda", None)
    return [Variant(common.add_constant(constant).only(target.side), target) for constant in range(modules)]


def _load_cuda_runtime() -> None:
    """What a torch for CUDA has done when it is imported."""
    import ctypes

    import torch

    from kjit.build.toolchain import find_cuda

    if torch.cuda.is_available():
        torch.cuda.init()
    ctypes.CDLL(os.path.realpath(find_cuda().cudart), mode=ctypes.RTLD_GLOBAL)


def _refuse_processes(event: str, args: object) -> None:
    del args
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        raise RuntimeError(f"a load of what is built starts a process ({event})")


def load_inline(kind: str, modules: int) -> float:
    """The same with `tvm_ffi.cpp.load_inline`."""
    import torch
    import tvm_ffi.cpp  # noqa: F401 (imports are not counted)

    if kind == "cuda":
        torch.cuda.init()
    begin = common.clock()
    for constant in range(modules):
        _load_inline(kind, constant)
    return common.clock() - begin


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
