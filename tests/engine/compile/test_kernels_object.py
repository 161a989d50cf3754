"""kjit.engine.compile.kernels_object: which kernel is meant by which symbol."""

from __future__ import annotations

import pytest

from kjit.engine.compile.kernels_object import common_name, is_by_address


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
