"""kjit.engine.compile.kernels_object: the kernel that a symbol refers to."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from kjit.engine.compile.host_compiler import prefix
from kjit.engine.compile.kernels_object import (
    Kernel,
    Row,
    _parameters,
    assembly,
    common_name,
    mismatch,
    offsets_of,
    only_by_nvcc,
    rename,
    rows_of,
    symbols,
)
from kjit.engine.toolchain.compilers import find_cxx


@pytest.mark.parametrize(
    ("of_nvrtc", "of_host"),
    [
        ("_Z4fillIfEvPT_", "_Z4fillIfEvPT_"),
        ("_ZN45_GLOBAL__N__00000000_7_unit_cu_a57adb0c_247064fillIfEEvPT_", "_ZN12_GLOBAL__N_14fillIfEEvPT_"),
        (
            "_Z4fillIN44_GLOBAL__N__00000000_7_unit_cu_a57adb0c_46012OpEEvT_",
            "_Z4fillIN12_GLOBAL__N_12OpEEvT_",
        ),
        (
            "_ZN10program04748_GLOBAL__N__00000000_15_cuda0_sm_90a_ii_3b4b35b52ofINS0_1SEEEvT_Pi",
            "_ZN10program04712_GLOBAL__N_12ofINS0_1SEEEvT_Pi",
        ),
        ("_Z4fillPi", "_ZL4fillPi"),
        ("_ZN4kjit5inner4fillPi", "_ZN4kjit5innerL4fillPi"),
    ],
)
def test_compilers_write_the_names_of_namespaces_and_of_what_is_local_in_their_own_ways(
    of_nvrtc: str, of_host: str
) -> None:
    assert common_name(of_nvrtc) == common_name(of_host)


@pytest.mark.parametrize("name", ["_Z4fillILi8ELb1EEvPi", "_Z4fillIL4Mode1EEvPi", "_ZN1A4fillIiEEvPT_"])
def test_numbers_among_template_arguments_stay(name: str) -> None:
    assert common_name(name) == name


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("cudaMemcpyToSymbolAsync", True),
        ("cudaGetSymbolAddress", True),
        ("cudaGraphAddKernelNode", True),
        ("cudaGraphExecKernelNodeSetParams", True),
        ("cudaGraphNodeSetParams", True),
        ("rsqrtf", True),
        ("sincospi", True),
        ("sqrtf", False),
        ("cudaGraphLaunch", False),
        ("cudaMemcpyAsync", False),
        ("cudaLaunchKernelExC", False),
    ],
)
def test_functions_that_only_nvcc_links_are_known(name: str, is_refused: bool) -> None:
    assert bool(only_by_nvcc(name)) is is_refused


def test_symbols_that_are_renamed_are_others_for_the_linker_and_can_be_used_by_other_objects(tmp_path: Path) -> None:
    cxx = str(find_cxx().path)
    code = (
        "static int a = 1, b = 2, c = 4; int* addresses[] = {&a, &b, &c}; static int f() { return b; } int (*p)() = f;"
        "template <typename T> int g() { static T held = 8; return held; } int h() { return g<int>() + c; }"
    )
    (tmp_path / "a.cpp").write_text(code)
    subprocess.run([cxx, "-O0", "-c", "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)
    before = {each.name: each for each in symbols((tmp_path / "a.o").read_bytes())}
    rename(cxx, str(tmp_path / "a.o"), {"_ZL1b": "b.unit", "_ZL1fv": "f.unit", "_Z1gIiEiv": "g.unit", "none": "other"})
    after = {each.name: each for each in symbols((tmp_path / "a.o").read_bytes())}
    assert set(after) >= set(before) - {"_ZL1b", "_ZL1fv", "_Z1gIiEiv"} | {"b.unit", "f.unit", "g.unit"}
    assert "_Z1gIiEiv" not in after
    assert [after[name].binding for name in ("b.unit", "f.unit", "_ZL1c")] == [1, 1, 0]
    main = """extern int b asm("b.unit"); int f() asm("f.unit"); extern int* addresses[]; extern int (*p)(); int h();
    template <typename T> int g() { return 1; }
    int main() { b = 32;
    return (addresses[1] == &b && f() == 32 && p == f && *addresses[2] == 4 && h() == 12 && g<int>() == 1) ? 7 : 1; }"""
    (tmp_path / "main.cpp").write_text(main)
    subprocess.run([cxx, "-no-pie", "main.cpp", "a.o", "-o", "program"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 7


HOST = """
struct Wide { alignas(16) float values[4]; };
struct Point { double x; char c; };
#define KERNEL(...) \\
  { __attribute__((used)) static ::kjit_rtc::Kernel<__VA_ARGS__> kjit_kernel; ::kjit_rtc::launch(&kjit_kernel); }
void plain(char, Wide, int) KERNEL(char, Wide, int)
void none() KERNEL()
extern "C" void of_c(Point) KERNEL(Point)
static void local(float*) KERNEL(float*)
namespace { void unnamed(int) KERNEL(int) }
namespace ns { template <typename T> void templated(T) KERNEL(T) }
void overloaded(int) KERNEL(int)
void overloaded(double) KERNEL(double)
int kjit_kernel;
void use() { local(nullptr); unnamed(1); ns::templated(2.0f); ns::templated('c'); }
"""


def test_a_host_half_has_a_row_for_each_kernel(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(f"{prefix()}{HOST}")
    command = [find_cxx().path, "-std=c++20", "-O1", "-fPIC", "-c", tmp_path / "a.cpp", "-o", tmp_path / "a.o"]
    subprocess.run(command, check=True)
    rows = {row.name: row for row in rows_of((tmp_path / "a.o").read_bytes())}
    assert {name: row.parameters for name, row in rows.items()} == {
        "_Z5plainc4Widei": ((1, 1), (16, 16), (4, 4)),
        "_Z4nonev": (),
        "of_c": ((16, 8),),
        "_Z5localPf": ((8, 8),),
        "_ZN12_GLOBAL__N_17unnamedEi": ((4, 4),),
        "_ZN2ns9templatedIfEEvT_": ((4, 4),),
        "_ZN2ns9templatedIcEEvT_": ((1, 1),),
        "_Z10overloadedi": ((4, 4),),
        "_Z10overloadedd": ((8, 8),),
    }
    assert rows["_Z5localPf"].function == "_ZL5localPf"
    found = {each.name for each in symbols((tmp_path / "a.o").read_bytes())}
    assert {row.variable for row in rows.values()} <= found


@pytest.mark.parametrize(
    ("sizes", "offsets"),
    [
        ([], []),
        ([(1, 1), (8, 8), (2, 2), (4, 4)], [(0, 1), (8, 8), (16, 2), (20, 4)]),
        ([(4, 4), (48, 16), (1, 1)], [(0, 4), (16, 48), (64, 1)]),
    ],
)
def test_parameters_are_placed_one_after_another(sizes: list[tuple[int, int]], offsets: list[tuple[int, int]]) -> None:
    assert offsets_of(sizes) == offsets


def test_a_parameter_of_large_alignment_is_aligned_in_memory_and_not_behind_the_first_one() -> None:
    tensor_map = (128, 64)
    assert offsets_of([(1, 1), tensor_map, (8, 8)], 0x210) == [(0, 1), (48, 128), (176, 8)]
    assert offsets_of([tensor_map], 0x210) == [(48, 128)]


@pytest.mark.parametrize(
    ("host", "device", "difference"),
    [
        ([], [], ""),
        ([(4, 4), (8, 8)], [(0, 4), (8, 8)], ""),
        (
            [(4, 4), (8, 8)],
            [(0, 4), (8, 16)],
            "parameter 1 has 8 bytes at offset 8 in host code, and 16 bytes at offset 8",
        ),
        (
            [(4, 4), (8, 4)],
            [(0, 4), (8, 8)],
            "parameter 1 has 8 bytes at offset 4 in host code, and 8 bytes at offset 8",
        ),
        ([(4, 4)], [(0, 4), (8, 8)], "parameter 1 has nothing in host code, and 8 bytes at offset 8 in device code"),
        ([(4, 4)], [], "parameter 0 has 4 bytes at offset 0 in host code, and nothing in device code"),
    ],
)
def test_parameters_that_differ_are_named(
    host: list[tuple[int, int]], device: list[tuple[int, int]], difference: str
) -> None:
    told = mismatch(Row("", "", "", tuple(host)), Kernel("", tuple(device)))
    assert told.startswith(difference) and bool(told) == bool(difference)


def test_parameters_of_a_cubin_are_read_whatever_their_order() -> None:
    def parameter(number: int, offset: int, size: int) -> bytes:
        return struct.pack("<HHIHHI", 0x1704, 12, 0, number, offset, size << 18 | 0x1F000)

    other = struct.pack("<HH", 0x1903, 24), struct.pack("<HHII", 0x0A04, 8, 3, 0x00180160)
    content = b"".join([other[0], parameter(1, 8, 16), other[1], parameter(0, 0, 4)])
    assert _parameters(content) == (((0, 4), (8, 16)), 0x160)


def test_a_kernel_whose_calls_are_all_inlined_has_a_row_without_an_address() -> None:
    text = assembly(["a.sm_90a.cubin", "a.sm_120f.cubin"], [("", "variable", ["one", "two"])])
    assert ".quad 0\n.quad variable\n" in text
    assert ".long 9\n.long 0\n.long 2\n" in text
    assert ".long 12\n.long 0\n.long 1\n" in text
