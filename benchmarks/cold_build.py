"""The time of the first build of an op, against the peers' builds of the same op, and of the build after an edit.

    python benchmarks/cold_build.py [--repeat 5] [--sglang DIR] [--no-cuda] [--compiler nvcc|nvrtc] [--no-peers]

- CUDA, for sm_90a, by nvcc and by NVRTC: `add_constant`, the scaffold's `scale` and the scaffold's RMSNorm (five
  kernels), against SGLang 0.5.23's own `add_constant` and RMSNorm with the flags that its JIT gives to nvcc. SGLang is
  fetched from PyPI (`pip download --no-deps`) into the cache folder and only its `kernels/jit` folder is unpacked;
  `--sglang DIR` uses one that is unpacked already. Needs nvcc for SGLang's side, and no GPU.
- An edit as in a notebook: a kernel is changed, built and loaded again in one process, several times; where there is a
  GPU it is called, too.
- CPU: kjit against `tvm_ffi.cpp.load_inline` of the same op.

For kjit everything counts that a user waits for: look-up, generated unit, compilers, link, publication, and its own
imports; for SGLang the compiler and the linker alone. Both times of a CUDA build are given: the wall's and that of all
processors. "First" is with an empty cache: compilers are asked for their versions, and the code that all modules share
is compiled. "Next" is a further op with that cache.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import common

from kjit.spec import Target, Variant

_ARCH = "9.0a"
_EDITS = 6
_PATIENCE_S = 3.0  # how long it takes to change a file; headers are precompiled meanwhile

SGLANG = {
    "add_constant": common.Kernel("add_constant", "elementwise/add_constant.cuh", "add_constant<8>"),
    "rms_norm": common.Kernel("rmsnorm", "elementwise/rmsnorm.cuh", "RMSNormHalfKernel<4096, true, bf16_t>::run"),
}

OPS = {
    "add_constant": ("add_constant<8>", "values[j] += kConstant", "values[j] += kConstant + {}", "add_constant"),
    "scale": ("Scale<kjit::bf16_t>::run", "x * alpha", "x * alpha + {}", "add_constant"),
    "rms_norm": ("RmsNorm<kjit::bf16_t>::run", "x * inverse_rms", "{} * x * inverse_rms", "rms_norm"),
}
"""For each op: the exported function, the edited text and its replacement, and SGLang's kernel."""


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {common.SGLANG_VERSION}")
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--compiler", choices=("nvcc", "nvrtc"), help="one of the two; default both")
    parser.add_argument("--no-peers", action="store_true", help="time kjit alone, which needs no network")
    options = parser.parse_args(args)
    common.print_machine()
    if not options.no_cpu:
        _cpu(options.repeat, with_peers=not options.no_peers)
    missing = common.nvcc_missing() if options.compiler != "nvrtc" else None
    if options.no_cuda or missing is not None:
        print(f"\nCUDA: left out: {missing or '--no-cuda'}")
        return
    sglang = None if options.no_peers else common.find_sglang(options.sglang)
    with tempfile.TemporaryDirectory() as folder:
        sources = write_sources(Path(folder))
        _cuda(options.repeat, (options.compiler,) if options.compiler else ("nvcc", "nvrtc"), sources, sglang)


def _cpu(repeat: int, *, with_peers: bool) -> None:
    sides: dict[str, Callable[[], float]] = {
        "kjit, first": lambda: _time_cpu("first"),
        "kjit, next": lambda: _time_cpu("next"),
    }
    if with_peers:
        sides["load_inline"] = lambda: common.in_new_process("cold_build", "time_load_inline")
    medians = common.alternate(sides, repeat)
    common.print_sides("CPU: build and load add_constant", medians, "s", next(reversed(sides)))


def _cuda(repeat: int, compilers: Sequence[str], sources: Mapping[str, Path], sglang: Path | None) -> None:
    print(f"\nCUDA: edit, build and load again in one process, for sm_90a, seconds of the wall; {_EDITS} edits")
    print(f"  {'op':<14}  {'compiler':<8}  {'first edit':>10}  {'median':>6}  {'last':>6}")
    for op, source in sources.items():
        for compiler in compilers:
            with tempfile.TemporaryDirectory() as cache:
                os.chmod(cache, 0o700)
                environment = {"KJIT_CACHE_DIR": cache, "KJIT_CUDA_COMPILER": compiler}
                times = common.result_of_new_process("cold_build", "time_edits", op, str(source), **environment)
            print(
                f"  {op:<14}  {compiler:<8}  {times[0]:>10.3f}  {statistics.median(times):>6.3f}  {times[-1]:>6.3f}",
                flush=True,
            )
    sides: dict[tuple[str, str], Callable[[], Sequence[float]]] = {}
    for op, source in sources.items():
        for compiler in compilers:
            for which in ("first", "next") if op == "add_constant" else ("next",):
                sides[op, f"kjit, {compiler}, {which}"] = functools.partial(_time_cuda, op, source, which, compiler)
    if sglang is not None:
        for op, kernel in SGLANG.items():
            sides[op, "SGLang"] = functools.partial(_time_sglang, kernel, sglang)
    results: dict[tuple[str, str], list[Sequence[float]]] = {}
    for _ in range(repeat):
        for name, measure in sides.items():
            results.setdefault(name, []).append(measure())
    medians = {
        name: [statistics.median(each) for each in zip(*values, strict=True)] for name, values in results.items()
    }
    print("\nCUDA: build for sm_90a, seconds")
    print(f"  {'op':<14}  {'side':<20}  {'wall':>6}  {'of SGLang':>9}  {'CPU':>6}  {'of SGLang':>9}")
    for (op, side), (wall, cpu) in medians.items():
        theirs = medians.get((OPS[op][3], "SGLang"))
        wall_share, cpu_share = (f"{wall / theirs[0]:.3f}", f"{cpu / theirs[1]:.3f}") if theirs else ("", "")
        print(f"  {op:<14}  {side:<20}  {wall:>6.3f}  {wall_share:>9}  {cpu:>6.3f}  {cpu_share:>9}")


def write_sources(folder: Path) -> dict[str, Path]:
    """Write what each of `OPS` is compiled from: two as `kjit new` writes them."""
    source = folder / "add_constant.cuh"
    source.write_text((common.KERNELS / source.name).read_text())
    sources = {"add_constant": source}
    for words in (["init"], ["new", "scale", "--pattern", "minimal", "--dtypes", "bf16"]):
        subprocess.run([sys.executable, "-m", "kjit", *words], cwd=folder, check=True, capture_output=True)
    common.write_scaffold(folder / "rowwise", "kernels_rowwise", "rms_norm", "--dtypes", "bf16")
    for op in ("scale", "rms_norm"):
        (sources[op],) = folder.rglob(f"{op}.cuh")
    return sources


def variant_of(op: str, source: Path) -> Variant:
    """The variant of an op that is compiled from `source`."""
    return Variant(common.Kernel(op, source.name, OPS[op][0], source.parent).spec, Target.cuda(_ARCH))


def _time_cpu(which: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        for constant in (7, 8) if which == "next" else (8,):
            seconds = common.in_new_process("cold_build", "time_kjit", constant, KJIT_CACHE_DIR=cache)
    return seconds


def _time_cuda(op: str, source: Path, which: str, compiler: str) -> Sequence[float]:
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        environment = {"KJIT_CACHE_DIR": cache, "KJIT_CUDA_COMPILER": compiler}
        if which == "next":  # whatever comes before it
            before = "scale" if op == "add_constant" else "add_constant"
            other = next(path for path in source.parents if (path / "add_constant.cuh").is_file())
            (path,) = other.rglob(f"{before}.cuh")
            common.result_of_new_process("cold_build", "time_build", before, str(path), **environment)
        seconds: Sequence[float] = common.result_of_new_process(
            "cold_build", "time_build", op, str(source), **environment
        )
        return seconds


def time_build(op: str, source: str) -> list[float]:
    """Seconds of the wall and of all processors for one build, which needs no torch. Runs in a process of its own."""
    begin, before = time.perf_counter(), _cpu_seconds()
    from kjit.engine.miss import ensure_built

    ensure_built(variant_of(op, Path(source)))
    wall = time.perf_counter() - begin
    from kjit.engine.compile import start_helper

    start_helper.end()  # the CPU time of a process is known when it has ended
    return [wall, _cpu_seconds() - before]


def time_edits(op: str, source: str) -> list[float]:
    """Seconds of the wall for each edit of a kernel until its library is loaded. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401

    from kjit.runtime.load import load_variant

    _, old, new, _ = OPS[op]
    path = Path(source)
    text = path.read_text()
    assert old in text
    call = _call_of(op) if common.has_gpu() else lambda _: None
    call(load_variant(variant_of(op, path))[op])
    times = []
    try:
        for edit in range(_EDITS):
            time.sleep(_PATIENCE_S)
            path.write_text(text.replace(old, new.format(edit + 2)))
            begin = time.perf_counter()
            call(load_variant(variant_of(op, path))[op])
            times.append(time.perf_counter() - begin)
    finally:
        path.write_text(text)
    return times


def _call_of(op: str) -> Callable[[Callable[..., object]], None]:
    import torch

    dtype = torch.int32 if op == "add_constant" else torch.bfloat16
    x, out = (torch.ones(64, 4096, dtype=dtype, device="cuda") for _ in range(2))
    arguments = {
        "add_constant": (out.flatten(), x.flatten()),
        "scale": (x, 2.0, out),
        "rms_norm": (x, x[0].clone(), 1e-6, out),
    }[op]

    def call(function: Callable[..., object]) -> None:
        function(*arguments)
        torch.cuda.synchronize()

    return call


def _cpu_seconds() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def time_kjit(constant: int) -> float:
    """Seconds for one build for the CPU and its load, as `load_inline` does that too. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401

    begin = time.perf_counter()
    from kjit.runtime.load import load_variant

    load_variant(Variant(common.add_constant(constant).only("cpu"), Target.cpu()))
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


def _time_sglang(kernel: common.Kernel, root: Path) -> Sequence[float]:
    """Seconds that nvcc and the linker take for a kernel of SGLang's: the wall's, and of all processors."""
    with tempfile.TemporaryDirectory() as folder:
        begin, before = time.perf_counter(), _cpu_seconds()
        common.build_sglang(kernel, root, _ARCH, Path(folder))
        return [time.perf_counter() - begin, _cpu_seconds() - before]


if __name__ == "__main__":
    main()
