"""The assembly that switches stacks, on each processor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kjit.engine.toolchain.compilers import find_cxx

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "kjit" / "csrc" / "sim"
TURNS_AND_SUMS = "012012012012012 102.5 103.5 104.5\n"


def output_of(compiler: str, *flags: str, folder: Path, emulator: list[str]) -> str:
    program = str(folder / "fibers")
    sources = [str(HERE / "fiber_cases.cpp"), str(SOURCES / "fiber.cpp")]
    subprocess.run([compiler, "-std=c++20", "-O2", f"-I{SOURCES}", *flags, *sources, "-o", program], check=True)
    return subprocess.run([*emulator, program], check=True, capture_output=True, text=True).stdout


def test_fibers_keep_registers_and_exceptions_apart(tmp_path: Path) -> None:
    assert output_of(str(find_cxx().path), folder=tmp_path, emulator=[]) == TURNS_AND_SUMS


def test_they_do_on_aarch64_too(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64-static (qemu-user-static)")
    assert output_of(compiler, "-static", folder=tmp_path, emulator=[emulator]) == TURNS_AND_SUMS
