"""The time of the first build of an op, against the peers' builds of the same op.

    python benchmarks/cold_build.py [--repeat 5] [--sglang DIR] [--no-cuda] [--compiler nvcc|nvrtc] [--no-peers]

- CUDA: `add_constant` for sm_90a through kjit, by nvcc and by NVRTC, against SGLang 0.5.23's own kernel of that name
  with the flags that its JIT gives to nvcc. SGLang is fetched from PyPI (`pip download --no-deps`) into the cache
  folder and only its `kernels/jit` folder is unpacked; `--sglang DIR` uses one that is unpacked already. Needs nvcc,
  and no GPU. Then an edit as in a notebook: a kernel is changed and built again in one process, the scaffold's `scale`
  (one kernel) and RMSNorm (five).
- CPU: kjit against `tvm_ffi.cpp.load_inline` of the same op.

For kjit everything counts that a user waits for: look-up, generated unit, ninja, compilers, link, publication, and its
own imports; for SGLang the compiler and the linker alone. "First" is with an empty cache: compilers are asked for their
versions, and the code that all modules share is compiled. "Next" is a further op with that cache.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import common

_ARCH = "9.0a"

EDITED = {
    "scale": ("Scale<kjit::bf16_t>::run", "x * alpha", "x * alpha + 1"),
    "norm": ("RmsNorm<kjit::bf16_t>::run", "out = x * inverse_rms", "out = 2 * x * inverse_rms"),
}
"""What is edited, and how: the scaffold's, of one kernel, and the reference op, of five."""


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {common.SGLANG_VERSION}")
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--compiler", choices=("nvcc", "nvrtc"), help="one of the two; default both")
    parser.add_argument("--no-peers", action="store_true", help="time kjit alone, which needs no network")
    options = parser.parse_args(args)
    common.print_machine()

    sides: dict[str, Callable[[], float]] = {
        "kjit, first": lambda: _kjit("cpu", "first"),
        "kjit, next": lambda: _kjit("cpu", "next"),
    }
    if not options.no_peers:
        sides["load_inline"] = lambda: common.in_new_process("cold_build", "time_load_inline")
    medians = common.alternate(sides, options.repeat)
    common.print_sides("CPU: build and load add_constant", medians, "s", next(reversed(sides)))

    missing = common.nvcc_missing() if options.compiler != "nvrtc" else None
    if options.no_cuda or missing is not None:
        print(f"\nCUDA: left out: {missing or '--no-cuda'}")
        return
    sides = {}
    compilers = (options.compiler,) if options.compiler else ("nvcc", "nvrtc")
    for compiler in compilers:
        for which in ("first", "next"):
            sides[f"kjit, {compiler}, {which}"] = functools.partial(_kjit, "cuda", which, compiler)
    peer = next(iter(sides))
    if not options.no_peers:
        sglang, peer = common.find_sglang(options.sglang), f"SGLang {common.SGLANG_VERSION}"
        sides[peer] = lambda: _time_sglang(sglang)
    medians = common.alternate(sides, options.repeat)
    common.print_sides("CUDA: build add_constant for sm_90a", medians, "s", peer)
    for op, (symbol, _, _) in EDITED.items():
        sides = {f"kjit, {compiler}": functools.partial(_edit, op, compiler) for compiler in compilers}
        medians = common.alternate(sides, options.repeat)
        common.print_sides(f"CUDA: an edit of {symbol} built for sm_90a", medians, "s", next(iter(sides)))


def _kjit(target: str, which: str, compiler: str = "nvcc") -> float:
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        environment = {"KJIT_CACHE_DIR": cache, "KJIT_CUDA_COMPILER": compiler}
        if which == "next":
            common.in_new_process("cold_build", "time_kjit", target, 7, **environment)
        return common.in_new_process("cold_build", "time_kjit", target, 8, **environment)


def _edit(op: str, compiler: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        return common.in_new_process("cold_build", "time_edit", op, KJIT_CACHE_DIR=cache, KJIT_CUDA_COMPILER=compiler)


def time_edit(op: str) -> float:
    """Seconds for the build after an edit of a kernel that this process has built before."""
    import tvm_ffi  # noqa: F401

    from kjit.engine.miss import ensure_built
    from kjit.spec import Target, Variant

    symbol, old, new = EDITED[op]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{op}.cuh")
        text = _scaffold(folder) if op == "scale" else (common.OPS / source.name).read_text()
        assert old in text
        variant = Variant(common.Kernel(op, source.name, symbol, Path(folder)).spec, Target.cuda(_ARCH))
        source.write_text(text)
        ensure_built(variant)
        source.write_text(text.replace(old, new))
        begin = time.perf_counter()
        ensure_built(variant)
        return time.perf_counter() - begin


def _scaffold(folder: str) -> str:
    """What `kjit new` writes for one tensor and a number."""
    for words in (["init"], ["new", "scale", "--pattern", "minimal", "--dtypes", "bf16"]):
        subprocess.run([sys.executable, "-m", "kjit", *words], cwd=folder, check=True, capture_output=True)
    return Path(folder, "kernels", "csrc", "scale.cuh").read_text()


def time_kjit(target: str, constant: int) -> float:
    """Seconds for one build; for the CPU with loading, as `load_inline` does that too. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401 (its 1.5 s of importing torch belong to neither side)

    begin = time.perf_counter()
    from kjit.engine.miss import ensure_built
    from kjit.runtime.load import load_variant
    from kjit.spec import Target, Variant

    if target == "cpu":
        load_variant(Variant(common.add_constant(constant).only("cpu"), Target.cpu()))
    else:
        ensure_built(Variant(common.add_constant(constant).only("cuda"), Target.cuda(_ARCH)))
    return time.perf_counter() - begin


def time_load_inline() -> float:
    """Seconds for one `load_inline` into an empty folder. Runs in a process of its own."""
    import tvm_ffi.cpp

    with tempfile.TemporaryDirectory() as folder:
        source = common.TVM_FFI_CPU.replace("CONSTANT", "8")
        begin = time.perf_counter()
        tvm_ffi.cpp.load_inline(
            "add_constant", cpp_sources=source, functions="add_constant", extra_cflags=["-O3"], build_directory=folder
        )
        return time.perf_counter() - begin


def _time_sglang(root: Path) -> float:
    """Seconds that nvcc and the linker take for SGLang's `add_constant`."""
    kernel = common.Kernel("add_constant", "elementwise/add_constant.cuh", "add_constant<8>")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        common.build_sglang(kernel, root, _ARCH, Path(folder))
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
