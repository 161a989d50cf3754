"""kjit.engine.compile.nvcc_options: options that nvcc rejects are rejected for the simulator, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kjit.engine.compile.nvcc_options import _NAMES, unknown_to_nvcc
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import CudaArch, Target


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--use_fast_maths"], [("--use_fast_maths", "--use_fast_math")]),
        (["--use-fast-math"], [("--use-fast-math", "--use_fast_math")]),
        (["-expt-relaxed-constexp"], [("-expt-relaxed-constexp", "-expt-relaxed-constexpr")]),
        (["-Wall"], [("-Wall", "-Xcompiler=-Wall")]),
        (["-march=native"], [("-march=native", "-Xcompiler=-march=native")]),
        (["-device-debug"], [("-device-debug", "--device-debug")]),
        (["-nonsense"], [("-nonsense", None)]),
    ],
)
def test_an_option_that_nvcc_does_not_know_is_reported_with_the_likely_one(
    words: list[str], said: list[tuple[str, str | None]]
) -> None:
    assert list(unknown_to_nvcc(words)) == said


@pytest.mark.parametrize(
    "words",
    [
        ["--use_fast_math", "-lineinfo", "-O3", "-G", "-t2", "-fmad=false", "--ftz=true", "-split-compile", "4"],
        ["-Xcompiler", "-Wall", "-Xptxas=-v", "-Xcudafe", "--diag_suppress=177", "-DX=--y", "-I-strange", "a.cu"],
        ["-gencode", "arch=compute_80,code=sm_80", "--expt-extended-lambda", "-std=c++20", "-diag-suppress", "1"],
        ["-Wall", "-forward-unknown-to-host-compiler"],
    ],
)
def test_what_nvcc_knows_is_not(words: list[str]) -> None:
    assert list(unknown_to_nvcc(words)) == []


def test_it_is_found_in_a_file_of_options(tmp_path: Path) -> None:
    (tmp_path / "options").write_text("-O3 --use_fast_maths\n")
    assert [each.word for each in unknown_to_nvcc(["-optf", str(tmp_path / "options")])] == ["--use_fast_maths"]


@pytest.mark.nvcc
def test_the_names_are_those_of_nvcc() -> None:
    cuda = Toolchain.for_target(Target.cuda(CudaArch(9, 0, "a"))).cuda
    assert cuda is not None
    text = subprocess.run([cuda.nvcc.path, "--help"], capture_output=True, text=True, check=True).stdout
    names = {
        word for line in text.splitlines() if line.startswith("--") for word in (line.split()[0], line.split()[-1])
    }
    assert {name.strip("()") for name in names} - _NAMES == set()
