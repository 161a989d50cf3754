"""kjit.engine.compile.two_halves: the messages of its commands."""

from __future__ import annotations

import pytest

from kjit.engine.compile.steps import Step
from kjit.engine.compile.two_halves import for_ptx, shown_output

UNIT = """# 1 "/op/a.cu"
int of_host(int x) { return x; }
__device__ int declared(int x);
__global__ void inner(int* x) {
  *x = of_host(3);
}
__global__ void outer(int* x) {
  inner<<<1, 1>>>(x);
}
"""
CUBIN = Step(
    "cuda0.sm_80.cubin", ("python", "cuda0.sm_80.ii", "cuda0.sm_80.cubin", "--gpu-architecture=sm_80"), ("ii",)
)


def of_unresolved(symbol: str) -> str:
    log = f"ptxas info    : 0 bytes gmem\nptxas fatal   : Unresolved extern function '{symbol}'\n"
    return shown_output(CUBIN, log, lambda _: UNIT).removeprefix("ptxas info    : 0 bytes gmem\n")


def test_a_call_of_a_function_of_the_host_is_shown_where_it_is() -> None:
    place, line, caret = of_unresolved("_Z7of_hosti").splitlines()
    assert (
        place.startswith('/op/a.cu(4): error: calling a __host__ function("of_host') and "code for the device" in place
    )
    assert line[caret.index("^") :] == "of_host(3);"


def test_a_kernel_that_launches_one_is_refused_by_name() -> None:
    assert of_unresolved("__cudaCDP2GetParameterBufferV2").startswith("/op/a.cu(7): error: a kernel launches a kernel")


def test_a_function_that_is_nowhere_defined_is_left_to_ptxas() -> None:
    assert of_unresolved("_Z8declaredi") == "ptxas fatal   : Unresolved extern function '_Z8declaredi'\n"


PTXAS_ON_VARIABLE = (
    "ptxas warning : Unresolved extern variable '{}' in whole program compilation, ignoring extern qualifier\n"
)
NVRTC_ON_VARIABLE = """/op/a.cu(5): warning #20094-D: a host variable "{}" cannot be directly read in a device function
  *x = of_host(3);
       ^

"""


@pytest.mark.parametrize(
    ("shown", "log"),
    [
        ("count", PTXAS_ON_VARIABLE.format("count")),
        ("lib::count", PTXAS_ON_VARIABLE.format("_ZN3lib5countE")),
        ("<unnamed>::count", "error: Broken module found, compilation aborted!\n"),
    ],
)
def test_a_variable_of_the_host_in_a_kernel_is_an_error_as_by_nvcc(shown: str, log: str) -> None:
    expected = NVRTC_ON_VARIABLE.format(shown).splitlines()
    expected[0] = '/op/a.cu(5): error: identifier "count" is undefined in device code'
    assert shown_output(CUBIN, NVRTC_ON_VARIABLE.format(shown) + log, lambda _: UNIT).splitlines() == expected


def test_a_variable_of_the_host_is_found_where_nvrtc_names_no_place() -> None:
    unit = UNIT.replace("of_host(3)", "count")
    place, line, caret = shown_output(CUBIN, PTXAS_ON_VARIABLE.format("count"), lambda _: unit).splitlines()
    assert place == '/op/a.cu(4): error: identifier "count" is undefined in device code'
    assert line[caret.index("^") :] == "count;"


def test_the_error_of_another_broken_module_is_unchanged() -> None:
    log = "error: Broken module found, compilation aborted!\n"
    assert shown_output(CUBIN, log, lambda _: UNIT) == log


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("__global__ int k(int* x)", 3),
        ("template <typename T = void>\n__global__ T* k(int* x)", 4),
        ("int __global__ __launch_bounds__(f(2)) k(int* x)", 3),
        ("__global__ void k(int* x)", None),
        ("static __global__ __launch_bounds__(128) void k(int* x)", None),
        ("__global__ auto k(int* x) -> void", None),
    ],
)
def test_a_kernel_with_a_result_is_shown_where_it_is(head: str, line: int | None) -> None:
    log = "ptxas application ptx input, line 15; fatal   : Parsing error near '(': syntax error\n"
    unit = f'# 1 "/lib/b.h" 1 3\n__global__ int b(int* x) {{}}\n# 2 "/op/a.cu" 2\n\n{head} {{ *x = 1; }}\n'
    told = shown_output(CUBIN, f"{log}ptxas fatal   : Ptx assembly aborted due to errors\n", lambda _: unit)
    place = f"/op/a.cu({line}): error: a __global__ function must have a void return type"
    assert told.strip().splitlines()[0] == (place if line else log.strip())


def test_that_a_kernel_has_no_body_in_the_host_half_is_not_reported() -> None:
    host = Step("cuda0.host.o", ("g++", "-x", "c++-cpp-output", "-c", "cuda0.cut.ii"), ("cuda0.ii",))
    for kind in ("", "inline function "):
        log = f"a.cu:3:17: warning: {kind}'void f(int*)' used but never defined\n    3 | void f(int*)\n      |  ^\n"
        assert shown_output(host, log, lambda _: UNIT) == ""


def test_ptx_is_made_as_the_cubin_is() -> None:
    step = for_ptx(CUBIN)
    assert step.output == "cuda0.sm_80.ptx"
    assert step.arguments == ("python", "cuda0.sm_80.ii", "cuda0.sm_80.ptx", "--gpu-architecture=compute_80")
