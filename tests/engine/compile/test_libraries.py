"""kjit.engine.compile.libraries: the files that each linker reports to have read, and its search folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kjit.engine.compile import libraries
from kjit.engine.compile.libraries import (
    always_linked,
    brought_in,
    files_named,
    linked_by,
    read_listing,
    resolve,
    sought_by,
)
from kjit.engine.toolchain.cuda import CudaToolkit
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import NvccUnits, UnitCompiler
from kjit.spec import Target


@pytest.fixture
def toolchain(cache_dir: Path) -> Toolchain:
    del cache_dir
    return Toolchain.for_target(Target.cpu())


@pytest.mark.parametrize(
    ("name", "of_make"),
    [("liba.a", "liba.a"), ("my libs/liba.a", "my\\ libs/liba.a"), ("cost$/liba.a", "cost$$/liba.a")],
)
def test_names_are_read_in_the_way_of_each_linker(tmp_path: Path, name: str, of_make: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    folder = tmp_path
    as_gnu = f"op.so: \\\n  a.o \\\n  {path}\n\na.o:\n\n{path}:\n"
    as_lld = f"op.so: \\\n  a.o \\\n  {folder}/{of_make}\n\na.o:\n\n{folder}/{of_make}:\n"
    as_mold = f"op.so: a.o {folder}/{of_make}\n"
    assert read_listing(as_gnu) == read_listing(as_lld) == read_listing(as_mold) == ["a.o", str(path)]


def test_nothing_is_read_where_the_linker_was_not_asked(toolchain: Toolchain) -> None:
    assert read_listing("") == []
    assert brought_in("", toolchain) == []


def test_what_was_made_for_the_link_alone_is_not_brought_in(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "liba.a").touch()
    listing = f"op.so: \\\n  cpp0.o \\\n  {tmp_path}/gone.ltrans0.o \\\n  {tmp_path}/liba.a\n"
    assert brought_in(listing, toolchain) == [f"{tmp_path}/liba.a"]


def test_what_the_compiler_always_links_is_there(toolchain: Toolchain) -> None:
    assert all(os.path.exists(name) for name in always_linked(toolchain))


def test_that_a_linker_cannot_tell_is_not_remembered(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "cache that remembers nothing"))
    with monkeypatch.context() as patch:
        patch.setattr(libraries, "compiles", lambda *_: False)
        assert always_linked(toolchain) == []
    monkeypatch.setattr(libraries, "_link_nothing", lambda _: ["/crt.o"])
    assert always_linked(toolchain) == ["/crt.o"]


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


@pytest.mark.parametrize("flags", [["-B{}"], ["-B", "{}/"], ["-B{}/my-"], ["--prefix={}"]])
def test_a_program_in_the_place_of_the_compiler_s_own_is_among_the_files_that_flags_name(
    tmp_path: Path, flags: list[str]
) -> None:
    for name in ("as", "my-as"):
        (tmp_path / name).touch()
    flags = [flag.replace("{}", str(tmp_path)) for flag in flags]
    for named in (files_named(flags), linked_by(flags)):
        found = {os.path.normpath(path) for path in named}
        assert found == {f"{tmp_path}/{'my-as' if 'my-' in flags[0] else 'as'}"}


def test_a_linker_that_is_chosen_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker = tmp_path / "ld.other"
    linker.write_bytes(b"\x7fELF")
    linker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert linked_by(["-fuse-ld=other"]) == (str(linker),)
