"""kjit.engine.toolchain.packages: the packages that bring missing parts of CUDA."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kjit.engine.toolchain import packages
from kjit.engine.toolchain.cuda import CudaToolkit, Origin
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import NvccUnits
from kjit.spec import Target


def toolchain(folder: Path, origin: Origin = "PyPI wheels", version: tuple[int, int] = (13, 0)) -> Toolchain:
    cpu = Toolchain.for_target(Target.cpu())
    cuda = CudaToolkit(folder, replace(cpu.cxx, version=version), origin, (), folder, folder / "libcudart.so.13", ())
    return replace(cpu, target=Target.cuda("9.0a"), gpu=NvccUnits(cuda))


@pytest.mark.parametrize(
    ("log", "package"),
    [
        ("op.cuh:1:10: fatal error: curand_kernel.h: No such file or directory", "nvidia-curand"),
        ("op.cuh:1:10: fatal error: 'cublas_v2.h' file not found", "nvidia-cublas"),
        ("/usr/bin/ld: cannot find -lcufft: No such file or directory", "nvidia-cufft"),
        ("mold: fatal: library not found: nvrtc", "nvidia-cuda-nvrtc"),
    ],
)
def test_what_the_compiler_from_pypi_comes_without_is_a_package(
    cache_dir: Path, tmp_path: Path, log: str, package: str
) -> None:
    del cache_dir
    assert str(packages.hint(log, toolchain(tmp_path))).endswith(f"`pip install {package}`")
    assert "kjit doctor" in str(packages.hint(log, toolchain(tmp_path, "/usr/local/cuda")))
    assert f"{package}-cu12`" in str(packages.hint(log, toolchain(tmp_path, version=(12, 9))))


def test_the_simulator_has_none_of_them(cache_dir: Path, tmp_path: Path) -> None:
    del cache_dir
    simulator = replace(toolchain(tmp_path), target=Target.sim())
    assert "`#if !KJIT_SIM`" in str(
        packages.hint("a.cuh:1:1: fatal error: cufft.h: No such file or directory", simulator)
    )


def test_a_library_that_is_there_by_another_name_is_named(cache_dir: Path, tmp_path: Path) -> None:
    del cache_dir
    (tmp_path / "libcublas.so.13").touch()
    hint = packages.hint("/usr/bin/ld: cannot find -lcublas: No such file or directory", toolchain(tmp_path))
    assert hint == f"it is installed as '{tmp_path}/libcublas.so.13': name that file in extra_ldflags, by its path"


def test_without_a_driver_there_is_a_way_around_its_library(cache_dir: Path, tmp_path: Path) -> None:
    del cache_dir
    hint = packages.hint("/usr/bin/ld: cannot find -lcuda: No such file or directory", toolchain(tmp_path))
    assert "cudaGetDriverEntryPointByVersion" in str(hint)
    assert "cuda-driver-dev-13-0" in str(hint)


@pytest.mark.parametrize(
    "log",
    ["a.cuh:1:1: fatal error: mine.h: No such file or directory", "/usr/bin/ld: cannot find -lmine", "error: oops"],
)
def test_nothing_is_said_of_others(cache_dir: Path, tmp_path: Path, log: str) -> None:
    del cache_dir
    assert packages.hint(log, toolchain(tmp_path)) is None
