"""CUDA units in two halves: their builds, their launches, and those left to nvcc."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kjit.ops
from kjit.engine.compile import two_halves
from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.machine_code import read_library
from kjit.engine.key.key import Key
from kjit.engine.toolchain.build_flags import host_half_flags
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.cuda import NoCudaError, find_cuda
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.nvrtc import PROGRAMS, WRAPPED, OnlyNvccError, find_nvrtc, macros_of_nvcc, nvrtc_options
from kjit.engine.toolchain.toolchain import Toolchain, _discover
from kjit.errors import CompileError, KjitError, ToolchainError, UsageError
from kjit.runtime.declared import declared_in, variants_of
from kjit.spec import Spec, Target, Variant

TARGET = Target.cuda("8.0", "8.6")

OP = """#include <kjit/runtime.cuh>
#include <cuda_fp16.h>
#include <cstdint>
#include <string>

namespace {

struct Params {
  float* x;
  int64_t n;
  float by;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(128) scale(Params params) {
  for (int i = 0; i < kCount; ++i) {
    const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount + i;
    if (at < params.n) params.x[at] *= static_cast<T>(params.by);
  }
}

constexpr int twice(int n) { return 2 * n; }
__device__ auto added(int n) { return twice(n) + 1; }

}  // namespace

static __global__ void add(int* x, int n) { x[threadIdx.x] = added(n); }
template <typename T>
__global__ void fill(T* x, int n) { x[threadIdx.x] = T(n); }

void launch(int64_t n) {
  using namespace kjit::host;
  LaunchKernel(n, 128, cudaStream_t{}, 60000)(scale<float, 2>, Params{nullptr, n, 2.0f});
  add<<<dim3(1, 2), 32>>>(nullptr, 7);
  fill<<<1, 64>>>(static_cast<float*>(nullptr), 9);
}

std::string words() { return "no kernel"; }

// Host code that calls CUDA's functions for halves.
float half_of(double x) { return __half2float(__float2half(static_cast<float>(x))) / 2; }
"""
EXPORTS = [("launch", "launch"), ("half_of", "half_of")]

# A CUDA runtime that prints the module's calls and their arguments.
RUNTIME = """
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstring>
#define SAY(...) (std::printf(__VA_ARGS__), std::puts(""), std::fflush(stdout), cudaSuccess)
static cudaLibrary_t loaded[2];
static int count = 0;
extern "C" {
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? MAJOR : MINOR;
  return cudaSuccess;
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* data, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<cudaLibrary_t>(const_cast<void*>(data));
  loaded[count++] = *library;
  return SAY("load sm_%d", static_cast<const unsigned char*>(data)[48 + 1]);
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  char text[200];
  std::snprintf(text, sizeof text, "%s%s", std::strstr(name, "scale") ? "scale" : name,
                library == loaded[0] ? "" : " of the second unit");
  *kernel = reinterpret_cast<cudaKernel_t>(strdup(text));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* f) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxDynamicSharedSizeBytes = 49152;
  return SAY("attributes of %s", static_cast<const char*>(f));
}
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute, int value) {
  return SAY("%d bytes for %s", value, static_cast<const char*>(f));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void**) {
  return SAY("launch %s %u x %u", static_cast<const char*>(f), config->gridDim.x, config->blockDim.x);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t, cudaStream_t) {
  return SAY("launch %s %u x %u (%d)", static_cast<const char*>(f), grid.x * grid.y, block.x, *(int*)args[1]);
}
static dim3 pushed[2];
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t, CUstream_st*) {
  pushed[0] = grid, pushed[1] = block;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* smem, void* stream) {
  *grid = pushed[0], *block = pushed[1], *smem = 0, *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "?"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) { return cudaSuccess; }
}
"""
CALL = """
import ctypes, sys
sys.modules["torch"] = None  # else tvm_ffi imports it, which takes a second
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[2])
module.launch(3)
module.launch(4)
print(module.half_of(1.0 / 3))
"""


@pytest.fixture(autouse=True)
def by_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
    try:
        Toolchain.for_target(TARGET)
    except ToolchainError as error:
        pytest.skip(f"needs NVRTC: {error.message}")


@pytest.fixture
def with_nvcc() -> None:
    if find_cuda().nvcc.family != "nvcc":
        pytest.skip("needs nvcc")


@pytest.fixture
def auto(with_nvcc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units decide which compiler gets them."""
    del with_nvcc
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "auto")


@pytest.fixture
def as_torch_brings_it(without_nvcc: Path) -> Path:
    """NVRTC, CUDA's runtime and its headers, without those of other packages, which torch's wheels do not ask for."""
    headers = (without_nvcc / "include").resolve()
    (without_nvcc / "include").unlink()
    (without_nvcc / "include").mkdir()
    for path in headers.iterdir():
        if path.name not in ("crt", "nv", "cccl", "cuda", "cub", "thrust"):
            (without_nvcc / "include" / path.name).symlink_to(path)
    return without_nvcc


def build(
    source: str,
    folder: Path,
    flags: Sequence[str] = (),
    target: Target = TARGET,
) -> Built:
    path = folder / "op.cuh"
    path.write_text(source)
    staging = folder / "staging"
    staging.mkdir(exist_ok=True)
    exports = [each for each in EXPORTS if f" {each[1]}(" in source]
    spec = Spec("op", cuda_files=[path], cuda_wrappers=exports, extra_cuda_cflags=flags)
    return compile_variant(Variant(spec, target), Toolchain.for_target(target), staging)


def runtime(folder: Path, minor: int, major: int = 8) -> Path:
    """A stand-in for CUDA's runtime on a GPU of compute capability `major`.`minor`."""
    cuda = find_cuda()
    source, library = folder / "runtime.cpp", folder / f"runtime_{major}{minor}.so"
    source.write_text(RUNTIME)
    name = cuda.cudart.resolve().name.partition(".so.")[2].split(".")[0]
    includes = [word for path in cuda.include_dirs for word in ("-isystem", str(path))]
    flags = ["-shared", "-fPIC", f"-DMAJOR={major}", f"-DMINOR={minor}", f"-Wl,-soname,libcudart.so.{name}", *includes]
    subprocess.run([find_cxx().path, *flags, source, "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvrtc")


@pytest.fixture(scope="module")
def built(folder: Path) -> Built:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
        return build(OP, folder, ["-lineinfo", "--expt-relaxed-constexpr"])


class TestModule:
    def test_what_each_kernel_needs_is_known_for_each_architecture(self, built: Built) -> None:
        assert built.compiler.startswith("NVRTC ") and built.warnings == ""
        assert not any("nvcc" in command.split()[0] for command in built.commands)
        found = {(kernel.kernel, kernel.arch) for kernel in built.resources}
        kernels = ("{anonymous}::scale<float, 2>", "add", "fill<float>")
        assert found == {(kernel, arch) for kernel in kernels for arch in ("sm_80", "sm_86")}
        assert all(0 < kernel.registers < 100 for kernel in built.resources)

    @pytest.mark.usefixtures("with_nvcc")
    def test_the_library_alone_says_what_each_kernel_needs(self, built: Built) -> None:
        found = {(kernel.name, kernel.arch): kernel for kernel in read_library(built.library)}
        assert set(found) == {(kernel.kernel, kernel.arch) for kernel in built.resources}
        for each in built.resources:
            resources = found[each.kernel, each.arch].resources
            assert resources is not None and resources.registers == each.registers

    def test_the_headers_of_both_halves_are_reported(self, built: Built, folder: Path) -> None:
        assert str(folder / "op.cuh") in built.headers
        assert any(path.endswith("/cuda_runtime.h") for path in built.headers)
        assert str(kjit_include() / "kjit" / "launch.h") in built.headers

    @pytest.mark.parametrize(("minor", "arch"), [(0, 80), (6, 86), (9, 86)])
    def test_launches_find_their_kernels_in_the_code_for_the_gpu(
        self, built: Built, folder: Path, minor: int, arch: int
    ) -> None:
        command = [sys.executable, "-c", CALL, str(runtime(folder, minor)), str(built.library)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [
            f"load sm_{arch}",  # once
            "attributes of scale",
            "60000 bytes for scale",
            "launch scale 3 x 128",
            "launch _Z3addPii 2 x 32 (7)",
            "launch _Z4fillIfEvPT_i 1 x 64 (9)",
            "launch scale 4 x 128",
            "launch _Z3addPii 2 x 32 (7)",
            "launch _Z4fillIfEvPT_i 1 x 64 (9)",
            "0.1666259765625",
        ]

    def test_code_for_another_gpu_is_an_error_that_says_so(self, built: Built, folder: Path) -> None:
        command = [sys.executable, "-c", CALL, str(runtime(folder, 0, major=9)), str(built.library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "the kernel's machine code is for another GPU, or made by a newer CUDA than the driver" in done.stderr


# Both halves evaluate the assertions: the host half with GCC's own builtins and the library itself.
FORMS = {
    "checked arithmetic": """
  template <typename R, typename A, typename B>
  constexpr bool added(A a, B b, bool overflows, R expected) {
    R result = 0;
    return __builtin_add_overflow(a, b, &result) == overflows && result == expected;
  }
  template <typename R, typename A, typename B>
  constexpr bool subtracted(A a, B b, bool overflows, R expected) {
    R result = 0;
    return __builtin_sub_overflow(a, b, &result) == overflows && result == expected;
  }
  template <typename R, typename A, typename B>
  constexpr bool multiplied(A a, B b, bool overflows, R expected) {
    R result = 0;
    return __builtin_mul_overflow(a, b, &result) == overflows && result == expected;
  }
  static_assert(added(1, 2, false, 3) && added(INT_MAX, 1, true, INT_MIN) && added(INT_MIN, -1, true, INT_MAX));
  static_assert(added(-1, 1u, false, 0u) && added(-2, 1u, true, UINT_MAX) && added<char>(100, 28, true, -128));
  static_assert(added<long>(INT_MAX, 1, false, 2147483648) && added(LONG_MIN, LONG_MIN, true, 0l));
  static_assert(subtracted(3, 5, false, -2) && subtracted(0u, 1u, true, UINT_MAX) && subtracted(5, -3, false, 8));
  static_assert(subtracted(INT_MIN, 1, true, INT_MAX) && subtracted(-3, -5, false, 2));
  static_assert(multiplied(-4, 5, false, -20) && multiplied(65536, 65536, true, 0) && multiplied(-7, -3, false, 21));
  static_assert(multiplied(ULONG_MAX, ULONG_MAX, true, 1ul) && multiplied(INT_MIN, -1, true, INT_MIN));
  static_assert(multiplied(-1, 0u, false, 0u) && multiplied<int>(-1, 2147483648u, false, INT_MIN));
  __global__ void fill(int* x) { *x = std::lcm(4, 6); }
  void go() { fill<<<1, 1>>>(nullptr); }
""",
    "pipelines": """
  __global__ void fill(float* x, std::uint64_t n) {
    __shared__ float copied[32];
    __pipeline_memcpy_async(&copied[threadIdx.x], x + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    x[n] = copied[threadIdx.x];
  }
  void go() { fill<<<1, 32>>>(nullptr, 1); }
""",
    "functions of integers and of two types": """
  template <typename Expected, typename... Found>
  constexpr bool are = (std::is_same_v<Expected, Found> && ...);
  template <typename T>
  __global__ void fill(T* x, int n, unsigned short u, double d) {
    static_assert(are<double, decltype(std::sqrt(n)), decltype(std::exp(u)), decltype(std::floor(true))>);
    static_assert(are<double, decltype(std::fmax(x[0], 0.0)), decltype(std::fmin(n, x[0]))>);
    static_assert(are<double, decltype(std::pow(n, 2)), decltype(std::pow(2, x[0])), decltype(std::pow(x[0], d))>);
    static_assert(are<double, decltype(std::pow(x[0], n)), decltype(pow(x[0], 2)), decltype(::pow(n, u))>);
    static_assert(are<float, decltype(std::sqrt(x[0])), decltype(std::fmax(x[0], x[1])), decltype(pow(x[0], x[1]))>);
    x[0] = std::sqrt(n) + std::fmax(x[1], 0.0) + std::pow(n, 2) + std::log2(u) + std::atan2(n, d);
  }
  void go() { fill<<<1, 1>>>(static_cast<float*>(nullptr), 1, static_cast<unsigned short>(2), 3.0); }
""",
    "a kernel called pow": """
  struct pow { int exponent; };
  template <typename T>
  __global__ void pow(T* x, struct pow n) { x[0] = ::pow(x[0], n.exponent); }
  void go() { pow<<<1, 1>>>(static_cast<float*>(nullptr), {3}); }
""",
    "large alignment, as descriptors of the tensor memory accelerator have it": """
  struct alignas(64) Map { unsigned long long opaque[16]; };
  struct alignas(128) Wide { char of[128]; };
  __global__ void fill(const __grid_constant__ Map map, int n, Wide wide, char last) {}
  __global__ void copy(int n, const __grid_constant__ Map map) {}
  void go() { fill<<<1, 1>>>({}, 1, {}, 'a'); copy<<<1, 1>>>(1, {}); }
""",
    "default arguments": """
  __global__ void fill(float* x, int n = 1) { *x = n; }
  void go() { fill<<<1, 1>>>(nullptr); }
""",
    "60 headers that include each other, of which NVRTC reads text twice if it is told": """
  static_assert(after1 + before60 == 3);
""",
}


@pytest.mark.usefixtures("without_nvcc")
def test_code_of_many_forms_needs_no_nvcc(tmp_path: Path) -> None:
    for depth in range(1, 61):
        inner = f'#include "{depth + 1}.h"\n' if depth < 60 else ""
        (tmp_path / f"{depth}.h").write_text(
            f"constexpr int before{depth} = 1;\n{inner}constexpr int after{depth} = 2;\n"
        )
    headers = ("<cuda_awbarrier.h>", "<cuda_pipeline.h>", "<climits>", "<cmath>", "<cstdint>", "<numeric>", '"1.h"')
    includes = "".join(f"#include {name}\n" for name in headers)
    forms = "".join(f"namespace form{number} {{\n{text}}}\n" for number, text in enumerate(FORMS.values()))
    built = build(f"{includes}{forms}void launch(int64_t) {{}}\n", tmp_path, target=Target.cuda("12.0"))
    assert built.compiler.startswith("NVRTC ") and built.warnings == ""
    assert {each.kernel.partition("::")[0] for each in built.resources} == {f"form{number}" for number in range(6)}


# Of C++98 to C++26; those for the host that refuse to be included elsewhere (<stdatomic.h>) are not asked for.
STANDARD_HEADERS = """
    algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono cinttypes
    climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef
    cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype debugging deque exception execution expected filesystem
    flat_map flat_set format forward_list fstream functional future generator inplace_vector initializer_list iomanip
    ios iosfwd iostream istream iterator latch limits list locale map mdspan memory memory_resource mutex new numbers
    numeric optional ostream print queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
    source_location span spanstream sstream stack stacktrace stdexcept stdfloat stop_token streambuf string string_view
    syncstream system_error text_encoding thread tuple type_traits typeindex typeinfo unordered_map unordered_set
    utility valarray variant vector version
"""


@pytest.mark.nightly
@pytest.mark.usefixtures("without_nvcc")
def test_every_header_of_the_c_plus_plus_library_compiles(tmp_path: Path) -> None:
    """A header that the compiler of the host lacks is left out, so that each version is asked for what it brings."""
    includes = [f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in STANDARD_HEADERS.split()]
    source = f"""{"".join(includes)}
    __global__ void fill(float* x, int n) {{ x[0] = n; }}
    void launch(int64_t) {{ fill<<<1, 1>>>(static_cast<float*>(nullptr), 1); }}
    #ifdef __cpp_lib_format
    std::string text() {{ return std::format("{{}} {{}} {{}}", 1.0f, 2.0, 3.0L); }}
    #endif
    """
    assert build(source, tmp_path, target=Target.cuda("8.0")).compiler.startswith("NVRTC ")


class TestTwoUnits:
    """A module of two sources that are compiled each by itself."""

    CALL = """
import ctypes, sys
sys.modules["torch"] = None
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[2])
module.first()
module.second()
"""

    def launched(self, folder: Path, first: str, second: str, *kernels: str) -> list[str]:
        spec = Spec("op", cuda_files=[folder / "first.cu", folder / "second.cu"])
        for name, code in (("first", first), ("second", second)):
            launches = " ".join(f"{kernel}<<<1, 32>>>(nullptr, 7);" for kernel in ("fill", *kernels))
            export = f"void {name}() {{ {launches} }}\nKJIT_EXPORT({name}, {name})\n"
            (folder / f"{name}.cu").write_text(f"#include <kjit/ffi.h>\n{code}\n{export}")
        staging = folder / "staging"
        staging.mkdir()
        target = Target.cuda("8.0")
        built = compile_variant(Variant(spec, target), Toolchain.for_target(target), staging)
        assert built.compiler.startswith("NVRTC ")
        command = [sys.executable, "-c", self.CALL, str(runtime(folder, 0)), str(built.library)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if line.startswith("launch ")]

    def test_each_launches_its_own_kernel_of_a_name_and_one_that_the_other_defines(self, tmp_path: Path) -> None:
        units = [
            f"""static __global__ void fill(int* x, int n) {{ x[threadIdx.x] = n + {number}; }}
            namespace {{ __global__ void unnamed(int* x, int n) {{ x[threadIdx.x] = n + {number}; }} }}
            template <int kBy> __global__ void scale(int* x, int n) {{ x[n] *= kBy; }}
            __global__ void shared(int* x, int n)"""
            for number in (1, 2)
        ]
        launches = self.launched(tmp_path, f"{units[0]} {{ *x = n; }}", f"{units[1]};", "unnamed", "scale<2>", "shared")
        first, second = launches[:4], launches[4:]
        assert all(each.endswith(" 1 x 32 (7)") and "second" not in each for each in first)
        assert all(each.endswith(" of the second unit 1 x 32 (7)") for each in second[:3])
        assert second[2] == first[2].replace(" 1 x", " of the second unit 1 x")
        assert second[3] == first[3]

    def test_two_kernels_of_a_name_that_are_not_of_their_units_do_not_link(self, tmp_path: Path) -> None:
        kernel = "__global__ void fill(int* x, int n) {{ x[threadIdx.x] = n + {}; }}"
        with pytest.raises(CompileError, match=r"'fill\(int\*, int\)' is defined twice"):
            self.launched(tmp_path, kernel.format(1), kernel.format(2))


@pytest.mark.usefixtures("cache_dir")
class TestNvcc:
    """Sources that NVRTC cannot compile are compiled by nvcc, if it is installed."""

    SYMBOL = """__constant__ float factors[4];
    __global__ void fill(float* x) { *x = factors[0]; }
    void launch(int64_t) { float one = 1; cudaMemcpyToSymbol(factors, &one, 4); fill<<<1, 1>>>(nullptr); }
    """

    @pytest.mark.usefixtures("auto")
    def test_variables_that_host_code_names_are_nvccs(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", "kjit"):
            built = build(self.SYMBOL, tmp_path, target=Target.cuda("8.0"))
        assert re.search(r"compiled by nvcc \S+, because only nvcc registers", caplog.text)
        assert any(command.split()[0].endswith("nvcc") for command in built.commands)
        assert built.compiler.startswith("nvcc ")
        assert built.why_nvcc == "only nvcc registers the symbols that cudaMemcpyToSymbol takes"
        assert built.others[-len(PROGRAMS) :] == PROGRAMS

    @pytest.mark.usefixtures("auto")
    @pytest.mark.parametrize(
        ("included", "compiler"),
        [
            ("#include <algorithm>\n#include <array>\n#include <cub/block/block_reduce.cuh>\n", "NVRTC "),
            ('#include "own.h"\n', "nvcc "),
        ],
    )
    def test_what_a_unit_includes_decides_which_compiler_gets_it(
        self, included: str, compiler: str, tmp_path: Path
    ) -> None:
        (tmp_path / "own.h").write_text("#include <fstream>\n")
        source = (
            f"{included}__global__ void fill(int* x) {{ *x = 1; }}\nvoid launch(int64_t) {{ fill<<<1, 1>>>(nullptr); }}"
        )
        built = build(source, tmp_path, target=Target.cuda("8.0"))
        assert built.compiler.startswith(compiler)
        reason = (
            "it includes <fstream>, which is neither kjit's nor CUDA's, nor a header known to mean the same by NVRTC"
        )
        assert built.why_nvcc == ("" if compiler == "NVRTC " else reason)

    @pytest.mark.parametrize(
        ("members", "difference"),
        [
            ("#ifdef __CUDA_ARCH__\nfloat extra;\n#endif\nfloat x;", "4 bytes at offset 8 in host code, and 8 bytes"),
            ("#ifndef __CUDA_ARCH__\nalignas(16)\n#endif\nfloat x;", "16 bytes at offset 16 in host code, and 4 bytes"),
        ],
    )
    def test_a_parameter_that_differs_between_the_halves_is_an_error(
        self, members: str, difference: str, tmp_path: Path
    ) -> None:
        """nvcc would launch such a kernel with other values than it was given."""
        source = f"""struct Params {{
        {members}
        }};
        __global__ void fill(double* out, Params params) {{ *out = params.x; }}
        void launch(int64_t) {{ fill<<<1, 1>>>(nullptr, Params{{}}); }}
        """
        with pytest.raises(CompileError) as caught:
            build(source, tmp_path, target=Target.cuda("8.0"))
        assert re.search(rf"kernel \S*fill\S* differ: parameter 1 has {difference}", caught.value.message)

    @pytest.mark.usefixtures("with_nvcc")
    def test_a_mistake_is_shown_and_not_compiled_again(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", "kjit"), pytest.raises(CompileError) as caught:
            build(OP.replace("twice(n) + 1", "thrice(n) + 1"), tmp_path, target=Target.cuda("8.0"))
        assert 'identifier "thrice" is undefined' in caught.value.message
        assert "compiled by nvcc" not in caplog.text

    @pytest.mark.usefixtures("with_nvcc")
    @pytest.mark.parametrize(
        ("program", "words"),
        [
            (
                "",
                "broke off. It says: ModuleNotFoundError: No module named 'kjit.engine.compile.renamed'",
            ),
            ("import os; os.kill(os.getpid(), 9)", "The compiler ended without a message"),
        ],
    )
    def test_a_program_that_breaks_is_an_error_and_no_limit(
        self,
        program: str,
        words: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        steps_of = two_halves.steps_of

        def broken(*words: Any) -> Iterator[Step]:
            for step in steps_of(*words):
                if not step.output.endswith(".cubin"):
                    yield step
                elif program:
                    start = "_ = \"; sys.exit(run('device_compiler', \""
                    yield replace(step, arguments=(sys.executable, "-I", "-S", "-c", f"import sys; {start}; {program}"))
                else:
                    words = [word.replace("run('device_compiler'", "run('renamed'") for word in step.arguments]
                    yield replace(step, arguments=tuple(words))

        monkeypatch.setattr(two_halves, "steps_of", broken)
        with caplog.at_level("INFO", "kjit"), pytest.raises(KjitError) as caught:
            build("void launch(int64_t) {}", tmp_path, target=Target.cuda("8.0"))
        assert words in caught.value.message
        assert "compiled by nvcc" not in caplog.text

    @pytest.mark.usefixtures("auto")
    def test_lambdas_for_the_device_are_nvccs(self, tmp_path: Path) -> None:
        source = """template <typename F> __global__ void apply(float* x, F f) { *x = f(*x); }
        void launch(int64_t n) {
          auto f = [=] __host__ __device__ (float x) { return x + n; };
          apply<<<1, 1>>>(nullptr, f);
        }
        """
        built = build(source, tmp_path, ["--extended-lambda"], target=Target.cuda("8.0"))
        assert built.compiler.startswith("nvcc ")
        assert built.why_nvcc == "only nvcc compiles __device__ lambdas"

    @pytest.mark.usefixtures("without_nvcc")
    def test_builtins_for_host_code_are_errors_in_kernels(self, tmp_path: Path) -> None:
        source = """#include <atomic>
        __global__ void fill(int* x) { __atomic_fetch_add(x, 1, __ATOMIC_RELAXED); }
        void launch(int64_t) { std::atomic<int> count = 0; ++count; fill<<<1, 1>>>(nullptr); }
        """
        with pytest.raises(CompileError, match=r"op\.cuh:2:\d+: error: .*'__atomic_"):
            build(source, tmp_path, target=Target.cuda("8.0"))

    @pytest.mark.usefixtures("with_nvcc")
    def test_nvrtc_that_is_asked_for_never_hands_over(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match="needs nvcc: only nvcc registers the symbols") as caught:
            build(self.SYMBOL, tmp_path, target=Target.cuda("8.0"))
        assert caught.value.hint == "set KJIT_CUDA_COMPILER to auto or nvcc"

    @pytest.mark.usefixtures("without_nvcc")
    def test_without_nvcc_the_error_says_what_would_help(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=r"needs nvcc: .* cudaMemcpyToSymbol") as caught:
            build(self.SYMBOL, tmp_path, target=Target.cuda("8.0"))
        assert "KJIT_CUDA_HOME" in (caught.value.hint or "")

    @pytest.mark.usefixtures("without_nvcc")
    def test_headers_for_host_code_alone_are_nvccs(self, tmp_path: Path) -> None:
        with pytest.raises(CompileError) as caught:
            build(f"#include <immintrin.h>\n{OP}", tmp_path, target=Target.cuda("8.0"))
        assert "which is for host code, and nvcc does: install it with `pip install 'kjit[cu13]'`" in (
            caught.value.hint or ""
        )

    @pytest.mark.usefixtures("without_nvcc")
    def test_a_flag_of_nvccs_own_is_an_error_without_nvcc(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=r"needs nvcc: NVRTC has no option -keep"):
            build(OP, tmp_path, ["-keep"], target=Target.cuda("8.0"))

    @pytest.mark.usefixtures("without_nvcc", "cache_dir")
    def test_tvm_ffis_own_headers_do_not_need_it(self, tmp_path: Path) -> None:
        """They have C++20's vector, whose functions are constexpr, and so for both halves; and <iostream>, in which
        g++ 13 has a line of assembly. Kernels that come with them have generic lambdas, and host code has ranges."""
        source = """__asm(".globl _ZSt21ios_base_library_initv");
        #include <tvm/ffi/container/array.h>
        #include <tvm/ffi/container/tensor.h>
        #include <tvm/ffi/function.h>
        #include <algorithm>
        #include <ranges>
        #include <span>
        template <int kCount, typename F>
        __device__ void each(F&& f) { for (int i = 0; i < kCount; ++i) f(1.0f, i); }
        __global__ void fill(float* x) { each<4>([&](const auto& value, int i) { x[threadIdx.x + i] = value; }); }
        struct Allowed {
          std::span<const DLDevice> devices;
          bool holds(DLDevice found) const {
            return std::ranges::any_of(devices, [found](const DLDevice& x) { return x.device_id == found.device_id; });
          }
        };
        void launch(tvm::ffi::TensorView x) {
          TVM_FFI_CHECK(x.ndim() == 1, ValueError) << "x has " << x.ndim() << " dimensions";
          const DLDevice first{kDLCUDA, 0};
          TVM_FFI_CHECK(Allowed{std::span(&first, 1)}.holds(x.device()), ValueError) << "x is elsewhere";
          fill<<<1, 32>>>(static_cast<float*>(x.data_ptr()));
        }
        TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch_it, launch);
        """
        built = build(source, tmp_path, target=Target.cuda("8.0"))
        assert [each.kernel for each in built.resources] == ["fill"]
        assert built.warnings == ""

    @pytest.mark.usefixtures("as_torch_brings_it")
    def test_headers_that_torch_does_not_bring_are_not_needed(self, tmp_path: Path) -> None:
        source = OP.replace("<cuda_fp16.h>", "<cuda_fp8.h>\n#include <cuda_bf16.h>").replace(
            "T(n)", "T(__bfloat162float(__float2bfloat16(float(n))))"
        )
        built = build(source, tmp_path, target=Target.cuda("9.0a"))
        assert {each.kernel for each in built.resources} == {"{anonymous}::scale<float, 2>", "add", "fill<float>"}
        assert any("/kjit_rtc/cuda/nv/target" in path for path in built.headers)
        assert built.warnings == ""

    @pytest.mark.nightly
    def test_host_functions_of_stand_ins_are_cudas(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        values = ["-1", "3u", "-5L", "7ul", "-9LL", "11ull", "2.5f", "-0.5", "NAN", "(double)NAN"]
        pairs = [f"{name}({x}, {y})" for name in ("min", "max") for x in values for y in values]
        # In a template: what does not compile is a value, too.
        shown = "".join(
            f"show([]<typename T>(T x, auto y) -> decltype({each[:3]}(x, y)) {{ return {each[:3]}(x, y); }}, "
            f"{each[4:-1]});\n"
            for each in pairs
        )
        source = f"""#include <kjit/ffi.h>
        #include <cstdio>
        template <typename F, typename X, typename Y>
        void show(F f, X x, Y y) {{
          if constexpr (requires {{ f(x, y); }}) {{
            std::printf("%d %d %.17g\\n", int(sizeof(f(x, y))), f(x, y) - f(x, y) - 1 < 0, double(f(x, y)));
          }} else {{
            std::printf("none\\n");
          }}
        }}
        template <typename T> __host__ __device__ T both(T x) {{ return rsqrtf(x) + __expf(x); }}
        __global__ void fill(float* x) {{ *x = both(*x); }}
        void first() {{ {shown} std::fflush(stdout); }}
        KJIT_EXPORT(first, first)
        """
        found = []
        for fixture in ("without_nvcc", "as_torch_brings_it"):
            request.getfixturevalue(fixture)
            _discover.cache_clear()
            folder = tmp_path / fixture
            (folder / "staging").mkdir(parents=True)
            (folder / "op.cu").write_text(source)
            variant = Variant(Spec("op", cuda_files=[folder / "op.cu"]), TARGET)
            built = compile_variant(variant, Toolchain.for_target(TARGET), folder / "staging")
            assert any("kjit_rtc/cuda" in path for path in built.headers) == (fixture == "as_torch_brings_it")
            command = [sys.executable, "-c", TestTwoUnits.CALL.replace("module.second()", ""), str(runtime(folder, 0))]
            done = subprocess.run([*command, str(built.library)], capture_output=True, text=True, check=True)
            found.append([line for line in done.stdout.splitlines() if not line.startswith(("launch", "get"))])
        assert len(found[0]) == len(pairs)
        assert found[0] == found[1]


@pytest.mark.usefixtures("cache_dir", "without_nvcc")
def test_both_halves_know_the_version_of_cuda_without_headers_of_kjit(tmp_path: Path) -> None:
    """Kernels for this version alone: otherwise one half has a kernel that the other one lacks."""
    path = tmp_path / "plain.cu"
    path.write_text("""#include <cuda_runtime.h>
#if CUDART_VERSION >= 12080
__global__ void newer() {}
void launch() { newer<<<1, 1>>>(); }
#else
__global__ void older() {}
void launch() { older<<<1, 1>>>(); }
#endif
""")
    spec = Spec("plain", cuda_files=[path])
    (tmp_path / "staging").mkdir()
    built = compile_variant(Variant(spec, TARGET), Toolchain.for_target(TARGET), tmp_path / "staging")
    assert built.compiler.startswith("NVRTC ")
    assert {kernel.kernel for kernel in built.resources} == {"newer"}


@pytest.mark.usefixtures("cache_dir")
def test_the_host_half_has_no_notes_about_parameters_that_are_aligned_to_many_bytes(tmp_path: Path) -> None:
    """A note would be shown below a warning about something else."""
    unit = tmp_path / "unit.cpp"
    unit.write_text("struct alignas(128) Map { int values[32]; };\nint first(Map map) { return map.values[0]; }\n")
    toolchain = Toolchain.for_target(TARGET)
    flags = host_half_flags(toolchain, Spec("plain", cuda_files=[unit]))
    flags = flags[: flags.index("-include")]  # those of the compile, as a rule: the text is preprocessed before
    command = [str(toolchain.cxx.path), *flags, "-c", str(unit), "-o", "/dev/null"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.nightly
@pytest.mark.usefixtures("cache_dir", "without_nvcc")
@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(kjit.ops.__path__)])
def test_reference_ops_need_no_nvcc(name: str, tmp_path: Path) -> None:
    target = Target.cuda("9.0a")
    for declared in declared_in(vars(importlib.import_module(f"kjit.ops.{name}"))):
        specs = [spec for spec in declared.specs() if spec.cuda_files]
        narrow = [spec for spec in specs if "bf16_t" in spec.args]
        for variant in variants_of((narrow or specs)[0], [target]) if specs else ():
            built = compile_variant(variant, Toolchain.for_target(target), tmp_path)
            assert built.resources
            assert built.warnings == ""


@pytest.mark.usefixtures("cache_dir", "without_nvcc")
def test_an_op_is_scaffolded_built_and_inspected_without_a_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KJIT_CUDA_COMPILER")
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "nvcc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert shutil.which("nvcc") is None

    def kjit(*words: str) -> str:
        command = [sys.executable, "-m", "kjit", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kjit("init")
    kjit("new", "scale", "--pattern", "minimal", "--dtypes", "fp32")
    table = kjit("build", "scale", "--arch", "9.0a")
    assert "scale<fp32_t>  cuda:sm_90a  built" in table
    assert table.splitlines()[1].split()[-2] == "NVRTC"
    ptx = kjit("inspect", "scale", "--arch", "9.0a", "--ptx").splitlines()
    assert ptx[1].split()[0] == ".version"
    at = next(number for number, line in enumerate(ptx) if "ld.global.f32" in line)
    assert any("x_ptr[i]" in line for line in ptx[at - 4 : at])
    with contextlib.suppress(ToolchainError):
        find_tool("cuobjdump")
        find_tool("nvdisasm")
        assert "global loads 1 x 32 bit; global stores 1 x 32 bit" in kjit("inspect", "scale", "--arch", "9.0a")


class TestToolkit:
    def test_without_nvcc_nvrtc_is_the_compiler(self, without_nvcc: Path) -> None:
        cuda = find_cuda()
        assert cuda.nvcc.family == "nvrtc"
        assert cuda.home == without_nvcc
        assert cuda.knows("90a")
        assert not Toolchain.for_target(TARGET).has_nvcc

    @pytest.mark.usefixtures("without_nvcc")
    def test_nobody_has_to_ask_for_it_where_there_is_no_nvcc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KJIT_CUDA_COMPILER")
        assert Toolchain.for_target(TARGET).nvrtc is not None
        monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvcc")
        with pytest.raises(ToolchainError, match="there is no bin/nvcc in it"):
            find_cuda()

    @pytest.mark.usefixtures("with_nvcc")
    def test_nobody_has_to_ask_for_it_where_there_is_nvcc(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("KJIT_CUDA_COMPILER")
        assert Toolchain.for_target(TARGET).nvrtc is not None
        assert Toolchain.for_target(TARGET).has_nvcc
        monkeypatch.setattr(
            "kjit.engine.toolchain.toolchain.find_nvrtc", Mock(side_effect=NoCudaError("NVRTC is not here."))
        )
        _discover.cache_clear()
        with caplog.at_level("INFO", "kjit"):
            assert Toolchain.for_target(TARGET).nvrtc is None
        assert "nvcc compiles CUDA sources: NVRTC is not here." in caplog.text

    @pytest.mark.usefixtures("cache_dir")
    def test_what_a_launcher_can_share_is_nvccs(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(two_halves, "find_launcher", lambda: Path("/usr/bin/sccache"))
        spec = Spec("op", cuda_files=[tmp_path / "op.cu"])
        assert two_halves.why_nvcc(spec, Toolchain.for_target(TARGET)) == ""
        monkeypatch.delenv("KJIT_CUDA_COMPILER")
        toolchain = Toolchain.for_target(TARGET)
        if toolchain.has_nvcc:
            assert two_halves.why_nvcc(spec, toolchain) == "sccache can share objects of nvcc, but not of NVRTC"
            monkeypatch.setattr(two_halves, "find_launcher", lambda: None)
            assert two_halves.why_nvcc(spec, toolchain) == ""

    def test_nvrtc_of_another_release_than_the_headers_is_refused(self, tmp_path: Path) -> None:
        for name in ("libnvrtc.so.12", "libnvrtc-builtins.so.12.9"):
            (tmp_path / name).touch()
        with pytest.raises(ToolchainError, match=r"NVRTC 12\.9 .* does not fit CUDA's headers, which are of 14\.7"):
            find_nvrtc((14, 7), [tmp_path])

    def test_an_old_nvrtc_is_refused(self, tmp_path: Path) -> None:
        for name in ("libnvrtc.so.12", "libnvrtc-builtins.so.12.4"):
            (tmp_path / name).touch()
        with pytest.raises(ToolchainError, match=r"NVRTC 12\.4 .* is too old: kjit needs 12\.8"):
            find_nvrtc((12, 4), [tmp_path])

    def test_with_clang_cuda_sources_are_nvccs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clang = replace(find_cxx(), family="clang", version=(19, 1))
        monkeypatch.setattr("kjit.engine.toolchain.toolchain.find_host_cxx", lambda: clang)
        _discover.cache_clear()
        with pytest.raises(
            ToolchainError, match=r"sources with g\+\+ only, and the C\+\+ compiler is clang 19\.1"
        ) as caught:
            Toolchain.for_target(TARGET)
        assert caught.value.hint == "set CXX to g++; nvcc works with clang, too"
        if find_cuda().nvcc.family == "nvcc":
            monkeypatch.setenv("KJIT_CUDA_COMPILER", "auto")
            assert Toolchain.for_target(TARGET).nvrtc is None
        _discover.cache_clear()

    @pytest.mark.usefixtures("with_nvcc")
    def test_a_key_contains_the_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "op.cuh").write_text(OP)
        variant = Variant(Spec("op", cuda_files=[tmp_path / "op.cuh"]), TARGET)
        by_nvrtc = Key.of(variant, Toolchain.for_target(TARGET))
        monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvcc")
        by_nvcc = Key.of(variant, Toolchain.for_target(TARGET))
        assert by_nvrtc.key1 != by_nvcc.key1
        assert by_nvrtc.source_key == by_nvcc.source_key

    def test_an_unknown_compiler_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_COMPILER", "clang")
        with pytest.raises(UsageError, match="KJIT_CUDA_COMPILER is 'clang'"):
            Toolchain.for_target(TARGET)


class TestFlags:
    def test_flags_about_device_code_are_nvrtcs_too(self) -> None:
        flags = ["-use_fast_math", "--fmad=false", "-maxrregcount", "64", "-Xptxas=-O2", "-lineinfo", "-DX=1", "-O2"]
        flags += ["-Xcompiler", "-Wall", "--expt-relaxed-constexpr", "-t", "4"]
        assert nvrtc_options(flags) == [
            "--use_fast_math",
            "--fmad=false",
            "--maxrregcount=64",
            "--ptxas-options=-O2",
            "-lineinfo",
        ]

    @pytest.mark.parametrize("flag", ["-Xptxas=-v,-dlcm=ca", "--ptxas-options=-v -dlcm=ca"])
    def test_a_list_for_ptxas_is_several_options(self, flag: str) -> None:
        assert nvrtc_options([flag]) == ["--ptxas-options=-v", "--ptxas-options=-dlcm=ca"]

    def test_flags_that_repeat_the_target_have_no_effect(self) -> None:
        flags = ["-gencode=arch=compute_90a,code=sm_90a", "-arch=sm_90a", "-gencode", "arch=compute_80,code=sm_80"]
        assert nvrtc_options([*flags, "-rdc=false", "-t4", "-m64"]) == []

    @pytest.mark.parametrize(
        "flag", ["-keep", "--default-stream=per-thread", "-Xcudafe=--x", "-gencode=arch=compute_90,code=compute_90"]
    )
    def test_others_are_for_nvcc_alone(self, flag: str) -> None:
        with pytest.raises(OnlyNvccError, match=f"NVRTC has no option {flag}"):
            nvrtc_options([flag])


@pytest.mark.parametrize(
    ("flags", "macros"),
    [
        (["-O3", "-lineinfo", "--expt-relaxed-constexpr", "-DX=1"], []),
        (["-G"], ["__CUDACC_DEBUG__"]),
        (["--device-debug"], ["__CUDACC_DEBUG__"]),
        (["--extended-lambda"], ["__CUDACC_EXTENDED_LAMBDA__"]),
        (["-expt-extended-lambda", "-Xcompiler", "-G"], ["__CUDACC_EXTENDED_LAMBDA__"]),
    ],
)
def test_flags_define_the_macros_that_nvcc_defines(flags: list[str], macros: list[str]) -> None:
    assert list(macros_of_nvcc(flags)) == macros


def test_the_functions_that_the_linker_exchanges_are_those_that_there_are() -> None:
    text = (kjit_include().parent / "csrc" / "support" / "kernels.cpp").read_text()
    assert all(name.removesuffix("_ptsz") in text for name in WRAPPED)
    assert issubclass(ToolchainError, KjitError)
