"""Every header compiles alone and without a warning with the C++ compiler and nvcc; and all together with clang.

Daily, nvcc (for the host too) compiles some together; nightly, one by one.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from each_pattern import NAMES, cases_of
from exported import functions_of

import kjit
from kjit.engine.compile.plan import wrapper_unit
from kjit.engine.toolchain.build_flags import cxx_flags, nvcc_flags
from kjit.engine.toolchain.cuda import wheel_homes
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec, Target

INCLUDE = kjit_include()
SUPPORT = INCLUDE.parent / "csrc" / "support"
HEADERS = sorted(
    path.relative_to(INCLUDE).as_posix()
    for path in (INCLUDE / "kjit").rglob("*")
    # highway.h re-includes the file that includes it, and so cannot compile alone: test_highway_header.py.
    if path.suffix in (".h", ".cuh") and path.name != "highway.h"
)
# Host headers that need the CUDA runtime's C headers, and nothing else of CUDA.
CUDA_HOST_HEADERS = ["kjit/launch.h", "kjit/runtime.cuh", "kjit/detail/row_spread.h"]
HOST_HEADERS = [header for header in HEADERS if header.endswith(".h") and header not in CUDA_HOST_HEADERS]
# Headers that a kernel may include.
NVCC_HEADERS = [header for header in HEADERS if header != "kjit/tvm_ffi.h" and not header.endswith("_cpu.h")]
ARCHS = ["8.0", "8.9", "9.0a", "10.0a", "12.0"]
TOOLKITS = [
    ("wheels", next(iter(wheel_homes()), None)),
    ("system", next((home for home in [Path("/usr/local/cuda")] if (home / "bin" / "nvcc").is_file()), None)),
]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
# clang 19 warns about `-march=native` on a CPU with AVX10.
OF_THIS_CPU = ["-Wno-unknown-warning-option", "-Wno-invalid-feature-combination"]


OF_PATTERNS = dict(map(cases_of, NAMES))
CASES = [*sorted(Path(__file__).parent.glob("*_cases.cpp")), *OF_PATTERNS]
HIGHWAY_CASES = Path(__file__).parent / "highway_cases.cpp"
CLANG = next(
    filter(None, map(shutil.which, ("clang++", *(f"clang++-{version}" for version in range(30, 15, -1))))), None
)
needs_clang = pytest.mark.skipif(CLANG is None, reason="there is no clang++ (16 or later) on PATH")


def check(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "warning" not in done.stderr


def without_own_headers(flags: list[str]) -> list[str]:
    """`flags` without kjit's include folder as a system folder, which would suppress warnings."""
    place = flags.index(str(INCLUDE))
    assert flags[place - 1] == "-isystem"
    return flags[: place - 1] + flags[place + 1 :]


def without_openmp(flags: list[str]) -> list[str]:
    """`flags` for a compiler that may lack an OpenMP library."""
    return ["-fopenmp-simd" if flag == "-fopenmp" else flag for flag in flags]


def unit(folder: Path, *headers: str) -> Path:
    """A unit that includes `headers` as non-system headers, so that the compiler warns about them."""
    path = folder / "unit.cpp"
    path.write_text("".join(f'#include "{INCLUDE / header}"\n' for header in headers) + "int unused_name = 0;\n")
    return path


def each(headers: Sequence[str], daily: str = "") -> list[Any]:
    """The public headers whose names end in `daily`, with those that they include; the others alone every night."""
    return [
        pytest.param(
            header,
            marks=()
            if header.endswith(daily) and not header.startswith(("detail/", "kjit/detail/"))
            else pytest.mark.nightly,
        )
        for header in headers
    ]


def test_the_headers_are_found() -> None:
    assert {"kjit/ffi.h", "kjit/tensor.h", "kjit/utils.h", "kjit/utils.cuh", "kjit/vec.cuh"} <= set(HEADERS)


MODES = ("-DKJIT_PRECOMPILED", "-UKJIT_PRECOMPILED")
"""With kjit's functions declared alone, and with all of them in the headers."""


def check_headers(compiler: str, target: Target, folder: Path, *headers: str, modes: Sequence[str] = MODES) -> None:
    """`headers` in one unit, with the warnings on."""
    toolchain = toolchain_of(compiler, target)
    flags = without_own_headers(cxx_flags(toolchain, Spec("unit", cpp_files=[folder / "unit.cpp"])))
    if compiler == CLANG:
        flags = [*without_openmp(flags), *OF_THIS_CPU]
    for mode in modes:
        command = [compiler, *flags, mode, f"-I{INCLUDE}", *WARNINGS, "-fsyntax-only", str(unit(folder, *headers))]
        check(command)


def toolchain_of(compiler: str, target: Target) -> Toolchain:
    """The toolchain of this C++ compiler: flags differ between compilers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler)
        return Toolchain.for_target(target)


@pytest.mark.parametrize("header", each(HOST_HEADERS))
def test_a_host_header_compiles_alone(header: str, tmp_path: Path) -> None:
    # Without all of kjit's functions in them, all modules of these tests compile; clang does both, below.
    check_headers(
        str(Toolchain.for_target(Target.cpu()).cxx.path), Target.cpu(), tmp_path, header, modes=["-UKJIT_PRECOMPILED"]
    )


@pytest.mark.nvcc
@pytest.mark.parametrize("header", each(CUDA_HOST_HEADERS))
def test_the_host_part_of_a_cuda_header_needs_no_nvcc(header: str, tmp_path: Path) -> None:
    target = Target.cuda(ARCHS[0])
    check_headers(str(Toolchain.for_target(target).cxx.path), target, tmp_path, header)


@needs_clang
@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.nightly)])
def test_the_host_headers_compile_together_with_clang(mode: str, tmp_path: Path) -> None:
    assert CLANG is not None
    check_headers(CLANG, Target.cpu(), tmp_path, *HOST_HEADERS, modes=[mode])


@needs_clang
@pytest.mark.nvcc
def test_the_host_part_of_cuda_headers_compiles_with_clang(tmp_path: Path) -> None:
    assert CLANG is not None
    check_headers(CLANG, Target.cuda(ARCHS[0]), tmp_path, *CUDA_HOST_HEADERS)


@pytest.mark.nightly
@needs_clang
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.highway] if case == HIGHWAY_CASES else [], id=case.stem) for case in CASES],
)
def test_the_cases_compile_with_clang(case: Path, tmp_path: Path) -> None:
    """For g++, the other tests compile these modules under the same warnings."""
    assert CLANG is not None
    folders = [case.parent, *kjit.highway_include()] if case == HIGHWAY_CASES else []
    # The lowest level leaves the most targets to choose from.
    target = Target.cpu("x86-64-v2" if case == HIGHWAY_CASES and platform.machine() == "x86_64" else None)
    flags = cxx_flags(toolchain_of(CLANG, target), Spec("unit", cpp_files=[case], extra_include_paths=folders))
    flags = [*without_openmp(without_own_headers(flags)), *OF_THIS_CPU]
    path = tmp_path / "unit.cpp"
    exports = () if case == HIGHWAY_CASES else tuple(OF_PATTERNS.get(case) or functions_of(case))
    path.write_text(wrapper_unit([str(case)], exports, with_cuda_types=False))
    check([CLANG, *flags, f"-I{INCLUDE}", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", str(path)])


def host_warnings(toolchain: Toolchain) -> str:
    """Options of the host compiler, as nvcc takes them."""
    # nvcc writes `{.rows = 0}` as `{rows: 0}`, of which clang warns.
    return "-Wall,-Wextra,-Wconversion" + (",-Wno-gnu-designator" if toolchain.cxx.family == "clang" else "")


def check_with_nvcc(
    home: Path | None, archs: list[str], folder: Path, *headers: str, for_device_alone: bool = False
) -> None:
    """`headers` in one unit, warnings of both compilers on, for `archs`; with the CUDA of `home`, or that of builds.

    Args:
        for_device_alone: to PTX, of one architecture; the host compiler and the assembler have no part in it.
    """
    with pytest.MonkeyPatch.context() as patch:
        if home is not None:
            patch.setenv("KJIT_CUDA_HOME", str(home))
        toolchain = Toolchain.for_target(Target.cuda(ARCHS[0]))
    assert toolchain.cuda is not None
    flags = nvcc_flags(toolchain, Spec("unit", cuda_files=[folder / "unit.cu"]))
    # KJIT_CUDA_ARCH is left out, so the fallback compiles as well.
    flags = [flag for flag in flags if not flag.startswith(("-gencode", "-DKJIT_CUDA_ARCH"))]
    digits = [kjit.CudaArch.parse(arch).digits for arch in archs]
    made = "compute" if for_device_alone else "sm"
    codes = [f"-gencode=arch=compute_{digit},code={made}_{digit}" for digit in digits]
    warnings = ["-Werror", "all-warnings", "-Xcompiler", host_warnings(toolchain)]
    command = [str(toolchain.cuda.nvcc.path), *flags, *codes, *warnings, "-x", "cu"]
    check([*command, "-ptx" if for_device_alone else "-c", str(unit(folder, *headers)), "-o", str(folder / "unit.o")])


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "for_device_alone", [pytest.param(True, id="device"), pytest.param(False, id="both", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("header", each(NVCC_HEADERS, daily=".cuh"))
def test_a_header_compiles_alone_with_nvcc(header: str, for_device_alone: bool, tmp_path: Path) -> None:
    # All architectures are below, for all headers together.
    check_with_nvcc(None, [ARCHS[-1]], tmp_path, header, for_device_alone=for_device_alone)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "home",
    [
        pytest.param(home, id=label, marks=pytest.mark.nightly if number else ())
        for number, (label, home) in enumerate(sorted(TOOLKITS, key=lambda each: each[1] is None))
    ],
)
@pytest.mark.parametrize(
    "archs",
    [pytest.param([ARCHS[0], ARCHS[-1]], id="two"), pytest.param(ARCHS, id="all", marks=pytest.mark.nightly)],
)
def test_the_headers_compile_together_for_every_architecture(
    home: Path | None, archs: list[str], tmp_path: Path
) -> None:
    if home is None:
        pytest.skip("there is no such CUDA here")
    check_with_nvcc(home, archs, tmp_path, *NVCC_HEADERS)


@pytest.mark.nvcc
def test_with_light_types_no_header_reads_cudas_for_half_and_8_bit_types(tmp_path: Path) -> None:
    toolchain = Toolchain.for_target(Target.cuda("9.0a"))
    assert toolchain.cuda is not None
    flags = without_own_headers(nvcc_flags(toolchain, Spec("unit", cuda_files=[tmp_path / "unit.cu"])))
    command = [str(toolchain.cuda.nvcc.path), *flags, f"-I{INCLUDE}", "-DKJIT_LIGHT_TYPES", "-x", "cu"]
    warnings = ["-Werror", "all-warnings", "-Xcompiler", host_warnings(toolchain)]
    depfile = tmp_path / "unit.d"
    check(
        [*command, *warnings, "-MD", "-MF", str(depfile), "-c", str(unit(tmp_path, *NVCC_HEADERS)), "-o", "/dev/null"]
    )
    assert "/cuda_runtime.h" in depfile.read_text()
    assert not re.search(r"/cuda_(fp16|bf16|fp8)\.h", depfile.read_text())


@pytest.mark.nvcc
def test_light_types_chosen_too_late_are_an_error(tmp_path: Path) -> None:
    toolchain = Toolchain.for_target(Target.cuda("9.0a"))
    assert toolchain.cuda is not None
    late = tmp_path / "late.cu"
    late.write_text("#include <kjit/tensor.h>\n#define KJIT_LIGHT_TYPES\n#include <kjit/type.cuh>\n")
    command = [str(toolchain.cuda.nvcc.path), *nvcc_flags(toolchain, Spec("late", cuda_files=[late]))]
    done = subprocess.run([*command, "-E", str(late)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "define it before the first #include" in done.stderr


@pytest.mark.parametrize("source", ["host.cpp", pytest.param("cuda.cpp", marks=pytest.mark.nvcc)])
def test_the_precompiled_part_compiles_without_a_warning(source: str, tmp_path: Path) -> None:
    target = Target.cpu() if source == "host.cpp" else Target.cuda(ARCHS[0])
    toolchain = Toolchain.for_target(target)
    flags = cxx_flags(toolchain, Spec("unit", cpp_files=[SUPPORT / source]))
    command = [str(toolchain.cxx.path), *without_own_headers(flags), f"-I{INCLUDE}", *WARNINGS, "-DKJIT_PRECOMPILED"]
    check([*command, "-c", str(SUPPORT / source), "-o", str(tmp_path / "support.o")])
