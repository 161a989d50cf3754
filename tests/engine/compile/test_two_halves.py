"""kjit.engine.compile.two_halves: what the commands of the halves say to the user."""

from __future__ import annotations

from kjit.engine.compile.steps import Step
from kjit.engine.compile.two_halves import for_ptx, said

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
    return said(CUBIN, log, lambda _: UNIT).removeprefix("ptxas info    : 0 bytes gmem\n")


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


def test_ptx_is_made_as_the_cubin_is() -> None:
    step = for_ptx(CUBIN)
    assert step.output == "cuda0.sm_80.ptx"
    assert step.arguments == ("python", "cuda0.sm_80.ii", "cuda0.sm_80.ptx", "--gpu-architecture=compute_80")
