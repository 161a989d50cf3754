"""kjit.engine.compile.two_halves: the commands of the halves, and the refusals in their output."""

from __future__ import annotations

import pytest

from kjit.engine.compile.steps import Step
from kjit.engine.compile.two_halves import for_ptx, refuse_others
from kjit.engine.toolchain.nvrtc import OnlyNvccError

CUBIN = Step(
    "cuda0.sm_80.cubin", ("python", "cuda0.sm_80.ii", "cuda0.sm_80.cubin", "--gpu-architecture=sm_80"), ("ii",)
)


def test_ptx_is_made_as_the_cubin_is() -> None:
    step = for_ptx(CUBIN)
    assert step.output == "cuda0.sm_80.ptx"
    assert step.arguments == ("python", "cuda0.sm_80.ii", "cuda0.sm_80.ptx", "--gpu-architecture=compute_80")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("error: for nvcc: only nvcc does it\n", "only nvcc does it"),
        ("a.cu: In function 'f':\n/op/a.cu:3: error: for nvcc: only nvcc does it\n", "only nvcc does it"),
        ("op.cu(3): error: for nvcc: NVRTC does not know it\n\n", "NVRTC does not know it"),
    ],
)
def test_a_refusal_is_the_reason_for_nvcc(log: str, reason: str) -> None:
    with pytest.raises(OnlyNvccError) as caught:
        refuse_others(["op.cu:1: warning: unused\n", log])
    assert str(caught.value) == reason


def test_other_errors_are_no_refusal() -> None:
    refuse_others(["op.cu:1: error: this is for nvcc: or not\n", 'op.cu:1: error: "for nvcc: x"\n', ""])
