"""kjit.doctor: all checks and their problems; an unexpected error in a check does not end the others."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from kjit import doctor
from kjit.cli import app
from kjit.doctor import Check, examine, is_fit
from kjit.engine.toolchain import cuda as cuda_module
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.cuda import find_cuda
from kjit.errors import ToolchainError
from kjit.runtime import gpus
from kjit.runtime.gpus import Driver, Gpu

NAMES = (
    *("kjit", "C++ compiler", "ninja", "tvm-ffi", "torch", "cache", "shared cache"),
    *("CUDA", "NVRTC", "simulator", "GPUs", "Highway"),
)
H200 = Gpu("NVIDIA H200", (9, 0), "GPU-1")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Path:
    """A machine without a GPU whose environment names nothing."""
    for name in (
        "CXX",
        "CUDA_HOME",
        "KJIT_CUDA_HOME",
        "KJIT_CUDA_ARCH_LIST",
        "CUDA_VISIBLE_DEVICES",
        "KJIT_CUDA_COMPILER",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("TVM_FFI_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(gpus, "query_driver", lambda *_: None)
    return cache_dir


def check(name: str) -> Check:
    return next(each for each in examine() if each.name == name)


def add_gpus(monkeypatch: pytest.MonkeyPatch, *present: Gpu, runs: tuple[int, int] = (13, 0)) -> None:
    monkeypatch.setattr(gpus, "query_driver", lambda *_: Driver("580.65", runs, present))


def hide_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda_module, "wheel_homes", list)
    monkeypatch.setattr(cuda_module, "header_homes", list)
    monkeypatch.setattr(cuda_module, "DEFAULT_HOME", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))


def test_torch_is_not_imported() -> None:
    code = "import sys; from kjit.doctor import examine; examine(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_cuda_is_absent_and_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_cuda(monkeypatch, tmp_path)
    found = check("CUDA")
    assert (found.state, found.needed) == ("absent", False)
    assert "kjit[cu13]" in str(found.fix)


@pytest.mark.nvcc
def test_what_compiles_cuda_sources_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_cuda().nvcc.family != "nvcc" or check("NVRTC").state != "ok":
        pytest.skip("needs nvcc and NVRTC")
    assert check("NVRTC").detail.endswith(", compiles CUDA sources of kjit's own kind; nvcc compiles the others")
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvcc")
    assert check("NVRTC").detail.endswith(", not used: nvcc compiles CUDA sources")
    monkeypatch.setenv("KJIT_COMPILER_LAUNCHER", "/bin/true")
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
    assert check("NVRTC").detail.endswith(", compiles CUDA sources")
    monkeypatch.delenv("KJIT_CUDA_COMPILER")
    assert check("NVRTC").detail.endswith(", not used: nvcc compiles CUDA sources")
    monkeypatch.setattr(doctor, "find_nvrtc", Mock(side_effect=ToolchainError("NVRTC 1.0 does not fit.")))
    found = check("NVRTC")
    assert (found.state, found.detail) == ("absent", "NVRTC 1.0 does not fit. nvcc compiles CUDA sources.")


def test_the_simulator_needs_headers_and_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_cuda(monkeypatch, tmp_path)
    monkeypatch.setattr(cuda_module, "header_homes", list)
    found = check("simulator")
    assert (found.state, "kjit[sim]" in str(found.fix)) == ("absent", True)
    include = tmp_path / "none" / "include"
    for name in ("cuda_runtime.h", *cuda_module.SIMULATED_HEADERS):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text("#define CUDART_VERSION  13000\n")
    monkeypatch.setenv("KJIT_SIM", "1")
    found = check("simulator")
    assert found.state == "ok"
    assert found.detail == f"headers of CUDA 13.0 ({include}, from /usr/local/cuda); KJIT_SIM sends CPU tensors to it"


def test_hidden_gpus_are_absent_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(monkeypatch, H200)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = check("GPUs")
    assert (found.state, "CUDA_VISIBLE_DEVICES hides them" in found.detail) == ("absent", True)


@pytest.mark.nvcc
def test_a_driver_older_than_the_compiler_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(monkeypatch, H200, runs=(11, 8))
    found = check("GPUs")
    assert (found.state, "the driver runs CUDA up to 11.8" in found.detail) == ("problem", True)


@pytest.mark.nvcc
def test_a_gpu_that_the_compiler_does_not_know_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(monkeypatch, Gpu("Future", (42, 0), "GPU-9"), runs=(99, 0))
    assert "does not build for 42.0a" in check("GPUs").detail


@pytest.mark.nvcc
def test_an_architecture_list_that_serves_no_gpu_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(monkeypatch, H200, runs=(99, 0))
    monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0")
    assert "nothing in KJIT_CUDA_ARCH_LIST (8.0) runs on NVIDIA H200" in check("GPUs").detail


def test_no_compiler_makes_kjit_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    found = check("C++ compiler")
    assert (found.state, found.needed) == ("problem", True)
    assert not is_fit(examine())


def test_a_compiler_without_openmp_is_fit_until_its_library_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libomp.so"
    cxx = tmp_path / "clang++"
    cxx.write_text(
        f"""#!/bin/sh
case "$*" in
*--version*) echo "clang version 18.1.6" ;;
*-fopenmp*) test -e {library} ;;
esac
"""
    )
    cxx.chmod(0o755)
    monkeypatch.setenv("CXX", str(cxx))
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        assert check("C++ compiler") == Check(
            "C++ compiler", "ok", f"clang 18.1 ({cxx}), no OpenMP: kernels for the CPU have one thread", None, True
        )
        assert find_cxx().features == ("native",)
    library.touch()
    assert find_cxx().features == ("native",)
    assert check("C++ compiler").detail == f"clang 18.1 ({cxx})"
    assert find_cxx().features == ("native", "openmp")


def test_a_torch_without_cuda_beside_a_gpu_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_gpus(monkeypatch, H200)
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text("cuda: Optional[str] = None\n")
    spec = importlib.util.spec_from_file_location("torch", package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert "for the CPU only, and there is a GPU here" in check("torch").detail


def test_a_check_that_breaks_is_a_problem_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> None:
        raise ZeroDivisionError("unheard of")

    monkeypatch.setattr(doctor, "find_cxx", break_down)
    found = check("C++ compiler")
    assert found.detail == "cannot be checked: ZeroDivisionError: unheard of"
    assert [each.name for each in examine()] == [*NAMES]


class TestCache:
    def test_one_that_others_may_write_to_is_a_problem(self, machine: Path) -> None:
        machine.chmod(0o777)
        found = check("cache")
        assert (found.state, "chmod -R go-w" in str(found.fix)) == ("problem", True)

    def test_one_that_may_not_be_written_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.access", lambda *_: False)
        assert "cannot be written by this user" in check("cache").detail

    def test_one_on_a_disk_that_is_mounted_noexec_is_a_problem(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor, "is_noexec", lambda folder: folder == machine)
        found = check("cache")
        assert (found.state, found.needed) == ("problem", True)
        assert found.detail.startswith(f"'{machine}' is on a disk that is mounted noexec")
        assert "set KJIT_CACHE_DIR" in str(found.fix)


class TestCommand:
    def test_it_prints_a_line_for_each_check(self) -> None:
        done = CliRunner().invoke(app, ["doctor"])
        assert done.exit_code == 0
        assert all(name in done.stdout for name in NAMES)
        done = CliRunner().invoke(app, ["doctor", "--json"])
        assert [each["name"] for each in json.loads(done.stdout)] == [*NAMES]

    def test_a_problem_of_the_cpu_is_exit_status_1_with_its_fix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "ccache g++")
        done = CliRunner().invoke(app, ["doctor"])
        assert done.exit_code == 1
        assert "to fix it: name the compiler alone" in done.stdout


class TestSharedCache:
    @pytest.mark.parametrize(
        ("mode", "state", "detail"),
        [
            (0o755, "ok", "team, 0 artifacts"),
            (0o777, "problem", "may be written by users other"),
            (None, "problem", "does not exist"),
        ],
    )
    def test_it_is_named_with_how_much_it_has_or_its_problem(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int | None, state: str, detail: str
    ) -> None:
        if mode is not None:
            (tmp_path / "team").mkdir()
            (tmp_path / "team").chmod(mode)
        monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(tmp_path / "team"))
        found = check("shared cache")
        assert (found.state, found.needed, detail in found.detail) == (state, False, True)


def test_the_limit_of_the_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CACHE_MAX_SIZE", "5M")
    assert "of at most 5.0 MiB" in check("cache").detail
