"""Kernels of a unit in several cubins: each once, as in one cubin, and never where they share variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kjit.engine.compile import device_compiler, parts
from kjit.engine.compile.kernels_object import assembly, code_of_kernels, common_name, kernels_in, part_of
from kjit.engine.compile.parts import Units, divide, may_share
from kjit.engine.diagnostics.printed import parse_resources
from kjit.engine.toolchain.nvrtc import Nvrtc
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Target

UNIT = """# 1 "op.cu"
# 1 "/op/op.cuh" 1
namespace {
template <typename Function>
__global__ void __launch_bounds__(64) apply(float* x, Function function) { x[threadIdx.x] = function(x[threadIdx.x]); }
template <int kCount>
__global__ void sum(const float* x, float* out) {
  float total = 0;
  int unused = 3;
  for (int i = 0; i < kCount; ++i) total += x[i] * x[threadIdx.x];
  out[threadIdx.x] = total;
}
struct Twice { __device__ float operator()(float x) const { return 2 * x; } };
}  // namespace
extern "C" __global__ void nothing() {}
__global__ void trap() { asm volatile("trap;"); }
using Kernel = void (*)(const float*, float*);
Kernel kernels[] = {sum<8>, sum<100>};
void (*other)(float*, Twice) = apply<Twice>;
void (*plain[])() = {nothing, trap};
# 2 "op.cu" 2
"""
OPTIONS = ["--gpu-architecture=sm_90", "--ptxas-options=-v", "--std=c++20"]
KERNELS = 5
THREADS = 8


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        found = Toolchain.for_target(Target.cuda("9.0")).nvrtc
    except ToolchainError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("NVRTC is not here")
    return found


class Compiler:
    """What compiles a unit again and again, in `folder`."""

    def __init__(self, nvrtc: Nvrtc, folder: Path) -> None:
        self.nvrtc, self.folder, self.units = nvrtc, folder, Units()

    def compile(self, text: str) -> tuple[bool, str, list[bytes]]:
        """Whether it compiles, what NVRTC says, and the cubins; and have it ask for the kernels afterwards."""
        source, output = self.folder / "op.ii", self.folder / "op.sm_90.cubin"
        for path in self.folder.glob("*.cubin*"):
            path.unlink()
        source.write_text(text)
        words = (str(self.nvrtc.library), str(self.nvrtc.builtins), str(source), str(output), OPTIONS)
        done, said = device_compiler.compile_half(*words, units=self.units, threads=THREADS)
        self.units.make(device_compiler.kernels_as_ptx)
        paths = [path for part in range(THREADS) if (path := Path(part_of(str(output), part))).exists()]
        assert len(list(self.folder.glob("*.cubin"))) == len(paths)
        return done, said, [path.read_bytes() for path in paths]


@pytest.fixture
def compiler(nvrtc: Nvrtc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    # However little they take.
    monkeypatch.setattr(parts, "_WORTH_IT_S", -1.0)
    return Compiler(nvrtc, tmp_path)


def code(cubins: list[bytes]) -> dict[str, bytes]:
    return {common_name(name): content for cubin in cubins for name, content in kernels_in(cubin).items()}


def resources(said: str) -> set[tuple[str, int, int]]:
    return {(each.kernel, each.registers, each.spill_stores) for each in parse_resources(said)}


def test_after_an_edit_each_kernel_is_compiled_in_one_part_and_as_before(compiler: Compiler) -> None:
    _, said, whole = compiler.compile(UNIT)
    _, said_of_parts, split = compiler.compile(UNIT)
    assert (len(whole), len(code(whole))) == (1, KERNELS)
    assert 1 < len(split) <= KERNELS
    assert all(len(kernels_in(each)) < KERNELS for each in split)
    # A kernel that traps and nothing else looks like the stubs.
    assert {**code(split), "_Z4trapv": code(whole)["_Z4trapv"]} == code(whole)
    assert resources(said_of_parts) <= resources(said)
    assert len(resources(said_of_parts)) == KERNELS - 1
    # And what NVRTC warns of comes once.
    assert said.count("unused") == said_of_parts.count("unused") == 2
    table = assembly(["_Z4trapv", "nothing", "none"], [[(f"op.{i}.sm_90.cubin", c) for i, c in enumerate(split)]])
    assert table.count(".asciz") == 2
    edited = UNIT.replace("total += x[i]", "total -= x[i]").replace("sum<100>", "sum<100>, sum<30>")
    _, _, in_parts = compiler.compile(edited)
    _, _, alone = Compiler(compiler.nvrtc, compiler.folder).compile(edited)
    assert len(in_parts) == len(split)
    assert len(code(alone)) == KERNELS + 1
    assert {**code(in_parts), "_Z4trapv": code(alone)["_Z4trapv"]} == code(alone)
    assert code(in_parts).keys() - code(split).keys() == {"_ZN12_GLOBAL__N_13sumILi30EEEvPKfPf"}


def test_a_mistake_is_told_as_of_the_whole(compiler: Compiler) -> None:
    compiler.compile(UNIT)
    wrong = UNIT.replace("total += x[i]", "total += missing[i]")
    done, said, cubins = compiler.compile(wrong)
    assert not done
    assert said == Compiler(compiler.nvrtc, compiler.folder).compile(wrong)[1]
    assert said.count('identifier "missing" is undefined') == 1
    assert cubins == []


def test_kernels_that_share_a_variable_stay_in_one_cubin(compiler: Compiler) -> None:
    shared = UNIT.replace("template <int kCount>", "__device__ float count;\ntemplate <int kCount>").replace(
        "out[threadIdx.x] = total;", "out[threadIdx.x] = total + count; count = total;"
    )
    for _ in range(2):
        _, _, cubins = compiler.compile(shared)
        assert len(cubins) == 1
        assert len(code(cubins)) == KERNELS


def test_a_variable_that_an_edit_brings_keeps_the_unit_whole(compiler: Compiler) -> None:
    compiler.compile(UNIT)
    edited = UNIT.replace("int unused = 3;", "static int calls; if (threadIdx.x == 0) total = ++calls;")
    _, _, cubins = compiler.compile(edited)
    assert len(cubins) == 1


def test_parts_that_lack_a_kernel_or_have_one_twice_do_not_fit(compiler: Compiler) -> None:
    _, _, (whole,) = compiler.compile(UNIT)
    _, _, split = compiler.compile(UNIT)
    assert parts.fit(split)
    assert not parts.fit([whole, whole])
    assert code_of_kernels(whole).keys() != code_of_kernels(split[0]).keys()
    assert not parts.fit([whole, split[0]])


@pytest.mark.parametrize(
    ("weights", "most", "sizes"),
    [
        ({1: 10, 2: 10, 3: 10}, 8, [1, 1, 1]),
        ({1: 100, 2: 10, 3: 10, 4: 10}, 8, [1, 3]),  # more would not be done earlier
        ({1: 10, 2: 10, 3: 10, 4: 10}, 2, [2, 2]),
        ({1: 10}, 8, [1]),
        ({}, 8, []),
    ],
)
def test_parts_take_about_as_long_as_each_other(weights: dict[int, int], most: int, sizes: list[int]) -> None:
    divided = divide(weights, most)
    assert sorted(map(len, divided)) == sizes
    assert sorted(number for part in divided for number in part) == sorted(weights)


@pytest.mark.parametrize(
    ("declaration", "is_shared"),
    [
        ("__device__ int count;", True),
        ("static __device__ unsigned long counts[8] = {};", True),
        ("struct A { inline static __device__ int x = 3; };", True),
        ("__constant__ float factors[4];", True),
        ("template <typename T> __device__ Pair<T, int> pair;", True),
        ("__device__ const int* table;", True),
        ("__device__ int count(3);", True),
        ("__attribute__((device)) int count;", True),
        ("__device__ void f() { static int calls; ++calls; }", True),
        ("__global__ void f() { static const char* last; }", True),
        ("__device__ const int table[] = {1, 2};", False),
        ("const __device__ int table[] = {1, 2};", False),
        ("__device__ const int* const table = nullptr;", False),
        ("__device__ constexpr int* table = nullptr;", False),
        ("__device__ __forceinline__ Pair<int, float> f(int x);", False),
        ("__host__ __device__ constexpr A(int x) : x(x) {}", False),
        ("__device__ bool operator==(const A&) const;", False),
        ("__device__ operator float() const;", False),
        ("template <int k> requires(k > 2) __device__ decltype(k + 1) f() noexcept(true) { return k; }", False),
        ("auto f = [] __device__(int x) { return x; };", False),
        ("__global__ void f() { __shared__ int x; static __shared__ int y; static constexpr int z = 1; }", False),
        ("void f() { static int calls; }", False),
    ],
)
def test_what_kernels_may_share_is_known(declaration: str, is_shared: bool) -> None:
    assert may_share(f'# 1 "/op/op.cuh"\n{declaration}\n') == is_shared


def test_a_unit_is_known_again_by_its_files_and_what_is_generated_for_it() -> None:
    units = Units()
    units.learn(("nvrtc",), UNIT, [], 1.0)
    assert units.find(("nvrtc",), re.sub("kCount", "kNumber", UNIT)) is not None
    assert units.find(("other",), UNIT) is None
    assert units.find(("nvrtc",), UNIT.replace("/op/op.cuh", "/op/other.cuh")) is None
    assert units.find(("nvrtc",), f"{UNIT}void export_of_another();\n") is None
