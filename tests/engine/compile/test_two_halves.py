"""kjit.engine.compile.two_halves: the commands of the halves, and the refusals in their output."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.steps import Step
from kjit.engine.compile.two_halves import for_ptx, refuse_others, why_nvcc
from kjit.engine.toolchain.nvrtc import OnlyNvccError
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Spec, Target

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


@pytest.fixture
def toolchain(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """One that has both compilers."""
    del cache_dir
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "auto")
    try:
        found = Toolchain.for_target(Target.cuda("8.0"))
    except ToolchainError as error:
        pytest.skip(str(error))
    if not found.chooses:
        pytest.skip("needs nvcc and NVRTC")
    return found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#include <cstdint>\n#include <cub/cub.cuh>\n#include <kjit/runtime.cuh>\n", ""),
        ("#include <fstream>\n", "it includes <fstream>, which is neither kjit's nor CUDA's"),
        ("#include <tvm/ffi/function.h>\n", "it includes <tvm/ffi/function.h>, which"),
    ],
)
def test_a_source_is_known_by_what_it_includes(
    text: str, reason: str, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "op.cu").write_text(text)
    spec = Spec("op", cuda_files=[tmp_path / "op.cu"])
    found = why_nvcc(spec, toolchain)
    assert found.startswith(reason) and bool(found) == bool(reason)
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
    assert why_nvcc(spec, Toolchain.for_target(Target.cuda("8.0"))) == ""
