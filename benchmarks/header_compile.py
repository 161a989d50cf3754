"""The compile time of each header, and of whole kernels against SGLang's of the same op.

    python benchmarks/header_compile.py [--repeat 5] [--sglang DIR] [--json FILE]

- Every header of kjit is compiled alone, with an empty kernel, for sm_90a; those for the host with the C++ compiler
  too. A header that adds more than 0.15 of an empty kernel's time is marked, with the headers of others that it
  includes, and the time of these alone.
- `add_constant` of `benchmarks/kernels`, and of `kjit/csrc` RMSNorm, the per-tensor quantisation to fp8 and qk-norm,
  each in the unit that kjit's builds generate, against SGLang 0.5.23's own in the unit that its JIT generates. Both
  with the same flags of nvcc, and what each defines besides: kjit's builds `KJIT_CUDA_ARCH` and `KJIT_PRECOMPILED`
  (functions without template parameters are compiled once for all modules), SGLang's `SGL_CUDA_ARCH`.
- An element-wise op and an RMSNorm as `kjit new` writes them, which serve tensors of every size, against SGLang's
  `add_constant` and its RMSNorm for one size.

All take turns in one run, and a time is the median of a unit's CPU time, of all processes of its compiler. Needs nvcc,
and no GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import common

from kjit.engine.compile.plan import wrapper_unit
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.spec import CudaArch

_ARCH = "9.0a"
_LIMIT = 0.15
_EMPTY_KERNEL = "__global__ void empty_kernel(int* p) { *p = 1; }\n"

# Headers of others that kjit's may include, and that cost more than the rest: the file name to search for among the
# files read, the header to time alone, and its label. Later ones of CUDA include earlier ones.
_FOREIGN = [
    ("cuda_fp16.h", "cuda_fp16.h", "CUDA's fp16"),
    ("cuda_bf16.h", "cuda_bf16.h", "CUDA's fp16 and bf16"),
    ("cuda_fp8.h", "cuda_fp8.h", "CUDA's fp16, bf16 and fp8"),
    ("tvm/ffi/any.h", "tvm/ffi/tvm_ffi.h", "tvm-ffi's C++ headers"),
]

# kjit's kernel and SGLang's, with the arguments that SGLang's own wrappers choose for bf16, and PDL on both sides.
_OPS = [
    (
        common.Kernel("add_constant", "add_constant.cuh", "add_constant<8>"),
        common.Kernel("add_constant", "elementwise/add_constant.cuh", "add_constant<8>"),
    ),
    (
        common.Kernel("rmsnorm", "norm.cuh", "RmsNorm<bf16_t>::run", common.OPS),
        common.Kernel("rmsnorm", "elementwise/rmsnorm.cuh", "RMSNormHalfKernel<4096, true, bf16_t>::run"),
    ),
    (
        common.Kernel("per_tensor_quant_fp8", "quant.cuh", "find_and_quantise_tensor<bf16_t>", common.OPS),
        common.Kernel("per_tensor_quant_fp8", "gemm/per_tensor_quant_fp8.cuh", "per_tensor_quant_fp8<false, bf16_t>"),
    ),
    (
        common.Kernel("qk_norm", "rope.cuh", "QkHeads<bf16_t, 128>::qknorm", common.OPS),
        common.Kernel("qk_norm", "elementwise/qknorm.cuh", "QKNormKernel<128, true, bf16_t, true>::run"),
    ),
]

# An op of `common.SCAFFOLDED`, its export, and SGLang's kernel.
_SCAFFOLDS = [
    ("scale", "Scale<fp32_t>::run", _OPS[0][1]),
    ("rms_norm", "RmsNorm<bf16_t>::run", _OPS[1][1]),
]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {common.SGLANG_VERSION}")
    parser.add_argument("--only", choices=["headers", "ops"], help="one of the two tables")
    parser.add_argument("--json", type=Path, help="write all medians into this file too")
    options = parser.parse_args(args)
    missing = common.nvcc_missing()
    if missing is not None:
        print(f"header_compile.py needs a CUDA compiler: {missing}", file=sys.stderr)
        sys.exit(2)
    common.print_machine()
    headers = [] if options.only == "ops" else _headers()
    ops = [] if options.only == "headers" else _OPS
    with tempfile.TemporaryDirectory() as folder:
        units = _Units(Path(folder))
        sides = {"empty kernel": units.nvcc(_EMPTY_KERNEL), "empty": units.cxx("")}
        if headers:
            sides |= {f"{file} alone": units.nvcc(f"#include <{file}>\n{_EMPTY_KERNEL}") for _, file, _ in _FOREIGN}
        for name in headers:
            sides[f"{name} alone"] = units.nvcc(f"#include <kjit/{name}>\n{_EMPTY_KERNEL}")
            if name.endswith(".h"):
                sides[f"{name} in C++"] = units.cxx(f"#include <kjit/{name}>\n")
        sglang = common.find_sglang(options.sglang) if ops else Path()
        for ours, theirs in ops:
            sides[f"{ours.name} of kjit"] = units.nvcc(_unit_of(ours))
            sides[f"{ours.name} of SGLang"] = units.sglang(theirs, sglang)
        for op, symbol, _ in _SCAFFOLDS if ops else ():
            sides[f"{op} of kjit new"] = units.nvcc(_scaffolded_unit(Path(folder) / op, op, symbol))
        medians = common.alternate(sides, options.repeat)
        reasons = {name: units.foreign_parts(f"#include <kjit/{name}>\n") for name in headers}
    if headers:
        _print_headers(headers, medians, reasons)
    if ops:
        _print_ops(medians)
    if options.json is not None:
        options.json.write_text(json.dumps({"seconds": medians}, indent=2) + "\n")


def _headers() -> list[str]:
    """All headers that compile alone, the cheap ones of the host first."""
    root = kjit_include() / "kjit"
    found = [str(path.relative_to(root)) for path in root.rglob("*") if path.suffix in (".h", ".cuh")]
    found.remove("highway.h")  # which reads the file that includes it
    return sorted(found, key=lambda name: (not name.endswith(".h"), name))


def _unit_of(kernel: common.Kernel) -> str:
    spec = kernel.spec
    return wrapper_unit(list(spec.cuda_files), spec.cuda_wrappers, with_cuda_types=True)


def _scaffolded_unit(root: Path, op: str, symbol: str) -> str:
    common.write_scaffold(root, f"kernels_{op}", op)
    (source,) = root.rglob(f"{op}.cuh")
    return wrapper_unit([str(source)], ((op, symbol),), with_cuda_types=True)


class _Units:
    """Makes timers of compiles; a timer returns seconds."""

    def __init__(self, folder: Path) -> None:
        own = [f"-DKJIT_CUDA_ARCH={CudaArch.parse(_ARCH).number}", "-DKJIT_PRECOMPILED"]
        includes = ["-isystem", str(kjit_include()), "-isystem", str(tvm_ffi_include())]
        self._folder = folder
        self._nvcc = [str(find_cuda().nvcc.path), *common.nvcc_flags(_ARCH), *own, *includes]
        runtime = ["-isystem", str(find_cuda().nvcc.path.parent.parent / "include")]
        self._cxx = [str(find_cxx().path), "-std=c++20", "-O3", "-fPIC", "-DKJIT_PRECOMPILED", *includes, *runtime]
        self._count = 0

    def nvcc(self, text: str) -> Callable[[], float]:
        return self._timer(self._nvcc, self._write(text, ".cu"))

    def cxx(self, text: str) -> Callable[[], float]:
        return self._timer(self._cxx, self._write(text, ".cpp"))

    def sglang(self, kernel: common.Kernel, root: Path) -> Callable[[], float]:
        command = [str(find_cuda().nvcc.path), *common.sglang_flags(root, _ARCH)]
        return self._timer(command, self._write(kernel.sglang_unit(root), ".cu"))

    def foreign_parts(self, text: str) -> list[str]:
        """The headers of `_FOREIGN` that a unit reads: of those that include each other, the last."""
        unit, listed = self._write(text, ".cu"), self._folder / "headers.d"
        common.run([*self._nvcc, "-M", unit, "-o", listed])
        read = listed.read_text()
        cuda = [index for index, (marker, *_) in enumerate(_FOREIGN[:3]) if f"/{marker}" in read]
        return [_FOREIGN[index][1] for index in cuda[-1:]] + [
            file for marker, file, _ in _FOREIGN[3:] if f"/{marker}" in read
        ]

    def _write(self, text: str, suffix: str) -> Path:
        self._count += 1
        unit = self._folder / f"unit{self._count}{suffix}"
        unit.write_text(text)
        return unit

    def _timer(self, command: Sequence[str], unit: Path) -> Callable[[], float]:
        def measure() -> float:
            start = _cpu_seconds()
            common.run([*command, "-c", unit, "-o", self._folder / "unit.o"])
            return _cpu_seconds() - start

        return measure


def _cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _print_headers(headers: Sequence[str], medians: Mapping[str, float], reasons: Mapping[str, list[str]]) -> None:
    empty, empty_cxx = medians["empty kernel"], medians["empty"]
    names = {file: name for _, file, name in _FOREIGN}
    print(f"\na unit with one header, CPU seconds; an empty kernel {empty:.3f}, an empty C++ unit {empty_cxx:.3f}")
    print(f"  {'header':<22}  {'nvcc':>6}  {'over empty':>10}  {'share':>6}  {'C++':>6}")
    for name in headers:
        seconds = medians[f"{name} alone"]
        share = (seconds - empty) / empty
        cxx = f"{medians[f'{name} in C++']:6.3f}" if f"{name} in C++" in medians else " " * 6
        notes = []
        for file in reasons[name] if share > _LIMIT else []:
            notes.append(f"{names[file]} alone: {(medians[f'{file} alone'] - empty) / empty:+.2f}")
        mark = f"  past {_LIMIT}: {'; '.join(notes) or 'its own'}" if share > _LIMIT else ""
        print(f"  {name:<22}  {seconds:>6.3f}  {seconds - empty:>+10.3f}  {share:>6.2f}  {cxx}{mark}")


def _print_ops(medians: Mapping[str, float]) -> None:
    print(f"\na kernel's unit, CPU seconds; SGLang {common.SGLANG_VERSION}")
    print(f"  {'op':<22}  {'kjit':>6}  {'SGLang':>6}  {'ratio':>6}")
    for ours, _ in _OPS:
        kjit, sglang = medians[f"{ours.name} of kjit"], medians[f"{ours.name} of SGLang"]
        print(f"  {ours.name:<22}  {kjit:>6.3f}  {sglang:>6.3f}  {kjit / sglang:>6.3f}")
    for op, _, theirs in _SCAFFOLDS:
        kjit, sglang = medians[f"{op} of kjit new"], medians[f"{theirs.name} of SGLang"]
        print(f"  {f'{op}, as scaffolded':<22}  {kjit:>6.3f}  {sglang:>6.3f}  {kjit / sglang:>6.3f}")


if __name__ == "__main__":
    main()
