"""What the scripts of this folder share: the op that they build, how they alternate, and how they print.

Each script measures kjit and a peer in one run, in turn, and prints medians and their ratio. None judges: a machine
that is busy with something else gives other times, and mostly the same ratios.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kjit.spec import Spec

CSRC = Path(__file__).resolve().parent / "csrc"

# The same op in tvm-ffi's own C++ interface, for `tvm_ffi.cpp.load_inline`, with the same checks.
TVM_FFI_CPU = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

void add_constant(tvm::ffi::TensorView dst, tvm::ffi::TensorView src) {
  for (const auto& x : {dst, src}) {
    TVM_FFI_ICHECK_EQ(x.ndim(), 1);
    TVM_FFI_ICHECK(x.dtype().code == kDLInt && x.dtype().bits == 32 && x.dtype().lanes == 1);
    TVM_FFI_ICHECK_EQ(x.device().device_type, kDLCPU);
    TVM_FFI_ICHECK(x.IsContiguous());
  }
  TVM_FFI_ICHECK_EQ(dst.size(0), src.size(0));
  auto* to = static_cast<int32_t*>(dst.data_ptr());
  const auto* from = static_cast<const int32_t*>(src.data_ptr());
  for (int64_t i = 0; i < dst.size(0); ++i) to[i] = from[i] + CONSTANT;
}
"""

TVM_FFI_CUDA = """
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

__global__ void add_constant_kernel(int32_t* dst, const int32_t* src, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) dst[i] = src[i] + CONSTANT;
}

void add_constant(tvm::ffi::TensorView dst, tvm::ffi::TensorView src) {
  TVM_FFI_ICHECK_EQ(dst.size(0), src.size(0));
  const int64_t n = dst.size(0);
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(dst.device().device_type, dst.device().device_id));
  add_constant_kernel<<<(n + 255) / 256, 256, 0, stream>>>(
      static_cast<int32_t*>(dst.data_ptr()), static_cast<const int32_t*>(src.data_ptr()), n);
}
"""


def add_constant(constant: int) -> Spec:
    """The spec of `benchmarks/csrc/add_constant.*`, for both targets."""
    wrapper = ("add_constant", f"add_constant<{constant}>")
    return Spec(
        "add_constant",
        str(constant),
        cpp_files=[CSRC / "add_constant.cpp"],
        cuda_files=[CSRC / "add_constant.cuh"],
        cpp_wrappers=[wrapper],
        cuda_wrappers=[wrapper],
    )


def alternate(sides: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, float]:
    """The median of `repeat` results of each side, taken in turn, so that a drift of the machine hits all alike."""
    results: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, measure in sides.items():
            results[name].append(measure())
    return {name: statistics.median(values) for name, values in results.items()}


def in_new_process(script: str, function: str, *args: object, **environment: str) -> float:
    """Call `function(*args)` of a script of this folder in a new Python, and return the number that it returns."""
    import os

    code = f"import json, {script}; print('result', json.dumps({script}.{function}(*{args!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{script}.{function} failed:\n{done.stdout}{done.stderr}")
    return float(json.loads(done.stdout.rpartition("result ")[2]))


def print_machine(*, gpu: bool = False) -> None:
    """One line: what this runs on."""
    from kjit.bench.hardware import find_hardware

    print(f"machine: {find_hardware('cpu').name}, Python {platform.python_version()}, {platform.platform()}")
    if gpu:
        print(f"         {find_hardware('cuda').name}")


def print_sides(title: str, medians: Mapping[str, float], unit: str, baseline: str) -> None:
    """A table of the sides, each with its ratio to `baseline`."""
    print(f"\n{title}")
    width = max(map(len, medians))
    for name, value in medians.items():
        ratio = "" if name == baseline else f"   {value / medians[baseline]:.3f} of {baseline}"
        print(f"  {name:<{width}}  {value:10.3f} {unit}{ratio}")


def has_gpu() -> bool:
    """Whether PyTorch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def nvcc_missing() -> str | None:
    """Why no CUDA source can be compiled here, or None."""
    from kjit.build.toolchain import find_cuda
    from kjit.errors import KjitError

    try:
        find_cuda()
    except KjitError as error:
        return error.message
    return None


def summary(values: Sequence[float]) -> str:
    """Median and range, for a value that is printed alone."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
