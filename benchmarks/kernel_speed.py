"""The speed of the kernels of kjit's ops, against `copy_` and SGLang's own kernels.

    python benchmarks/kernel_speed.py [--ops copy,rmsnorm] [--widths 128,4096] [--quick] [--sglang DIR | --no-sglang]
        [--json FILE]

All kernels are built first, in parallel: kjit's from `kjit/csrc` (those of no op from `benchmarks/kernels`), SGLang
0.5.23's with the flags and the template arguments that its own JIT and wrappers choose. Then, op by op:

- Large inputs: GB/s, counting what the op has to read and write (the dynamic quantisation reads its input twice),
  against a `copy_` that moves as many bytes.
- 1 to 64 rows: microseconds a call, against SGLang's kernel where it has one for that op, dtype and size. The two take
  turns twice, and the better median of each counts.

Every timing is a CUDA graph over enough sets of tensors for a cold cache (or 256, for tensors so small that the
launch is all there is), repeated until the median is known to half a percent. Needs a GPU and nvcc; exits with status
2 if one is missing.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
import torch
import tvm_ffi
from clocks import watch_throttling
from common import Kernel

from kjit.bench.hardware import find_hardware
from kjit.benchmark import quick, rotated
from kjit.engine.miss import ensure_built
from kjit.ops import quant
from kjit.runtime.load import load_variant
from kjit.spec import Target, Variant

_ROWS = [1, 8, 64]
_LARGE = [128 * 2**20, 2**30]  # bytes of the input
_HIDDEN = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
_CPP = {torch.float32: "fp32_t", torch.float16: "fp16_t", torch.bfloat16: "bf16_t"}
_EPS = 1e-6
_Q_HEADS, _K_HEADS = 32, 8

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One kernel at one dtype and width.

    Attributes:
        width: elements of a row.
        make: the arguments of SGLang's kernel for a number of rows.
        bytes_per_element: read and written, for each element of the input.
        ours: the arguments of kjit's kernel, made of those.
    """

    op: str
    dtype: torch.dtype
    width: int
    kjit: Kernel
    sglang: Kernel | None
    make: Callable[[int], Arguments]
    bytes_per_element: float
    ours: Callable[..., Arguments] = lambda *arguments: arguments

    @property
    def label(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} x {self.width:,}"


@dataclass
class Results:
    """The content of the file of `--json`."""

    large: list[dict[str, object]] = field(default_factory=list)
    small: list[dict[str, object]] = field(default_factory=list)


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(_OPS), help="which of them, with commas between; by default all")
    parser.add_argument("--widths", type=_numbers, help="numbers of elements of rows to measure, with commas between")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, and shorter measurements")
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {common.SGLANG_VERSION}")
    parser.add_argument("--no-sglang", action="store_true", help="kjit and copy_ alone")
    parser.add_argument("--json", type=Path, help="write all results into this file too, after every op")
    options = parser.parse_args(args)
    common.require_gpu("kernel_speed.py")
    unknown = set(options.ops.split(",")) - set(_OPS)
    if unknown:
        parser.error(f"there is no op {', '.join(sorted(unknown))}; there are {', '.join(_OPS)}")
    common.print_machine(gpu=True)
    few = options.quick and options.widths is None
    cases = {op: [*_OPS[op](few)] for op in options.ops.split(",")}
    if options.widths is not None:
        cases = {op: [case for case in of_op if case.width in options.widths] for op, of_op in cases.items()}
    every = [case for of_op in cases.values() for case in of_op]
    arch = "{}.{}a".format(*torch.cuda.get_device_capability())
    results = Results()
    with (
        tempfile.TemporaryDirectory() as folder,
        watch_throttling(find_hardware("cuda").uuid) as watch,
        quick() if options.quick else nullcontext(),
    ):
        ours = _build_kjit(dict.fromkeys(case.kjit for case in every), arch)
        kernels = dict.fromkeys(case.sglang for case in every if case.sglang is not None)
        theirs = (
            {} if options.no_sglang else _build_sglang(kernels, common.find_sglang(options.sglang), arch, Path(folder))
        )
        for op, of_op in cases.items():
            _large(op, of_op, ours, results)
            _small(op, of_op, ours, theirs, results)
            if options.json is not None:
                options.json.write_text(json.dumps(vars(results), indent=2) + "\n")
    print(f"\nclocks were held down by: {', '.join(watch.reasons) or 'nothing'}")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _build_kjit(kernels: Sequence[Kernel] | dict[Kernel, None], arch: str) -> dict[Kernel, Callable[..., None]]:
    variants = {kernel: Variant(kernel.spec, Target.cuda(arch)) for kernel in kernels}
    print(f"\nbuilding {len(variants)} kernels of kjit", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(ensure_built, variants.values()))
    return {kernel: load_variant(variant)[kernel.name] for kernel, variant in variants.items()}


def _with_our_arguments(case: Case, function: Callable[..., None]) -> Callable[..., None]:
    """kjit's kernel, called with the arguments of SGLang's."""
    return lambda *arguments: function(*case.ours(*arguments))


def _build_sglang(
    kernels: Sequence[Kernel] | dict[Kernel, None], root: Path, arch: str, folder: Path
) -> dict[Kernel, Callable[..., None]]:
    def build(numbered: tuple[int, Kernel]) -> Path:
        home = folder / str(numbered[0])
        home.mkdir()
        return common.build_sglang(numbered[1], root, arch, home)

    print(f"building {len(kernels)} kernels of SGLang", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        libraries = list(pool.map(build, enumerate(kernels)))
    return {
        kernel: tvm_ffi.load_module(str(library))[kernel.name]
        for kernel, library in zip(kernels, libraries, strict=True)
    }


def _large(op: str, cases: list[Case], ours: dict[Kernel, Callable[..., None]], results: Results) -> None:
    print(f"\n{op}, large: GB/s, read and written")
    print(f"  {'':<18}  {'input':>10}  {'kjit':>7}  {'copy_':>7}  {'of copy_':>8}")
    for case in cases:
        for nbytes in _LARGE:
            rows = nbytes // (case.width * case.dtype.itemsize)
            moved = int(rows * case.width * case.bytes_per_element)
            microseconds = _time([_with_our_arguments(case, ours[case.kjit])], case, rows, moved)[0]
            copy = common.time_copy(moved)
            rates = [moved / each / 1e3 for each in (microseconds, copy)]
            print(
                "  {:<18}  {:>6,} MiB  {:>7,.0f}  {:>7,.0f}  {:>8.1%}".format(
                    case.label, nbytes // 2**20, *rates, copy / microseconds
                ),
                flush=True,
            )
            results.large.append(
                {
                    "op": op,
                    "case": case.label,
                    "bytes": nbytes,
                    "moved": moved,
                    "kjit_us": microseconds,
                    "copy_us": copy,
                }
            )


def _small(
    op: str,
    cases: list[Case],
    ours: dict[Kernel, Callable[..., None]],
    theirs: dict[Kernel, Callable[..., None]],
    results: Results,
) -> None:
    print(f"\n{op}, small: us a call, and SGLang's time as a multiple of kjit's")
    print(f"  {'':<18}  {'rows':>5}  {'kjit':>7}  {'SGLang':>7}  {'ratio':>6}")
    for case in cases:
        for rows in _ROWS:
            functions = [_with_our_arguments(case, ours[case.kjit])]
            if case.sglang is not None and case.sglang in theirs:
                functions.append(theirs[case.sglang])
            times = _time(functions, case, rows, int(rows * case.width * case.bytes_per_element))
            peer = f"{times[1]:>7.3f}  {times[1] / times[0]:>5.2f}x" if len(times) > 1 else f"{'-':>7}  {'-':>6}"
            print(f"  {case.label:<18}  {rows:>5}  {times[0]:>7.3f}  {peer}", flush=True)
            results.small.append(
                {"op": op, "case": case.label, "rows": rows, "kjit_us": times[0], "sglang_us": [*times, None][1]}
            )


def _time(functions: list[Callable[..., None]], case: Case, rows: int, nbytes: int) -> list[float]:
    """Microseconds of each function; several take turns."""
    sets = rotated(lambda: case.make(rows), nbytes=nbytes, device="cuda")
    turns = [functools.partial(common.time_calls, function, sets) for function in functions]
    times = [[turn() for turn in turns] for _ in range(1 if len(turns) == 1 else 2)]
    del sets
    torch.cuda.empty_cache()
    return [min(of_function) for of_function in zip(*times, strict=True)]


def _add_constant(is_quick: bool) -> Iterator[Case]:
    def make(rows: int) -> Arguments:
        src = torch.ones(rows * 4096, dtype=torch.int32, device="cuda")
        return torch.empty_like(src), src

    del is_quick
    ours = Kernel("add_constant", "add_constant.cuh", "AddConstant<int32_t, 8>::run", common.OPS)
    theirs = Kernel("add_constant", "elementwise/add_constant.cuh", "add_constant<8>")
    yield Case("add_constant", torch.int32, 4096, ours, theirs, make, 8, lambda dst, src: (src, dst))


def _copy(is_quick: bool) -> Iterator[Case]:
    def make(rows: int) -> Arguments:
        src = torch.ones(rows * 4096, dtype=torch.bfloat16, device="cuda")
        return torch.empty_like(src), src

    del is_quick
    yield Case("copy", torch.bfloat16, 4096, Kernel("copy", "copy.cuh", "Copy<bf16_t>::run"), None, make, 4)


def _rmsnorm(is_quick: bool) -> Iterator[Case]:
    def make(rows: int, width: int, dtype: torch.dtype) -> Arguments:
        x = torch.randn(rows, width, device="cuda").to(dtype)
        return x, torch.randn(width, device="cuda").to(dtype), torch.empty_like(x), _EPS

    for dtype, cpp in _CPP.items():
        for width in [128, 4096, 16384] if is_quick else _HIDDEN:
            yield Case(
                "rmsnorm",
                dtype,
                width,
                Kernel("rmsnorm", "norm.cuh", f"RmsNorm<{cpp}>::run", common.OPS),
                _sglang_rmsnorm(width, cpp) if dtype.itemsize == 2 else None,
                functools.partial(make, width=width, dtype=dtype),
                2 * dtype.itemsize,
                lambda x, weight, out, eps: (x, weight, eps, 0.0, out),
            )


def _sglang_rmsnorm(width: int, cpp: str) -> Kernel:
    """The kernel that SGLang's wrapper selects."""
    name = "RMSNormKernel"
    if width <= 256:
        name = "RMSNormWarpKernel"
    elif width == 512 or (width >= 2048 and width % 512 == 0):
        name = "RMSNormHalfKernel"
    return Kernel("rmsnorm", "elementwise/rmsnorm.cuh", f"{name}<{width}, {_sglang_pdl()}, {cpp}>::run")


def _row_reduce(is_quick: bool, *, op: str) -> Iterator[Case]:
    def make(rows: int, width: int, dtype: torch.dtype) -> Arguments:
        return torch.randn(rows, width, device="cuda").to(dtype), torch.empty(rows, dtype=dtype, device="cuda")

    for dtype in (torch.bfloat16, torch.float32):
        kernel = Kernel(f"row_{op.lower()}", "row_reduce.cuh", f"RowReduce<ReductionOp::{op}, {_CPP[dtype]}>::run")
        for width in [128, 4096, 16384] if is_quick else _HIDDEN:
            make_case = functools.partial(make, width=width, dtype=dtype)
            yield Case(kernel.name, dtype, width, kernel, None, make_case, dtype.itemsize * (1 + 1 / width))


def _quant(is_quick: bool, *, static: bool) -> Iterator[Case]:
    def make(rows: int, dtype: torch.dtype) -> Arguments:
        x = torch.randn(rows * 4096, device="cuda").to(dtype)
        scale = torch.full((1,), 0.01 if static else 0.0, device="cuda")
        return x, torch.empty_like(x, dtype=torch.float8_e4m3fn), scale

    for dtype, cpp in _CPP.items():
        if is_quick and dtype != torch.bfloat16:
            continue
        symbol = f"per_tensor_quant_fp8<{str(static).lower()}, {cpp}>"
        ours = f"quantise_tensor<{cpp}>" if static else f"find_and_quantise_tensor<{cpp}>"
        yield Case(
            "quant_static" if static else "quant_dynamic",
            dtype,
            4096,
            Kernel("quantise_tensor", "quant.cuh", ours, common.OPS),
            Kernel("per_tensor_quant_fp8", "gemm/per_tensor_quant_fp8.cuh", symbol),
            functools.partial(make, dtype=dtype),
            dtype.itemsize * (1 if static else 2) + 1,
            _static_arguments if static else _dynamic_arguments,
        )


def _static_arguments(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> Arguments:
    return x, scale, out


def _dynamic_arguments(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> Arguments:
    """With the memory that kjit's wrapper brings along."""
    largest = scale.new_empty(quant.MOST_BLOCKS) if x.numel() > quant.ONE_ROW else None
    return x, largest, scale, out


def _qk_norm(is_quick: bool) -> Iterator[Case]:
    def make(rows: int, width: int) -> Arguments:
        heads = torch.randn(rows, (_Q_HEADS + _K_HEADS), width, device="cuda").bfloat16()
        q, k = heads[:, :_Q_HEADS], heads[:, _Q_HEADS:]  # as from one projection
        return q, k, *(torch.randn(width, device="cuda").bfloat16() for _ in range(2)), _EPS

    for width in [128] if is_quick else [64, 128, 256]:
        yield Case(
            "qk_norm",
            torch.bfloat16,
            (_Q_HEADS + _K_HEADS) * width,
            Kernel("qknorm", "rope.cuh", f"QkHeads<bf16_t, {width}>::qknorm", common.OPS),
            Kernel("qk_norm", "elementwise/qknorm.cuh", f"QKNormKernel<{width}, {_sglang_pdl()}, bf16_t, true>::run"),
            functools.partial(make, width=width),
            4,
        )


def _sglang_pdl() -> str:
    return "true" if torch.cuda.get_device_capability() >= (9, 0) else "false"


_OPS: dict[str, Callable[[bool], Iterator[Case]]] = {
    "add_constant": _add_constant,
    "copy": _copy,
    "rmsnorm": _rmsnorm,
    "row_max": functools.partial(_row_reduce, op="MAX"),
    "row_sum": functools.partial(_row_reduce, op="SUM"),
    "quant_static": functools.partial(_quant, static=True),
    "quant_dynamic": functools.partial(_quant, static=False),
    "qk_norm": _qk_norm,
}


if __name__ == "__main__":
    main()
