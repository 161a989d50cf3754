"""kjit.engine.compile.host_compiler: the compile of the host half, and sources left to nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.host_compiler import is_of_cuda, main


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZNK6__halfcvfEv",  # half::operator float() const
        "_ZN13__nv_bfloat16aSEf",
        "_ZplRK6__halfS1_",
        "_ZL12__float2halff",
        "_Z16__bfloat162float13__nv_bfloat16",
        "_ZL10make_half26__halfS_",
    ],
)
def test_functions_of_halves_are_cudas(symbol: str) -> None:
    assert is_of_cuda(symbol)


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZN12_GLOBAL__N_112scale_kernelI13__nv_bfloat16EEvPKT_PS2_",
        "_Z3addI6__halfEvPT_",
        "_Z3addP6__half",
        "_Z3addPK13__nv_bfloat16i",
        "_Z3add6ParamsI6__halfE",
        "_ZL3addPii",
        "_ZN4kjit4host5PanicEPKc",
        "cudaLaunchKernelExC",
        "memcpy",
    ],
)
def test_kernels_and_other_functions_are_not(symbol: str) -> None:
    assert not is_of_cuda(symbol)


def test_managed_variables_are_left_to_nvcc(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ii").write_text("__attribute__((managed)) int count;\n")
    assert main([str(tmp_path / "a.ii"), str(tmp_path / "a.cut.ii"), str(tmp_path / "a.o"), "false", "false"]) == 1
    assert "error: only nvcc registers __managed__ variables" in capfd.readouterr().out
