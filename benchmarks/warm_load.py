"""How long does a new process take to load modules that are built already?

    python benchmarks/warm_load.py [--modules 50] [--repeat 5]

`--modules` variants of `add_constant` are built first, by kjit and by `tvm_ffi.cpp.load_inline`, each into its own
cache. Then new processes load all of them, one side after the other; imports are not counted. CPU modules, and CUDA
modules where there is a GPU.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import common

from kjit.spec import Side


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(args)
    gpu = common.has_gpu()
    common.print_machine(gpu=gpu)
    _compare("cpu", options.modules, options.repeat)
    if gpu and common.nvcc_missing() is None:
        _compare("cuda", options.modules, options.repeat)
    else:
        print(f"\nCUDA: left out: {common.nvcc_missing() or 'there is no GPU to load a module on'}")


def _compare(kind: Side, modules: int, repeat: int) -> None:
    with tempfile.TemporaryDirectory() as kjit_cache, tempfile.TemporaryDirectory() as tvm_cache:
        caches = {"KJIT_CACHE_DIR": kjit_cache, "TVM_FFI_CACHE_DIR": tvm_cache}
        print(f"\nbuilding {modules} {kind} modules on each side")
        for function in ("load_with_kjit", "load_inline_in_parallel"):
            common.in_new_process("warm_load", function, kind, modules, **caches)
        medians = common.alternate(
            {
                "kjit": lambda: common.in_new_process("warm_load", "load_with_kjit", kind, modules, **caches),
                "load_inline": lambda: common.in_new_process("warm_load", "load_inline", kind, modules, **caches),
            },
            repeat,
        )
    per_module = {name: seconds * 1e3 / modules for name, seconds in medians.items()}
    common.print_sides(f"{kind}: load {modules} modules, each", per_module, "ms", "load_inline")


def load_with_kjit(kind: Side, modules: int) -> float:
    """Seconds to load all modules. Runs in a process of its own."""
    import torch
    import tvm_ffi  # noqa: F401 (imports are not counted)

    from kjit.build.toolchain import runtime_target
    from kjit.runtime.load import load_variant
    from kjit.spec import Variant

    if kind == "cuda":
        torch.cuda.init()
    begin = time.perf_counter()
    for constant in range(modules):
        load_variant(Variant(common.add_constant(constant).only(kind), runtime_target(kind, None)))
    return time.perf_counter() - begin


def load_inline(kind: Side, modules: int) -> float:
    """The same with `tvm_ffi.cpp.load_inline`."""
    import torch
    import tvm_ffi.cpp  # noqa: F401 (imports are not counted)

    if kind == "cuda":
        torch.cuda.init()
    begin = time.perf_counter()
    for constant in range(modules):
        _load_inline(kind, constant)
    return time.perf_counter() - begin


def load_inline_in_parallel(kind: Side, modules: int) -> float:
    """Only to fill the cache."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda constant: _load_inline(kind, constant), range(modules)))
    return 0.0


def _load_inline(kind: Side, constant: int) -> None:
    import tvm_ffi.cpp

    if kind == "cpu":
        source = common.TVM_FFI_CPU.replace("CONSTANT", str(constant))
        tvm_ffi.cpp.load_inline("add_constant", cpp_sources=source, functions="add_constant")
    else:
        source = common.TVM_FFI_CUDA.replace("CONSTANT", str(constant))
        tvm_ffi.cpp.load_inline("add_constant", cuda_sources=source, functions="add_constant")


if __name__ == "__main__":
    main()
