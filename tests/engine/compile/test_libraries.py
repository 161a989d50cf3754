"""kjit.engine.compile.libraries: the files that flags name, and the linker's search folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kjit.engine.compile import libraries
from kjit.engine.compile.libraries import files_named, resolve, sought_by
from kjit.engine.toolchain.cuda import CudaToolkit
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import NvccUnits, UnitCompiler
from kjit.spec import Target


@pytest.fixture
def toolchain(cache_dir: Path) -> Toolchain:
    del cache_dir
    return Toolchain.for_target(Target.cpu())


def test_a_linker_looks_in_absolute_folders_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBRARY_PATH", "lib:/env/lib::.")
    places = sought_by(["-L/flags/lib", "-lmore", "-l:exact.a"], Toolchain.for_target(Target.cpu()))
    assert all(map(os.path.isabs, places))
    assert {"/flags/lib/libmore.so", "/flags/lib/libmore.a", "/flags/lib/exact.a", "/env/lib/exact.a"} <= {*places}
    assert len(places) == len(set(places))


@pytest.fixture
def with_cuda(toolchain: Toolchain, tmp_path: Path) -> Toolchain:
    """A toolchain with the CUDA of PyPI's wheels, whose libraries have versioned names only."""
    library = tmp_path / "cu13" / "lib"
    library.mkdir(parents=True)
    for name in ("libcudart.so.13", "libcublas.so.13", "libcublas.so.13.1.2", "libnvrtc.so", "libnvrtc.so.13"):
        (library / name).touch()
    cuda = CudaToolkit(library.parent, toolchain.cxx, "PyPI wheels", (), library, library / "libcudart.so.13", ())
    return replace(toolchain, target=Target.cuda("9.0a"), gpu=NvccUnits(cuda))


def test_a_library_of_cuda_that_has_a_versioned_name_only_is_linked_by_it(with_cuda: Toolchain) -> None:
    assert with_cuda.cuda is not None
    folder = with_cuda.cuda.lib_dir
    flags = ["-lcudart", "-l", "cublas", "-lnvrtc", "-lm", "-l:libcudart.so.13", "-Wl,-rpath,/a"]
    resolved = [f"{folder}/libcudart.so.13", f"{folder}/libcublas.so.13"]
    assert resolve(flags, with_cuda) == [*resolved, "-lnvrtc", "-lm", "-l:libcudart.so.13", "-Wl,-rpath,/a"]


def test_the_drivers_library_is_found_where_the_system_has_it(
    with_cuda: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_LIBRARY_FOLDERS", (str(tmp_path),))
    assert resolve(["-lcuda"], with_cuda) == ["-lcuda"]
    (tmp_path / "libcuda.so.1").touch()
    assert resolve(["-lcuda"], with_cuda) == [f"{tmp_path}/libcuda.so.1"]
    (tmp_path / "libcuda.so").touch()
    assert resolve(["-lcuda"], with_cuda) == ["-lcuda"]


def test_the_simulator_has_a_cuda_runtime_of_its_own(toolchain: Toolchain) -> None:
    assert resolve(["-lcudart", "-lm"], replace(toolchain, target=Target.sim(), gpu=UnitCompiler())) == ["-lm"]
    assert resolve(["-lcudart", "-lm"], toolchain) == ["-lcudart", "-lm"]


def test_files_that_flags_name_are_read(tmp_path: Path) -> None:
    names = ("options.txt", "script.ld", "data.profile")
    for name in names:
        (tmp_path / name).touch()
    flags = [
        f"@{tmp_path}/options.txt",
        f"-Wl,-T,{tmp_path}/script.ld",
        f"-fprofile-use={tmp_path}/data.profile",
        "-O3",
    ]
    assert files_named(flags) == tuple(f"{tmp_path}/{name}" for name in names)
