"""kjit.engine.toolchain.compilers: the C++ compiler that is found, and those that are rejected."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from fakes import write_cuda, write_gcc, write_program

from kjit.engine.toolchain.compilers import ask, find_cxx, find_host_cxx
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Target


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


class TestCxx:
    def test_cxx_goes_before_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        write_gcc(tmp_path / "bin" / "c++")
        named = write_gcc(tmp_path / "other" / "g++-13", "13.1.0")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setenv("CXX", str(named))
        assert find_cxx().path == named

    def test_none_at_all_is_an_error_that_says_how_to_install_one(self) -> None:
        with pytest.raises(ToolchainError, match=r"No C\+\+ compiler was found.*\n.*apt install g\+\+"):
            find_cxx()

    def test_cxx_that_does_not_exist_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "/opt/nothing/g++")
        with pytest.raises(ToolchainError, match="CXX is '/opt/nothing/g\\+\\+', and there is no such program"):
            find_cxx()

    @pytest.mark.parametrize("name", ["gcc", "x86_64-linux-gnu-gcc-12", "cc", "clang-19"])
    def test_the_driver_for_c_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / name)))
        with pytest.raises(ToolchainError, match="is a compiler for C: "):
            find_cxx()
        (tmp_path / "c++").symlink_to(tmp_path / name)
        monkeypatch.setenv("CXX", str(tmp_path / "c++"))
        assert find_cxx().family == "gcc"

    def test_a_compiler_too_old_for_the_headers_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / "g++", "9.4.0")))
        with pytest.raises(ToolchainError, match=r"is gcc 9\.4; kjit needs gcc 11 or newer"):
            find_cxx()

    def test_a_program_that_is_no_compiler_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CXX", str(write_program(tmp_path / "g++", "echo hello")))
        with pytest.raises(ToolchainError, match="--version' is not that of"):
            find_cxx()

    def test_a_compiler_cache_on_path_is_skipped_and_the_next_compiler_is_found(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        cache = write_program(tmp_path / "bin" / "ccache", "exit 1")
        (tmp_path / "masquerade").mkdir()
        (tmp_path / "masquerade" / "c++").symlink_to(cache)
        real = write_gcc(tmp_path / "usr" / "c++")
        monkeypatch.setenv("PATH", f"{tmp_path / 'masquerade'}:{real.parent}")
        assert find_cxx().path == real


class TestTemporaryFiles:
    def test_a_program_is_asked_where_tmpdir_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", "/nonexistent")
        assert os.path.isdir(ask(["/bin/sh", "-c", "echo $TMPDIR"]).strip())


class TestHostOfNvcc:
    """The host compiler selected by nvcc's own variables."""

    @pytest.fixture(autouse=True)
    def cxx(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / "cxx")))
        for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("NVCC_CCBIN", "{}"),
            ("NVCC_PREPEND_FLAGS", "-ccbin={}"),
            ("NVCC_PREPEND_FLAGS", "-lineinfo -ccbin {} -O1"),
            ("NVCC_APPEND_FLAGS", "--compiler-bindir={}"),
            ("NVCC_APPEND_FLAGS", "--compiler-bindir {}"),
        ],
    )
    def test_it_goes_before_cxx(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, text: str
    ) -> None:
        named = write_gcc(tmp_path / "named" / "g++-13", "13.2.0")
        monkeypatch.setenv(variable, text.format(named))
        assert find_host_cxx().path == named

    def test_a_folder_stands_for_the_compiler_in_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        named = write_gcc(tmp_path / "bin" / "g++")
        monkeypatch.setenv("NVCC_CCBIN", str(named.parent))
        assert find_host_cxx().path == named

    def test_they_go_in_the_order_in_which_nvcc_reads_them(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        names = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
        for name in names:
            named = write_gcc(tmp_path / name / "g++")
            monkeypatch.setenv(name, f"-ccbin={named}" if name != "NVCC_CCBIN" else str(named))
            assert find_host_cxx().path == named

    def test_one_that_is_not_there_is_an_error_that_names_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-ccbin=/nonexistent/g++")
        with pytest.raises(
            ToolchainError, match="NVCC_PREPEND_FLAGS names '/nonexistent/g\\+\\+' as nvcc's host"
        ) as caught:
            find_host_cxx()
        assert caught.value.hint == "correct NVCC_PREPEND_FLAGS, or unset it"

    def test_a_toolchain_is_found_anew_when_it_changes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDA_HOME", str(write_cuda(tmp_path / "cuda")))
        target = Target.cuda("9.0a")
        assert Toolchain.for_target(target).cxx.path == tmp_path / "cxx"
        named = write_gcc(tmp_path / "g++")
        monkeypatch.setenv("NVCC_CCBIN", str(named))
        assert Toolchain.for_target(target).cxx.path == named
