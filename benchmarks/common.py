"""Common parts of the scripts of this folder: the ops that they build, SGLang's ops, alternation, and output.

Each script measures kjit and a peer in one run, in turn, and prints medians and their ratio. None fails because of a
figure: on a busy machine the times differ, and the ratios mostly do not.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.spec import CudaArch, Spec

# Programs import bytecode from its cache, and so should the processes of a benchmark.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

KERNELS = Path(__file__).resolve().parent / "kernels"
OPS = Path(__file__).resolve().parents[1] / "kjit" / "csrc"

CLOCK = "BENCHMARK_CLOCK"
"""The variable by which a script selects the clock of its child processes."""

SGLANG_VERSION = "0.5.23"
_SGLANG_PARTS = ("sglang/kernels/jit/", "sglang/srt/environ.py")

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
    """The spec of `benchmarks/kernels/add_constant.*`, for both targets."""
    wrapper = ("add_constant", f"add_constant<{constant}>")
    return Spec(
        "add_constant",
        str(constant),
        cpp_files=[KERNELS / "add_constant.cpp"],
        cuda_files=[KERNELS / "add_constant.cuh"],
        cpp_wrappers=[wrapper],
        cuda_wrappers=[wrapper],
    )


@dataclass(frozen=True)
class Kernel:
    """One CUDA function to build: exported as `name`.

    Attributes:
        source: the file that it is in; of kjit's in `folder`, of SGLang's in its `kernels/jit/csrc`.
        symbol: it, with its template arguments.
    """

    name: str
    source: str
    symbol: str
    folder: Path = KERNELS

    @property
    def spec(self) -> Spec:
        """The spec of one of kjit's own kernels."""
        return Spec(
            self.name, self.symbol, cuda_files=[self.folder / self.source], cuda_wrappers=[(self.name, self.symbol)]
        )

    def sglang_unit(self, root: Path) -> str:
        """The text of the unit in which SGLang's JIT compiles it."""
        headers = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
        unit = "".join(f"#include <tvm/ffi/{header}>\n" for header in headers)
        unit += f'#include "{_sglang_jit(root) / "csrc" / self.source}"\n'
        export = f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({self.name}, ({self.symbol}));"
        return f"{unit}namespace sglang {{\n{export}\n}}\n"


def nvcc_flags(arch: str) -> list[str]:
    """The flags that both SGLang's JIT and kjit pass to nvcc."""
    from kjit.engine.toolchain.compilers import find_cxx

    digits = CudaArch.parse(arch).digits
    target = f"-gencode=arch=compute_{digits},code=sm_{digits}"
    host = ["-Xcompiler", "-fPIC", "-ccbin", str(find_cxx().path)]
    return ["-std=c++20", "-O3", "--expt-relaxed-constexpr", target, *host]


def sglang_flags(root: Path, arch: str) -> list[str]:
    """All flags for a unit of SGLang's."""
    from kjit.engine.toolchain.locations import tvm_ffi_include

    own = [f"-DSGL_CUDA_ARCH={CudaArch.parse(arch).number}", f"-I{_sglang_jit(root) / 'include'}"]
    return [*nvcc_flags(arch), *own, f"-I{tvm_ffi_include()}"]


def build_sglang(kernel: Kernel, root: Path, arch: str, folder: Path) -> Path:
    """Compile and link one of SGLang's kernels; the library."""
    from kjit.engine.toolchain.compilers import find_cxx
    from kjit.engine.toolchain.cuda import find_cuda
    from kjit.engine.toolchain.locations import tvm_ffi_library

    cuda = find_cuda()
    unit, library = folder / "cuda.cu", folder / f"{kernel.name}.so"
    unit.write_text(kernel.sglang_unit(root))
    run([cuda.nvcc.path, *sglang_flags(root, arch), "-c", unit, "-o", folder / "cuda.o"])
    run([find_cxx().path, "-shared", folder / "cuda.o", tvm_ffi_library(), cuda.cudart, "-o", library])
    return library


def run(command: Sequence[str | Path]) -> None:
    """Run a compiler; exit with its output if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def clock() -> float:
    """Seconds, by the clock that `CLOCK` in the environment names: the wall's, or this thread's CPU time (others of
    the process, like those of a BLAS library, may wait by spinning)."""
    return time.thread_time() if os.environ.get(CLOCK) == "cpu" else time.perf_counter()


def time_calls(function: Callable[..., object], sets: Sequence[Sequence[Any]], device: str = "cuda") -> float:
    """Microseconds of a call; `sets` are the arguments of enough calls for a cold cache of the GPU."""
    from kjit.benchmark import run_benchmark

    return run_benchmark([functools.partial(function, *arguments) for arguments in sets], device=device).median


def tensor_sets(
    make: Callable[[], tuple[Any, ...]], nbytes: int, device: str = "cuda", *, warm: bool = False
) -> list[tuple[Any, ...]]:
    """The results of `make` for calls of `nbytes` bytes: enough of them for cold caches, or one if `warm`."""
    from kjit.benchmark import rotated

    return [make()] if warm else rotated(make, nbytes=nbytes, device=device)


@functools.cache
def time_copy(nbytes: int, device: str = "cuda", *, warm: bool = False) -> float:
    """Microseconds of a `copy_` that reads and writes this many bytes in all, the same ones each time if `warm`; on a
    GPU in a graph or outside, the faster one."""
    import torch

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.ones(nbytes // 2, dtype=torch.uint8, device=device)
        return torch.empty_like(x), x

    pairs = tensor_sets(make, nbytes, device, warm=warm)
    timed = time_calls(torch.Tensor.copy_, pairs, device)
    if device == "cpu":
        return timed
    cuda: Any = torch.cuda  # which is not typed throughout
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(31):
        start.record()
        for out, x in pairs * 5:
            out.copy_(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (5 * len(pairs)))
    del pairs
    torch.cuda.empty_cache()
    return min(timed, statistics.median(times))


SCAFFOLDED = {
    "scale": ("elementwise", "x: T[N], alpha: float -> out: T[N]"),
    "rms_norm": ("rowwise", "x: T[B, D], weight: T[D], eps: float = 1e-6 -> out: T[B, D]"),
    "norm_both_": ("rowwise", "x: mut T[B, D], residual: mut T[B, D], weight: T[D], eps: float = 1e-6"),
    "take_rows": ("gather", "src: T[M, D], index: int64[N] -> out: T[N, D]"),
}
"""The ops that are measured as `kjit new` writes them: the pattern and the signature of each."""

OF_PATTERN = {"elementwise": "scale", "rowwise": "rms_norm", "gather": "take_rows"}
"""Of each pattern the op that is measured against PyTorch's."""


def write_scaffold(root: Path, package: str, op: str, *options: str) -> None:
    """Write an op of `SCAFFOLDED` into a project in the folder `root`, with options of `kjit new`."""
    pattern, signature = SCAFFOLDED[op]
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{package}"\n')
    command = [sys.executable, "-m", "kjit", "new", op, signature, "--pattern", pattern, *options]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def scaffold(root: Path, package: str, op: str, *options: str) -> Callable[..., object]:
    """Write an op of `SCAFFOLDED` into a project in the folder `root`, with options of `kjit new`.

    Returns:
        The op as a function of its tensors, an output last.
    """
    from kjit.project import find_project

    write_scaffold(root, package, op, *options)
    function: Callable[..., object] = getattr(find_project(root).import_wrapper(op), op)
    # Like PyTorch's side: one Python function around the call.
    calls: dict[str, Callable[..., object]] = {
        "scale": lambda x, out: function(x, 2.0, out=out),
        "rms_norm": lambda x, weight, out: function(x, weight, 1e-6, out=out),
        "norm_both_": lambda x, residual, weight: function(x, residual, weight, 1e-6),
        "take_rows": lambda src, index, out: function(src, index, out=out),
    }
    return calls[op]


def torch_side(op: str) -> Callable[..., object]:
    """PyTorch's op of the same tensors, for those of `OF_PATTERN`."""
    import torch

    def rms_norm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        del out  # which it does not take
        return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)

    calls: dict[str, Callable[..., object]] = {
        "scale": lambda x, out: torch.mul(x, 2.0, out=out),
        "rms_norm": rms_norm,
        "take_rows": lambda src, index, out: torch.index_select(src, 0, index, out=out),
    }
    return calls[op]


def find_sglang(given: Path | None) -> Path:
    """The folder with SGLang's package: `given`, or a download from PyPI, outside of this repository.

    Only the part with its JIT is unpacked. It stays in the user's cache folder.
    """
    return given.resolve() if given is not None else fetch("sglang", SGLANG_VERSION, _SGLANG_PARTS)


def fetch(package: str, version: str, parts: Sequence[str]) -> Path:
    """The folder with those parts of a package's wheel: fetched from PyPI, into the user's cache folder."""
    root = Path.home() / ".cache" / "kjit-benchmarks" / f"{package}-{version}"
    if all((root / part).exists() for part in parts):
        return root
    root.mkdir(parents=True, exist_ok=True)
    print(f"\nfetching {package} {version} from PyPI into {root}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(root), f"{package}=={version}"], check=True)
    (wheel,) = root.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root, [name for name in archive.namelist() if name.startswith(tuple(parts))])
    wheel.unlink()
    return root


def sglang_root() -> Path:
    """The folder from `find_sglang`, in a process that was started for a measurement."""
    return Path(os.environ["SGLANG_ROOT"])


def _sglang_jit(root: Path) -> Path:
    return root / "sglang" / "kernels" / "jit"


def alternate(sides: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, float]:
    """The median of `repeat` results of each side, taken in turn, so that a drift of the machine hits all alike."""
    results: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, measure in sides.items():
            results[name].append(measure())
    return {name: statistics.median(values) for name, values in results.items()}


def in_new_process(script: str, function: str, *args: object, **environment: str) -> float:
    """Call `function(*args)` of a script of this folder in a new Python, and return the number that it returns."""
    return float(result_of_new_process(script, function, *args, **environment))


def result_of_new_process(script: str, function: str, *args: object, **environment: str) -> Any:
    """As `in_new_process`, for whatever JSON can hold."""
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
    return json.loads(done.stdout.rpartition("result ")[2])


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
    from kjit.engine.toolchain.cuda import find_cuda
    from kjit.errors import KjitError

    try:
        find_cuda()
    except KjitError as error:
        return error.message
    return None


def require_gpu(script: str) -> None:
    """Exit with status 2 if there is no GPU, or no CUDA source can be compiled."""
    missing = nvcc_missing() if has_gpu() else "this machine has no NVIDIA GPU"
    if missing is not None:
        print(f"{script} needs a GPU and a CUDA compiler: {missing}", file=sys.stderr)
        sys.exit(2)


def summary(values: Sequence[float]) -> str:
    """Median and range, for a value that is printed alone."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
