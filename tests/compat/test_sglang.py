"""kjit.compat.sglang: sources of SGLang's form compile as they are, and wrappers change one import."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kjit
from kjit.compat import sglang as compat
from kjit.engine import miss
from kjit.spec import Spec, Target, Variant

HEADERS = sorted(path.relative_to(compat.INCLUDE).as_posix() for path in compat.INCLUDE.rglob("*.*h"))
SOURCE = (
    "".join(f"#include <{header}>\n" for header in HEADERS)
    + """
namespace sglang {

// Names of SGLang's and of the source's own, in one namespace.
template <int kTimes>
SGL_DEVICE float scaled(float x) { return x * kTimes; }

// Parts of a source's own, called `details` as in SGLang's `host`.
namespace device::details {
template <typename T>
SGL_DEVICE T same(T x) { return x; }
}  // namespace device::details

template <typename T, int kTimes>
__global__ void scale(T* out, const T* in, uint32_t n) {
  using namespace device;
  n = details::same(n);
  device::PDLWaitPrimary<false>();
  const auto memory = device::tile::Memory<T>::cta();
  if (memory.in_bound(n)) memory.store(out, device::cast<T>(scaled<kTimes>(device::cast<fp32_t>(memory.load(in)))));
}

template <typename T, int kTimes>
struct Scale {
  static void run(tvm::ffi::TensorView out, tvm::ffi::TensorView in) {
    using namespace host;
    auto N = SymbolicSize{"N"};
    auto device = SymbolicDevice{};
    TensorMatcher({N}).with_device<kDLCUDA>(device).with_dtype<T>().verify(out).verify(in);
    CHECK_HOST(N.unwrap() <= 64) << "too long";
    LaunchKernel(1, 64, device.unwrap())(scale<T, kTimes>, static_cast<T*>(out.data_ptr()),
                                         static_cast<const T*>(in.data_ptr()), static_cast<uint32_t>(N.unwrap()));
  }
};

static int64_t arch() { return ::sglang::host::div_ceil(SGL_CUDA_ARCH + 0 * SGL_ARCH_HOPPER_OR_GREATER, 1); }

}  // namespace sglang
"""
)
WRAPPER = """
from kjit.compat.sglang import cache_once, load_jit, make_cpp_args

@cache_once
def module(dtype, times):
    args = make_cpp_args(dtype, times)
    return load_jit(
        "scale/x", *args, 7,
        cuda_files=["elementwise/scale.cuh"],
        cuda_wrappers=[("scale", f"sglang::Scale<{args}>::run"), ("arch", "arch")],
    )
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "csrc" / "elementwise").mkdir(parents=True)
    (folder / "csrc" / "elementwise" / "scale.cuh").write_text(SOURCE)
    (folder / "ops").mkdir()
    (folder / "ops" / "scale.py").write_text(WRAPPER)
    return folder


@pytest.fixture(scope="module")
def wrapper(project: Path) -> ModuleType:
    module = ModuleType("scale_of_sglang")
    module.__file__ = str(project / "ops" / "scale.py")
    exec(compile(WRAPPER, module.__file__, "exec"), module.__dict__)
    return module


class TestASourceAsItIs:
    def test_runs_in_the_simulator(self, wrapper: ModuleType) -> None:
        x = torch.arange(40.0)
        out = torch.empty_like(x)
        with kjit.testing.simulated():
            module = wrapper.module(torch.float32, 3)
            module.scale(out, x)
            assert module.arch() == 900
        assert torch.equal(out, 3 * x)

    def test_its_checks_name_what_is_wrong(self, wrapper: ModuleType) -> None:
        with kjit.testing.simulated():
            module = wrapper.module(torch.float32, 3)
        with pytest.raises(RuntimeError, match="too long"):
            module.scale(torch.empty(65), torch.empty(65))

    @pytest.mark.nvcc
    @pytest.mark.nightly
    def test_compiles_with_nvcc(self, project: Path) -> None:
        spec = compat.spec_of(
            ["scale", "bf16_t"],
            caller=str(project / "ops" / "scale.py"),
            cuda_files=["elementwise/scale.cuh"],
            cuda_wrappers=[("scale", "Scale<bf16_t, 2>::run")],
        )
        built = miss.ensure_built(Variant(spec, Target.cuda("9.0a")))
        assert Path(built.library_path).is_file()


class TestRequests:
    def spec(self, *args: object, **parts: Any) -> Spec:
        return compat.spec_of(args, caller=None, **parts)

    def test_a_dependency_that_is_not_known_is_named_with_those_that_are(self) -> None:
        with pytest.raises(kjit.UsageError, match=r"'cutlas' is not a dependency.*cutlass.*flashinfer"):
            self.spec("op", cuda_files=["/x.cuh"], extra_dependencies=["cutlas"])

    def test_a_dependency_brings_its_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MATHDX_HOME", str(tmp_path))
        (tmp_path / "include").mkdir()
        spec = self.spec("op", cuda_files=["/x.cuh"], extra_dependencies=["mathdx"])
        assert spec.extra_include_paths[-1] == str(tmp_path / "include")


class TestArchitecture:
    def test_the_override_holds_inside_and_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0")
        monkeypatch.delenv("KJIT_SIM", raising=False)
        monkeypatch.setattr("kjit.runtime.load.device_capability", lambda _: None)
        compat._arch_of_gpu.cache_clear()
        assert not compat.is_arch_support_pdl()
        with compat.override_jit_cuda_arch(10, 0):
            arch = compat.get_jit_cuda_arch()
            assert (arch.major, arch.minor, arch.suffix, arch.target_name) == (10, 0, "a", "10.0a")
            assert arch.jit_flag == "-DSGL_CUDA_ARCH=1000"
            assert compat.is_arch_support_pdl()
            assert compat._target(Spec("op", cuda_files=["/x.cuh"])) == Target.cuda("10.0a")
        assert compat.get_jit_cuda_arch().target_name == "8.0"


class TestTensors:
    @pytest.mark.parametrize(("size", "stride"), [(7, 8), (8, 8), (9, 16)])
    def test_rows_are_aligned(self, size: int, stride: int) -> None:
        x = compat.aligned_new_empty((3, size), torch.float16, "cpu", alignment_bytes=16)
        assert (x.shape, x.stride()) == ((3, size), (stride, 1))

    @pytest.mark.parametrize("alignment", [0, 3, 1024])
    def test_other_alignments_are_refused(self, alignment: int) -> None:
        with pytest.raises(kjit.UsageError, match="multiple of 2"):
            compat.aligned_new_empty((3, 4), torch.float16, "cpu", alignment_bytes=alignment)


class TestParallelCompile:
    def test_all_run_before_the_first_error_is_raised(self) -> None:
        ran: list[int] = []

        def fail() -> None:
            raise ValueError("first")

        with pytest.raises(ValueError, match="first"):
            compat.parallel_compile([fail, lambda: ran.append(1), lambda: ran.append(2)])
        assert sorted(ran) == [1, 2]


def test_kernel_path_needs_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_kernel_path", lambda: None)
    with pytest.raises(kjit.UsageError, match="SGLang is not installed"):
        _ = compat.KERNEL_PATH
