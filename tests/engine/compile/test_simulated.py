"""Target `sim`: from CUDA sources to a module that runs on the CPU, with the C++ compiler and CUDA's headers alone."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest
import torch
import tvm_ffi

from kjit.engine.cache.store import Store
from kjit.engine.compile import support
from kjit.engine.compile.compile import compile_variant
from kjit.engine.key.key import Key
from kjit.engine.miss import ensure_built
from kjit.engine.toolchain import cuda as cuda_module
from kjit.engine.toolchain.build_flags import sim_flags, simulator_flags
from kjit.engine.toolchain.cuda import NoCudaError, find_cuda_headers
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

SIM = Target.sim()
HEADERS = ("cuda_runtime.h", *cuda_module.SIMULATED_HEADERS)

OWN_HEADER = """#pragma once
template <typename T>
__global__ void fill(T* x, T value) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
"""
OP = """#include "own.cuh"
#include <kjit/tensor.h>

#define LAUNCH(kernel, n) kernel<<<n / 4, 4>>>

namespace {
template <typename T>
using pair_t = T[2];

/// What g++ takes for a change of the name's meaning.
template <typename T>
struct Pair {
  using pair_t = pair_t<T>;
  static_assert(sizeof(pair_t) == 2 * sizeof(T));
};
template struct Pair<float>;

extern __shared__ float outside[];

__global__ void reverse(float* x, int n) {
  extern __shared__ __align__(16) float tile[];
  __shared__ alignas(16) int last;
  if (threadIdx.x == 0) last = n - 1;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[last - threadIdx.x];
}

template <int kStep>
__global__ void shift(float* x) {
  outside[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = outside[(threadIdx.x + kStep) % blockDim.x];
}

void run(kjit::TensorView x) {
  float* data = static_cast<float*>(x.data_ptr());
  const int n = static_cast<int>(x.numel());
  reverse<<<1, n, n * sizeof(float)>>>(data, n);
  shift<(3 > 2) ? 1 : 2><<<dim3(1), dim3(n), n * sizeof(float), nullptr>>>(data);
  LAUNCH(fill<float>, n / 2)(data + n / 2, 7.0f);
  fill<<<1, 1>>>(data, 5.0f);
}
}  // namespace
"""


@pytest.fixture
def op(tmp_path: Path) -> Spec:
    """Launches of three kernels, one of which is in a header, with shared memory in each of its forms."""
    csrc = tmp_path / "project" / "csrc"
    csrc.mkdir(parents=True)
    (csrc.parent / "pyproject.toml").touch()
    (csrc / "own.cuh").write_text(OWN_HEADER)
    (csrc / "op.cuh").write_text(OP)
    for path in (csrc / "own.cuh", csrc / "op.cuh", csrc):
        os.utime(path, (time.time() - 60, time.time() - 60))
    return Spec("op", cuda_files=[csrc / "op.cuh"], cuda_wrappers=[("run", "run")])


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any CUDA."""
    for name in ("CUDA_HOME", "KJIT_CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_module, "header_homes", list)
    monkeypatch.setattr(cuda_module, "wheel_homes", list)
    monkeypatch.setattr(cuda_module, "DEFAULT_HOME", tmp_path / "no-cuda")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)


def edit(spec: Spec, old: str, new: str, name: str = "op.cuh") -> None:
    path = Path(spec.cuda_files[0]).with_name(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_launches_and_shared_memory_of_every_form_run_and_a_changed_header_is_noticed(
    op: Spec, cache_dir: Path
) -> None:
    x = torch.arange(8.0)
    variant = Variant(op, SIM)
    load_variant(variant).run(x)
    assert x.tolist() == [5, 5, 4, 3, 7, 7, 7, 7]
    (entry,) = Store.open(cache_dir).entries()
    assert (entry.target, ensure_built(variant).folder) == ("sim", Path(entry.path))
    edit(op, "= value", "= value + 1", "own.cuh")
    found = Store.open(cache_dir).find(Key.of(variant, Toolchain.for_target(SIM)))
    assert found.reason == "csrc/own.cuh changed"


def test_what_a_build_read_is_reported_and_puts_is_not_called(op: Spec, tmp_path: Path) -> None:
    """Text is printed by the simulator."""
    edit(op, "  __syncthreads();\n  x[threadIdx.x] = tile", '  printf("text\\n");\n  x[threadIdx.x] = tile')
    staging = tmp_path / "staging"
    staging.mkdir()
    built = compile_variant(Variant(op, SIM), Toolchain.for_target(SIM), staging)
    assert b"\0puts\0" not in built.library.read_bytes()
    names = {*built.headers, *built.others}
    kjit = kjit_include().parent
    assert {f"{kjit_include()}/kjit_sim/sim.h", str(Path(op.cuda_files[0]).with_name("own.cuh"))} <= names
    assert set(map(str, (kjit / "engine" / "compile" / "rewrite").glob("*.py"))) <= names
    assert any(name.startswith(f"{kjit}/csrc/sim/") for name in names)


def test_flags_for_nvcc_that_a_cxx_compiler_knows_are_kept() -> None:
    flags = ["-DA=1", "-I", "/x", "--use_fast_math", "-Xptxas", "-O3,-v", "-Xcompiler", "-Wall,-Wextra", "-lineinfo"]
    flags += ["--define-macro=B", "-gencode=arch=compute_80,code=sm_80", "--compiler-options=-DC"]
    spec = Spec("op", cuda_files=["/x.cuh"], extra_cuda_cflags=flags)
    taken = sim_flags(Toolchain.for_target(SIM), spec)
    start = taken.index("-DA=1")
    assert taken[start : start + 8] == ["-DA=1", "-I", "/x", "-Wall", "-Wextra", "-D", "B", "-DC"]
    assert not {"--use_fast_math", "-Xptxas", "-lineinfo"} & set(taken)


@pytest.mark.usefixtures("cache_dir")
def test_what_is_kept_from_the_simulator_is_no_error(op: Spec) -> None:
    edit(op, "= value;", "= value;\n#if !KJIT_SIM\n" + '  asm("bar.arrive 0, 64;");\n#endif', "own.cuh")
    x = torch.zeros(8)
    load_variant(Variant(op, SIM)).run(x)
    assert x.tolist() == [5, 0, 0, 0, 7, 7, 7, 7]


class _OnGpu:
    """A tensor that says it is on `cuda:3`."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(8)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 3

    def __dlpack__(self, **_: object) -> object:
        capsule = self.tensor.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # After the pointer to the data, the device of a DLManagedTensor.
        (ctypes.c_int32 * 2).from_address(address(capsule, b"dltensor") + 8)[:] = (2, 3)
        return capsule


@pytest.mark.usefixtures("cache_dir")
def test_a_tensor_on_a_gpu_is_refused_before_its_memory_is_touched(op: Spec) -> None:
    module = load_variant(Variant(op, SIM))
    with pytest.raises(ValueError, match=r"run\(\): argument 1 is on cuda:3, and this module runs in the simulator"):
        module.run(tvm_ffi.from_dlpack(_OnGpu()))


@pytest.mark.nightly
@pytest.mark.usefixtures("cache_dir")
def test_headers_of_torchs_wheels_are_enough(op: Spec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They lack those of crt and CCCL."""
    include = tmp_path / "cuda" / "include"
    include.mkdir(parents=True)
    for path in find_cuda_headers().include_dirs[0].iterdir():
        if path.name not in ("crt", "nv", "cccl", "cuda", "cub", "thrust"):
            (include / path.name).symlink_to(path)
    monkeypatch.setenv("KJIT_CUDA_HOME", str(include.parent))
    # The simulator itself is compiled with these headers, here without optimisation.
    monkeypatch.setattr(support, "simulator_flags", lambda toolchain: [*simulator_flags(toolchain), "-O0"])
    source = Path(op.cuda_files[0])
    source.write_text(f"#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n{source.read_text()}")
    x = torch.zeros(8)
    load_variant(Variant(op, SIM)).run(x)
    assert x.sum() == 33


def write_headers(include: Path, *names: str) -> None:
    for name in names:
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text("#define CUDART_VERSION  12080\n")


class TestHeaders:
    @pytest.mark.usefixtures("no_cuda")
    def test_without_any_it_is_said_what_to_install(self) -> None:
        with pytest.raises(NoCudaError, match="The simulator needs CUDA's headers") as raised:
            find_cuda_headers()
        assert "kjit[sim]" in str(raised.value.hint)

    @pytest.mark.usefixtures("no_cuda")
    def test_a_named_folder_needs_no_compiler(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        write_headers(tmp_path / "include", *HEADERS)
        monkeypatch.setenv("KJIT_CUDA_HOME", str(tmp_path))
        found = find_cuda_headers()
        assert (found.include_dirs, found.origin, found.version) == (
            (tmp_path / "include",),
            "KJIT_CUDA_HOME",
            (12, 8),
        )

    @pytest.mark.usefixtures("no_cuda")
    def test_a_named_folder_without_them_is_not_passed_over(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        with pytest.raises(ToolchainError, match="does not have CUDA's headers"):
            find_cuda_headers()

    @pytest.mark.usefixtures("no_cuda")
    def test_headers_of_torchs_wheels_are_completed_unless_there_are_complete_ones(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        write_headers(tmp_path / "cu13" / "include", *HEADERS[:-1])
        monkeypatch.setattr(cuda_module, "header_homes", lambda: [tmp_path / "cu13"])
        found = find_cuda_headers()
        assert found.include_dirs == (tmp_path / "cu13" / "include", cuda_module.STAND_INS)
        assert found.origin == "PyPI wheels"
        write_headers(tmp_path / "toolkit" / "include" / "cccl", "nv/target")
        write_headers(tmp_path / "toolkit" / "include", *HEADERS[:-1])
        monkeypatch.setattr(cuda_module, "DEFAULT_HOME", tmp_path / "toolkit")
        assert find_cuda_headers().origin == "/usr/local/cuda"
