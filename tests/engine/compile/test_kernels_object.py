"""kjit.engine.compile.kernels_object: the kernel that a symbol refers to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kjit.engine.compile.kernels_object import common_name, is_by_address, renamed, undefined_in
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
        ("cudaGraphLaunch", False),
        ("cudaMemcpyAsync", False),
        ("cudaLaunchKernelExC", False),
    ],
)
def test_functions_that_are_given_what_only_nvcc_registers_are_known(name: str, is_refused: bool) -> None:
    assert is_by_address(name) is is_refused


def test_a_renamed_symbol_is_another_one_for_the_linker(tmp_path: Path) -> None:
    cxx = find_cxx().path

    def compiled(name: str, code: str) -> Path:
        (tmp_path / f"{name}.cpp").write_text(code)
        subprocess.run([cxx, "-c", tmp_path / f"{name}.cpp", "-o", tmp_path / f"{name}.o"], check=True)
        return tmp_path / f"{name}.o"

    caller = compiled("caller", "int f(); int g(); int main() { return 10 * f() + g(); }")
    assert {"_Z1fv", "_Z1gv"} <= set(undefined_in(caller.read_bytes()))
    caller.write_bytes(renamed(caller.read_bytes(), {"_Z1fv": "_Z1fv.of_this_unit"}))
    assert "_Z1fv" not in undefined_in(caller.read_bytes())
    callee = compiled(
        "callee", 'int f() { return 9; } int g() { return 3; } int h() asm("_Z1fv.of_this_unit"); int h() { return 4; }'
    )
    subprocess.run([cxx, caller, callee, "-o", tmp_path / "program"], check=True)
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 43
