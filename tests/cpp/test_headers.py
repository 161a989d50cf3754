"""Every header compiles alone, without a warning, with the C++ compiler and with nvcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kjit
from kjit.build.toolchain import Toolchain, kjit_include
from kjit.spec import Spec, Target

INCLUDE = kjit_include()
SUPPORT = INCLUDE.parent / "csrc" / "support"
HEADERS = sorted(f"kjit/{path.name}" for path in (INCLUDE / "kjit").iterdir() if path.suffix in (".h", ".cuh"))
HOST_HEADERS = [header for header in HEADERS if header.endswith(".h") and header != "kjit/launch.h"]
ARCHS = ["8.0", "9.0a", "10.0a"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]


def check(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "warning" not in done.stderr


def without_own_headers(flags: list[str]) -> list[str]:
    """`flags` without kjit's folder among the system folders, where warnings would be silent."""
    place = flags.index(str(INCLUDE))
    assert flags[place - 1] == "-isystem"
    return flags[: place - 1] + flags[place + 1 :]


def unit(folder: Path, *headers: str) -> Path:
    """A unit that includes `headers`, as an op's own code would see them: not as system headers, so that they warn."""
    path = folder / "unit.cpp"
    path.write_text("".join(f'#include "{INCLUDE / header}"\n' for header in headers) + "int unused_name = 0;\n")
    return path


def test_the_headers_are_found() -> None:
    assert {"kjit/ffi.h", "kjit/tensor.h", "kjit/utils.h", "kjit/utils.cuh", "kjit/vec.cuh"} <= set(HEADERS)


@pytest.mark.parametrize("header", HOST_HEADERS)
def test_a_host_header_compiles_alone(header: str, tmp_path: Path) -> None:
    toolchain = Toolchain.for_target(Target.cpu())
    flags = toolchain.cxx_flags(Spec("unit", cpp_files=[tmp_path / "unit.cpp"]))
    command = [str(toolchain.cxx.path), *without_own_headers(flags), f"-I{INCLUDE}", *WARNINGS]
    check([*command, "-fsyntax-only", str(unit(tmp_path, header))])


@pytest.mark.nvcc
@pytest.mark.parametrize("header", [header for header in HEADERS if header != "kjit/tvm_ffi.h"])
def test_a_header_compiles_alone_with_nvcc(header: str, tmp_path: Path) -> None:
    toolchain = Toolchain.for_target(Target.cuda(ARCHS[0]))
    assert toolchain.cuda is not None
    flags = toolchain.nvcc_flags(Spec("unit", cuda_files=[tmp_path / "unit.cu"]))
    digits = [kjit.CudaArch.parse(arch).digits for arch in ARCHS]
    flags = [flag for flag in flags if not flag.startswith(("-gencode", "-DKJIT_CUDA_ARCH"))]
    # One architecture more than the first in each call: KJIT_CUDA_ARCH is left out, so the fallback compiles as well.
    archs = [f"-gencode=arch=compute_{digit},code=sm_{digit}" for digit in digits]
    command = [str(toolchain.cuda.nvcc.path), *flags, *archs, "-Werror", "all-warnings", "-x", "cu"]
    check([*command, "-c", str(unit(tmp_path, header)), "-o", str(tmp_path / "unit.o")])


@pytest.mark.parametrize("source", ["host.cpp", pytest.param("cuda.cpp", marks=pytest.mark.nvcc)])
def test_the_precompiled_part_compiles_without_a_warning(source: str, tmp_path: Path) -> None:
    target = Target.cpu() if source == "host.cpp" else Target.cuda(ARCHS[0])
    toolchain = Toolchain.for_target(target)
    flags = toolchain.cxx_flags(Spec("unit", cpp_files=[SUPPORT / source]))
    command = [str(toolchain.cxx.path), *without_own_headers(flags), f"-I{INCLUDE}", *WARNINGS, "-DKJIT_PRECOMPILED"]
    check([*command, "-c", str(SUPPORT / source), "-o", str(tmp_path / "support.o")])
