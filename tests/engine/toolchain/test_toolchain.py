"""kjit.engine.toolchain.toolchain and its neighbours: which compilers, which CUDA, which architectures, which flags."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kjit.engine.toolchain import compilers, cpu, locations, memo, toolchain
from kjit.engine.toolchain import cuda as cuda_module
from kjit.engine.toolchain.archs import gpu_archs, resolve_archs
from kjit.engine.toolchain.compilers import Compiler, ask, find_cxx, find_host_cxx, inspect
from kjit.engine.toolchain.cuda import check_wheels, find_cuda, wheel_homes
from kjit.engine.toolchain.programs import find_ninja
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError, UsageError
from kjit.runtime import gpus
from kjit.runtime.gpus import Driver, Gpu, select_visible
from kjit.runtime.load import runtime_target
from kjit.spec import CudaArch, Spec, Target

GCC = "g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc."
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {version}, V{version}.88"


def write_program(path: Path, body: str) -> Path:
    """A shell script that counts how often it is called, in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$@" >>"{path}.calls"\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def calls(path: Path) -> list[str]:
    record = Path(f"{path}.calls")
    return record.read_text().splitlines() if record.exists() else []


def write_gcc(path: Path, version: str = "12.2.0") -> Path:
    banner = GCC.replace("12.2.0\n", f"{version}\n")
    return write_program(path, f'case "$1" in --version) echo "{banner}";; *) echo /lib/libgomp.spec;; esac')


def write_cuda(home: Path, version: str = "13.0", gcc_limit: int = 15) -> Path:
    """A folder that looks like a CUDA toolkit."""
    write_program(
        home / "bin" / "nvcc",
        f'case "$1" in --version) echo "{NVCC.format(version=version)}";; *) printf "sm_80\\nsm_90\\nsm_100\\n";; esac',
    )
    write_program(home / "bin" / "ptxas", "")
    write_program(home / "nvvm" / "bin" / "cicc", "")
    (home / "include" / "crt").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").touch()
    (home / "include" / "cuda_runtime_api.h").touch()
    (home / "include" / "crt" / "host_config.h").write_text(f"#if __GNUC__ > {gcc_limit}\n#endif\n")
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so.13").touch()
    return home


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    """No compiler but those that a test writes: PATH is empty, and what a variable named is forgotten."""
    for name in ("CXX", "CUDA_HOME", "KJIT_CUDA_HOME", "KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(cache_dir / "no-programs"))
    monkeypatch.setattr(cuda_module, "DEFAULT_HOME", cache_dir / "no-cuda")
    monkeypatch.setattr(cuda_module, "wheel_homes", list)
    monkeypatch.setattr(cuda_module, "header_homes", list)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "query_driver", lambda *_: None)


def add_gpus(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
    driver = Driver("580.1", (13, 0), tuple(Gpu(f"GPU {i}", cc, f"GPU-{i}") for i, cc in enumerate(capabilities)))
    monkeypatch.setattr(gpus, "query_driver", lambda *_: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


class TestCxx:
    def test_it_is_found_on_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "bin" / "g++")
        monkeypatch.setenv("PATH", str(program.parent))
        assert (find_cxx().path, find_cxx().version) == (program, (12, 2))

    def test_cxx_goes_before_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        write_gcc(tmp_path / "bin" / "c++")
        named = write_gcc(tmp_path / "other" / "g++-13", "13.1.0")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setenv("CXX", str(named))
        assert find_cxx().path == named

    def test_none_at_all_is_an_error_that_says_how_to_install_one(self) -> None:
        with pytest.raises(ToolchainError, match=r"No C\+\+ compiler was found.*\n.*apt install g\+\+"):
            find_cxx()

    def test_cxx_with_arguments_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "ccache g++")
        with pytest.raises(ToolchainError, match="a program with arguments"):
            find_cxx()

    def test_cxx_that_does_not_exist_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "/opt/nothing/g++")
        with pytest.raises(ToolchainError, match="CXX is '/opt/nothing/g\\+\\+', and there is no such program"):
            find_cxx()

    @pytest.mark.parametrize(
        ("for_c", "for_cpp"), [("gcc", "g++"), ("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-g++-12"), ("cc", "c++")]
    )
    def test_the_driver_for_c_is_refused_with_the_one_for_cpp(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, for_c: str, for_cpp: str
    ) -> None:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / for_c)))
        with pytest.raises(ToolchainError, match="is a compiler for C: ") as caught:
            find_cxx()
        assert caught.value.hint == f"set CXX to the one for C++: {tmp_path}/{for_cpp}"

    def test_clang_is_for_the_language_that_it_is_called_by(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        answer = 'case "$*" in *version*) echo "clang version 19.1.0";; esac'
        write_program(tmp_path / "clang-19", answer)
        (tmp_path / "clang++").symlink_to(tmp_path / "clang-19")
        monkeypatch.setenv("CXX", str(tmp_path / "clang++"))
        assert find_cxx().family == "clang"
        monkeypatch.setenv("CXX", str(tmp_path / "clang-19"))
        with pytest.raises(ToolchainError, match="is a compiler for C: "):
            find_cxx()

    def test_a_compiler_too_old_for_the_headers_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / "g++", "9.4.0")))
        with pytest.raises(ToolchainError, match=r"is gcc 9\.4; kjit needs gcc 11 or newer"):
            find_cxx()

    def test_a_program_that_is_no_compiler_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CXX", str(write_program(tmp_path / "g++", "echo hello")))
        with pytest.raises(ToolchainError, match="does not answer `--version`"):
            find_cxx()

    def test_a_compiler_cache_is_passed_over_for_the_compiler_behind_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        cache = write_program(tmp_path / "bin" / "ccache", "exit 1")
        (tmp_path / "masquerade").mkdir()
        (tmp_path / "masquerade" / "c++").symlink_to(cache)
        real = write_gcc(tmp_path / "usr" / "c++")
        monkeypatch.setenv("PATH", f"{tmp_path / 'masquerade'}:{real.parent}")
        assert find_cxx().path == real

    def test_a_compiler_in_a_folder_with_an_odd_name_works(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        program = write_gcc(tmp_path / "it's $HOME é" / "c++")
        monkeypatch.setenv("PATH", str(program.parent))
        assert find_cxx().path == program


class TestTemporaryFiles:
    def test_a_program_is_asked_where_tmpdir_cannot_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", "/nonexistent")
        assert os.path.isdir(ask(["/bin/sh", "-c", "echo $TMPDIR"]).strip())


class TestHostOfNvcc:
    """Which compiler nvcc is to call for host code, by nvcc's own variables."""

    @pytest.fixture
    def nvcc(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
        monkeypatch.setenv("CXX", str(write_gcc(tmp_path / "cxx")))
        for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"):
            monkeypatch.delenv(name, raising=False)
        return replace(inspect(write_gcc(tmp_path / "nvcc"), "c++"), family="nvcc", features=("gcc<=15",))

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
        self, nvcc: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, text: str
    ) -> None:
        named = write_gcc(tmp_path / "named" / "g++-13", "13.2.0")
        monkeypatch.setenv(variable, text.format(named))
        assert find_host_cxx(nvcc).path == named

    def test_a_folder_stands_for_the_compiler_in_it(
        self, nvcc: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        named = write_gcc(tmp_path / "bin" / "g++")
        monkeypatch.setenv("NVCC_CCBIN", str(named.parent))
        assert find_host_cxx(nvcc).path == named

    def test_they_go_in_the_order_in_which_nvcc_reads_them(
        self, nvcc: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        names = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
        for name in names:
            named = write_gcc(tmp_path / name / "g++")
            monkeypatch.setenv(name, f"-ccbin={named}" if name != "NVCC_CCBIN" else str(named))
            assert find_host_cxx(nvcc).path == named

    def test_one_that_is_not_there_or_too_new_is_an_error_that_names_the_variable(
        self, nvcc: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-ccbin=/nonexistent/g++")
        with pytest.raises(
            ToolchainError, match="NVCC_PREPEND_FLAGS has '/nonexistent/g\\+\\+' for nvcc's host"
        ) as caught:
            find_host_cxx(nvcc)
        assert caught.value.hint == "correct NVCC_PREPEND_FLAGS, or unset it"
        monkeypatch.setenv("NVCC_PREPEND_FLAGS", f"-ccbin={write_gcc(tmp_path / 'g++-99', '99.1.0')}")
        with pytest.raises(ToolchainError, match=r"is gcc 99\.1") as caught:
            find_host_cxx(nvcc)
        assert "name it in NVCC_PREPEND_FLAGS" in (caught.value.hint or "")

    @pytest.mark.usefixtures("nvcc")
    def test_a_toolchain_is_found_anew_when_it_changes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDA_HOME", str(write_cuda(tmp_path / "cuda")))
        target = Target.cuda("9.0a")
        assert Toolchain.for_target(target).cxx.path == tmp_path / "cxx"
        named = write_gcc(tmp_path / "g++")
        monkeypatch.setenv("NVCC_CCBIN", str(named))
        assert Toolchain.for_target(target).cxx.path == named


def write_script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def _script_named_c(path: Path) -> bytes:
    return path.read_bytes() if path.name == "c++" else b""


class TestMemo:
    def test_a_known_compiler_is_not_run_again(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(compilers, "script_of", lambda _: b"")  # what a test writes is one
        program = write_gcc(tmp_path / "c++")
        inspect(program, "c++")
        before = len(calls(program))
        memo._open.cache_clear()  # as a new process would begin
        inspect(program, "c++")
        assert len(calls(program)) == before

    def test_a_script_is_asked_in_each_process_what_it_would_run(self, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        inspect(program, "c++")
        before = len(calls(program))
        inspect(program, "c++")
        assert [call.split()[0] for call in calls(program)[before:]] == ["--version", "-###", "-print-prog-name=ld"]

    @pytest.mark.parametrize("line", ['exec {} "$@"', '# It is $SLOW.\n\nexec {} "$@"\n', 'exec ccache {} "$@"'])
    def test_a_script_that_hands_on_what_it_is_given_is_read(
        self, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compilers, "script_of", _script_named_c)  # the program that a test writes is one, too
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        write_script(tmp_path / "ccache", 'exec "$@"')
        program = write_gcc(tmp_path / "program")
        script = write_script(tmp_path / "c++", line.format(program))
        first = inspect(script, "c++")
        before = len(calls(program))
        memo._open.cache_clear()  # as a new process would begin
        assert inspect(script, "c++") == first
        assert len(calls(program)) == before
        assert {part[0] for part in first.parts} >= {str(program)}
        write_script(script, line.format(program) + " # another")
        assert inspect(script, "c++").identity() != first.identity()
        write_script(script, line.format(program))
        os.utime(program, (1, 1))
        assert inspect(script, "c++").identity() != first.identity()

    @pytest.mark.parametrize(
        "line",
        [
            *(
                'exec {} $MORE "$@"',
                'exec {} `cat more` "$@"',
                'PATH=/a exec {} "$@"',
                'exec ./{} "$@"',
                'exec {} "$1"',
            ),
            *('. /etc/more\nexec {} "$@"', 'exec {} "$@"; true', 'if true; then exec {} "$@"; fi', 'exec nothere "$@"'),
            'exec {} ~/a "$@"',
        ],
    )
    def test_any_other_is_not(self, line: str, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "program")
        assert compilers._behind(f"#!/bin/sh\n{line.format(program)}\n".encode()) is None

    def test_a_script_that_starts_another_is_read_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gcc = sys.executable  # a program that is there
        inner = write_script(tmp_path / "inner", f'exec {gcc} "$@"')
        outer = write_script(tmp_path / "outer", f'exec {inner} "$@"')
        behind = compilers._behind(outer.read_bytes())
        assert [each.path for each in behind or ()] == [str(inner), gcc]
        write_script(inner, f'exec {gcc} $MORE "$@"')
        assert compilers._behind(outer.read_bytes()) is None
        write_script(inner, f'exec {outer} "$@"')
        assert compilers._behind(outer.read_bytes()) is None
        write_script(inner, f'exec {gcc} "$@"')
        monkeypatch.setenv("BASH_ENV", "/etc/more")
        assert compilers._behind(outer.read_bytes()) is None

    def test_a_replaced_compiler_is_asked_again(self, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        assert inspect(program, "c++").version == (12, 2)
        write_gcc(program, "13.10.0")
        assert inspect(program, "c++").version == (13, 10)

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1, "programs": []}', "\x00\xff"])
    def test_a_broken_memo_is_as_good_as_none(self, cache_dir: Path, tmp_path: Path, content: str) -> None:
        (cache_dir / "v1").mkdir(parents=True, exist_ok=True)
        (cache_dir / "v1" / "compilers.json").write_text(content)
        assert inspect(write_gcc(tmp_path / "c++"), "c++").version == (12, 2)

    @pytest.mark.parametrize("inner", ["", "v1", "v1/compilers.json"])
    def test_one_that_others_may_write_to_is_not_believed(self, cache_dir: Path, tmp_path: Path, inner: str) -> None:
        program = write_gcc(tmp_path / "c++")
        inspect(program, "c++")
        before = len(calls(program))
        (cache_dir / inner).chmod(0o777)
        memo._open.cache_clear()  # as a new process would begin
        assert inspect(program, "c++").version == (12, 2)
        assert len(calls(program)) > before

    def test_an_answer_of_the_wrong_form_is_asked_again(self, cache_dir: Path, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        path, size, mtime_ns = memo.stamp(program)
        (cache_dir / "v1").mkdir(parents=True, exist_ok=True)
        entry = {"size": size, "mtime_ns": mtime_ns, "version": [7], "features": "native"}
        (cache_dir / "v1" / "compilers.json").write_text(json.dumps({"format": 1, "programs": {path: entry}}))
        assert inspect(program, "c++").version == (12, 2)

    def test_a_cache_that_cannot_be_written_is_no_error(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
        assert inspect(write_gcc(tmp_path / "c++"), "c++").version == (12, 2)


class TestCuda:
    def test_kjits_variable_goes_before_cuda_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDA_HOME", str(write_cuda(tmp_path / "a")))
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "b")))
        assert (find_cuda().home, find_cuda().origin) == (tmp_path / "b", "KJIT_CUDA_HOME")

    def test_cuda_home_goes_before_the_wheels(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDA_HOME", str(write_cuda(tmp_path / "a")))
        wheels = write_cuda(tmp_path / "site" / "nvidia" / "cu13")
        monkeypatch.setattr(cuda_module, "wheel_homes", lambda: [wheels])
        assert find_cuda().origin == "CUDA_HOME"

    def test_the_wheels_go_before_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = write_cuda(tmp_path / "a")
        monkeypatch.setenv("PATH", str(home / "bin"))
        wheels = write_cuda(tmp_path / "site" / "nvidia" / "cu13")
        monkeypatch.setattr(cuda_module, "wheel_homes", lambda: [wheels])
        assert (find_cuda().home, find_cuda().origin) == (wheels, "PyPI wheels")

    def test_path_goes_before_the_usual_place(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = write_cuda(tmp_path / "a")
        monkeypatch.setenv("PATH", str(home / "bin"))
        monkeypatch.setattr(cuda_module, "DEFAULT_HOME", write_cuda(tmp_path / "b"))
        assert (find_cuda().home, find_cuda().origin) == (home, "PATH")

    def test_the_usual_place_comes_last(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(cuda_module, "DEFAULT_HOME", write_cuda(tmp_path / "b"))
        assert find_cuda().origin == "/usr/local/cuda"

    def test_none_at_all_is_an_error_that_says_how_to_get_one(self) -> None:
        with pytest.raises(ToolchainError, match=r"No CUDA compiler.*\n.*pip install 'kjit\[cu13\]'"):
            find_cuda()

    @pytest.mark.parametrize("variable", ["KJIT_CUDA_HOME", "CUDA_HOME"])
    def test_a_variable_without_nvcc_is_named_with_its_path(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
    ) -> None:
        monkeypatch.setenv(variable, str(tmp_path))
        with pytest.raises(ToolchainError, match=f"^{variable} is '{tmp_path}', and there is no bin/nvcc"):
            find_cuda()

    def test_a_link_on_path_leads_to_the_toolkit(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = write_cuda(tmp_path / "cuda")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvcc").symlink_to(home / "bin" / "nvcc")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        assert find_cuda().home == home

    def test_a_wrapper_on_path_is_asked_for_the_toolkit_behind_it_once(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = write_cuda(tmp_path / "cuda")
        wrapper = write_program(tmp_path / "bin" / "nvcc", f'echo "#$ TOP={home}/bin/.." >&2')
        monkeypatch.setenv("PATH", str(wrapper.parent))
        assert (find_cuda().home, find_cuda().nvcc.path) == (home, home / "bin" / "nvcc")
        memo._open.cache_clear()
        assert find_cuda().home == home
        assert len(calls(wrapper)) == 1

    def test_an_older_cuda_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda", "12.4")))
        with pytest.raises(ToolchainError, match=r"is nvcc 12\.4; kjit needs nvcc 12\.8 or newer"):
            find_cuda()

    @pytest.mark.parametrize(
        ("part", "sentence"),
        [
            ("bin/ptxas", "has no bin/ptxas"),
            ("nvvm/bin/cicc", "has no nvvm/bin/cicc"),
            ("include/cuda_runtime.h", "has no headers"),
            ("lib/libcudart.so.13", "has no runtime library"),
        ],
    )
    def test_a_missing_part_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, sentence: str
    ) -> None:
        home = write_cuda(tmp_path / "cuda")
        (home / part).unlink()
        monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
        with pytest.raises(ToolchainError, match=sentence):
            find_cuda()

    def test_a_library_with_only_a_versioned_name_is_linked_by_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda")))
        assert find_cuda().cudart == tmp_path / "cuda" / "lib" / "libcudart.so.13"

    def test_its_identity_changes_with_a_part_that_nvcc_calls(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = write_cuda(tmp_path / "cuda")
        monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
        before = find_cuda().identity()
        (home / "nvvm" / "bin" / "cicc").write_text("another")
        assert find_cuda().identity() != before


class TestWheels:
    versions = {  # noqa: RUF012 (not changed)
        "nvidia_cuda_nvcc": "13.0.88",
        "nvidia_cuda_crt": "13.0.88",
        "nvidia_nvvm": "13.0.88",
        "nvidia_cuda_runtime": "13.0.96",
        "nvidia_cuda_cccl": "13.0.85",
    }

    def install(self, site: Path, **changes: str | None) -> Path:
        for name, version in {**self.versions, **changes}.items():
            if version is not None:
                (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        return site / "nvidia" / "cu13"

    def test_different_patch_versions_fit(self, tmp_path: Path) -> None:
        check_wheels(self.install(tmp_path))

    def test_mixed_minors_are_refused_naming_every_version(self, tmp_path: Path) -> None:
        home = self.install(tmp_path, nvidia_nvvm="13.1.80")
        with pytest.raises(ToolchainError) as caught:
            check_wheels(home)
        assert "nvidia-cuda-nvcc 13.0.88, nvidia-cuda-crt 13.0.88, nvidia-nvvm 13.1.80" in caught.value.message
        assert "'nvidia-nvvm==13.0.*'" in str(caught.value.hint)

    def test_a_missing_package_is_named(self, tmp_path: Path) -> None:
        home = self.install(tmp_path, nvidia_cuda_crt=None)
        with pytest.raises(ToolchainError, match="nvidia-cuda-crt is not installed"):
            check_wheels(home)

    def test_a_toolkit_that_is_not_from_wheels_is_not_judged(self, tmp_path: Path) -> None:
        check_wheels(tmp_path / "usr" / "local" / "cuda")

    def test_they_are_found_in_every_folder_of_the_nvidia_package(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = write_cuda(tmp_path / "nvidia" / "cu13")
        (tmp_path / "nvidia" / "cublas").mkdir()
        spec = importlib.util.spec_from_loader("nvidia", None)
        assert spec is not None
        spec.submodule_search_locations = [str(tmp_path / "gone"), str(home.parent)]
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
        assert wheel_homes() == [home]


class TestGpus:
    driver = Driver(
        "1",
        (13, 0),
        (Gpu("A", (9, 0), "GPU-aa11"), Gpu("B", (9, 0), "GPU-bb22")),
        (("MIG-x", Gpu("A", (9, 0), "GPU-aa11")),),
    )
    mixed = Driver("1", (13, 0), (Gpu("A", (8, 0), "GPU-aa11"), Gpu("B", (9, 0), "GPU-bb22")))

    @pytest.mark.parametrize(
        ("visible", "names"),
        [
            (None, "AB"),
            ("", ""),
            ("1", "B"),
            ("1,0", "BA"),
            ("0,-1,1", "A"),
            ("0,7,1", "A"),
            ("GPU-bb", "B"),
            ("GPU-zz", ""),
            ("MIG-x", "A"),
        ],
    )
    def test_the_visible_ones_are_chosen_as_cuda_does(self, visible: str | None, names: str) -> None:
        assert "".join(gpu.name for gpu in select_visible(self.driver, visible, by_bus=False)) == names

    def test_numbers_choose_among_different_gpus_only_in_bus_order(self) -> None:
        assert [gpu.name for gpu in select_visible(self.mixed, "1", by_bus=True)] == ["B"]
        assert [gpu.name for gpu in select_visible(self.mixed, "1", by_bus=False)] == ["A", "B"]

    def test_ids_choose_among_different_gpus_in_any_order(self) -> None:
        assert [gpu.name for gpu in select_visible(self.mixed, "GPU-bb22", by_bus=False)] == ["B"]

    @pytest.mark.parametrize(
        ("capability", "arch"), [((8, 6), "8.6"), ((9, 0), "9.0a"), ((10, 3), "10.3a"), ((12, 0), "12.0a")]
    )
    def test_each_has_its_own_architecture(
        self, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], arch: str
    ) -> None:
        add_gpus(monkeypatch, capability, capability)
        assert gpu_archs() == [CudaArch.parse(arch)]

    @pytest.mark.usefixtures("no_gpu")
    def test_no_driver_means_no_gpu(self) -> None:
        assert gpu_archs() == []


NVML = r"""
#include <string.h>
typedef struct { int index; } Device;
static Device devices[2] = {{0}, {1}};
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "580.65.06", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13010; return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device** device) { *device = &devices[i]; return 0; }
int nvmlDeviceGetHandleByUUID(const char* id, Device** device) { *device = &devices[1]; return strcmp(id, "MIG-1"); }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* part, Device** whole) { *whole = part; return 0; }
int nvmlDeviceGetCudaComputeCapability(Device* d, int* major, int* minor) { *major = 9; *minor = d->index; return 0; }
int nvmlDeviceGetName(Device* d, char* text, unsigned n) { strncpy(text, d->index ? "B" : "A", n); return 0; }
int nvmlDeviceGetUUID(Device* d, char* text, unsigned n) { strncpy(text, d->index ? "GPU-bb" : "GPU-aa", n); return 0; }
"""
"""A driver's library with two GPUs."""


class TestNvml:
    def load(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, init: int = 0) -> None:
        monkeypatch.undo()  # the real compiler is needed
        cxx = find_cxx().path
        library = tmp_path / "libnvidia-ml.so.1"
        command = [
            str(cxx),
            "-x",
            "c++",
            "-fpermissive",
            "-w",
            "-shared",
            "-fPIC",
            f"-DINIT={init}",
            "-",
            "-o",
            str(library),
        ]
        subprocess.run(command, input=f'extern "C" {{{NVML}}}', text=True, check=True)
        monkeypatch.setattr(gpus, "_NVML", str(library))
        gpus.query_driver.cache_clear()

    @pytest.fixture(autouse=True)
    def forget(self) -> Iterator[None]:
        yield
        gpus.query_driver.cache_clear()

    def test_the_driver_and_its_gpus_are_read(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.load(monkeypatch, tmp_path)
        a, b = Gpu("A", (9, 0), "GPU-aa"), Gpu("B", (9, 1), "GPU-bb")
        assert gpus.query_driver(("MIG-1", "MIG-2")) == Driver("580.65.06", (13, 1), (a, b), (("MIG-1", b),))

    def test_a_driver_that_does_not_start_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.load(monkeypatch, tmp_path, init=9)
        assert gpus.query_driver() is None

    def test_no_driver_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(gpus, "_NVML", str(tmp_path / "libnothing.so"))
        gpus.query_driver.cache_clear()
        assert gpus.query_driver() is None


class TestArchitectures:
    @pytest.fixture(autouse=True)
    def cuda(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda")))

    def test_the_requested_ones_go_before_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0")
        assert resolve_archs(["9.0a,10.0a", "9.0a"]) == [CudaArch(9, 0, "a"), CudaArch(10, 0, "a")]

    def test_the_environment_goes_before_the_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", "8.0")
        assert resolve_archs(None) == [CudaArch(8, 0)]

    def test_the_gpus_present_are_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        assert resolve_archs(None) == [CudaArch(9, 0, "a")]

    @pytest.mark.usefixtures("no_gpu")
    def test_no_gpu_and_none_named_says_both_ways_out(self) -> None:
        with pytest.raises(
            ToolchainError, match=r"(?s)no architecture to build for was named.*--arch.*KJIT_CUDA_ARCH_LIST"
        ):
            resolve_archs(None)

    @pytest.mark.parametrize("arch", ["7.0", "8.0a", "9.0f", "42.0"])
    def test_one_that_nvcc_does_not_know_is_refused_with_what_it_knows(self, arch: str) -> None:
        with pytest.raises(UsageError, match=r"(?s)does not build for architecture .*it knows 8\.0, 9\.0, 10\.0"):
            resolve_archs([arch])

    def test_a_word_that_is_no_architecture_is_refused(self) -> None:
        with pytest.raises(UsageError, match="'hopper' is not a CUDA architecture"):
            resolve_archs(["hopper"])

    def test_code_for_a_family_needs_cuda_12_9(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert resolve_archs(["10.0f"]) == [CudaArch(10, 0, "f")]
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "older", "12.8")))
        with pytest.raises(UsageError):
            resolve_archs(["10.0f"])


class TestRuntimeTarget:
    @pytest.mark.usefixtures("no_gpu")
    def test_the_cpu_needs_nothing(self) -> None:
        assert runtime_target("cpu", None) == Target.cpu()

    def test_a_gpu_gets_its_own_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        assert runtime_target("cuda", 0) == Target.cuda("9.0a")

    @pytest.mark.parametrize(
        ("listed", "chosen"), [("8.0 9.0 9.0a", "9.0a"), ("8.0 9.0", "9.0"), ("10.0a, 9.0", "9.0")]
    )
    def test_the_closest_of_the_listed_ones_is_taken(
        self, monkeypatch: pytest.MonkeyPatch, listed: str, chosen: str
    ) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", listed)
        assert runtime_target("cuda", 0) == Target.cuda(chosen)

    def test_a_list_without_one_that_runs_here_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0,10.0a")
        with pytest.raises(
            UsageError, match=r"KJIT_CUDA_ARCH_LIST lists 8\.0, 10\.0a, and none of them runs on this GPU"
        ):
            runtime_target("cuda", 0)

    @pytest.mark.usefixtures("no_gpu")
    def test_without_a_gpu_the_first_listed_one_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "9.0a 8.0")
        assert runtime_target("cuda", None) == Target.cuda("9.0a")

    @pytest.mark.usefixtures("no_gpu")
    def test_without_a_gpu_and_a_list_it_is_an_error(self) -> None:
        with pytest.raises(ToolchainError, match="There is no GPU here"):
            runtime_target("cuda", None)

    def test_a_device_that_is_not_there_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        with pytest.raises(ToolchainError, match="no CUDA device 3 here"):
            runtime_target("cuda", 3)


@pytest.mark.usefixtures("cxx", "cuda")
class TestToolchain:
    @pytest.fixture
    def cxx(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        program = write_gcc(tmp_path / "bin" / "c++")
        monkeypatch.setenv("PATH", str(program.parent))
        return program

    @pytest.fixture
    def cuda(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        home = write_cuda(tmp_path / "cuda")
        monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
        return home

    def test_the_cpu_needs_no_cuda(self) -> None:
        assert Toolchain.for_target(Target.cpu()).cuda is None

    def test_nvccs_host_compiler_is_the_one_that_was_found(self, cxx: Path) -> None:
        flags = Toolchain.for_target(Target.cuda("9.0a")).nvcc_flags(Spec("op", cuda_files=["/x.cu"]))
        assert flags[flags.index("-ccbin") + 1] == str(cxx)

    def test_an_unknown_architecture_is_refused_before_a_compile(self) -> None:
        with pytest.raises(UsageError, match=r"does not build for architecture 5\.0"):
            Toolchain.for_target(Target.cuda("5.0"))

    def test_a_host_compiler_too_new_for_cuda_gives_way_to_an_older_one(
        self, cxx: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        older = write_gcc(cxx.parent / "g++-11", "11.4.0")
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "strict", gcc_limit=11)))
        assert Toolchain.for_target(Target.cuda("9.0a")).cxx.path == older

    def test_a_named_host_compiler_too_new_for_cuda_is_refused(
        self, cxx: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CXX", str(cxx))
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "strict", gcc_limit=11)))
        with pytest.raises(ToolchainError, match=r"takes gcc up to version 11, and .* is gcc 12\.2"):
            Toolchain.for_target(Target.cuda("9.0a"))

    def test_a_compiler_replaced_in_the_same_process_is_noticed(self, cxx: Path) -> None:
        before = Toolchain.for_target(Target.cpu()).identity()
        write_gcc(cxx, "13.10.0")
        assert Toolchain.for_target(Target.cpu()).identity() != before

    def test_a_compiler_that_went_away_is_looked_for_again(self, cxx: Path) -> None:
        Toolchain.for_target(Target.cpu())
        cxx.unlink()
        with pytest.raises(ToolchainError, match=r"No C\+\+ compiler"):
            Toolchain.for_target(Target.cpu())

    def test_it_starts_no_process_once_the_compilers_are_known(
        self, cxx: Path, cuda: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compilers, "script_of", lambda _: b"")  # what a test writes is one
        Toolchain.for_target(Target.cuda("9.0a"))
        before = len(calls(cxx)) + len(calls(cuda / "bin" / "nvcc"))
        memo._open.cache_clear()
        toolchain._discover.cache_clear()
        Toolchain.for_target(Target.cuda("9.0a"))
        assert len(calls(cxx)) + len(calls(cuda / "bin" / "nvcc")) == before

    def test_it_is_one_object_as_long_as_nothing_changes(self, cxx: Path) -> None:
        first = Toolchain.for_target(Target.cpu())
        assert Toolchain.for_target(Target.cpu()) is first
        write_gcc(cxx, "13.10.0")
        assert Toolchain.for_target(Target.cpu()) != first

    def test_it_keeps_the_environment_that_it_was_found_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CPATH", "/one")
        toolchain = Toolchain.for_target(Target.cpu())
        monkeypatch.setenv("CPATH", "/two")
        assert toolchain.environment()["CPATH"] == "/one"
        assert Toolchain.for_target(Target.cpu()).environment()["CPATH"] == "/two"

    @pytest.mark.parametrize("name", ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"])
    def test_its_identity_holds_the_environment_that_compilers_read(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.delenv(name, raising=False)
        before = Toolchain.for_target(Target.cpu()).identity()
        monkeypatch.setenv(name, "/x")
        assert Toolchain.for_target(Target.cpu()).identity() != before

    def test_what_only_nvcc_reads_is_no_part_of_a_cpu_identity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Toolchain.for_target(Target.cpu()).identity()
        monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
        assert Toolchain.for_target(Target.cpu()).identity() == before

    def test_a_cuda_identity_holds_what_nvcc_reads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Toolchain.for_target(Target.cuda("9.0a")).identity()
        monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
        assert Toolchain.for_target(Target.cuda("9.0a")).identity() != before

    def test_its_identity_can_be_written_as_json(self) -> None:
        for target in (Target.cpu(), Target.cuda("9.0a")):
            identity = Toolchain.for_target(target).identity()
            assert json.loads(json.dumps(identity)) == identity

    def test_what_an_op_adds_comes_after_kjits_own_flags(self) -> None:
        spec = Spec("op", cuda_files=["/x.cu"], extra_cflags=["-O0"], extra_cuda_cflags=["-O1"], extra_ldflags=["-lm"])
        made = Toolchain.for_target(Target.cuda("9.0a"))
        assert made.cxx_flags(spec).index("-O3") < made.cxx_flags(spec).index("-O0")
        assert made.nvcc_flags(spec).index("-O3") < made.nvcc_flags(spec).index("-O1")
        assert made.link_flags(spec).index("-shared") < made.link_flags(spec).index("-lm")

    def test_an_ops_headers_are_searched_before_kjits(self) -> None:
        spec = Spec("op", cpp_files=["/x.cpp"], extra_include_paths=["/mine"])
        flags = Toolchain.for_target(Target.cpu()).cxx_flags(spec)
        assert flags.index("-I/mine") < flags.index(str(locations.kjit_include()))

    def test_code_for_this_cpu_is_made_for_the_cpu_only(self) -> None:
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert "-march=native" in Toolchain.for_target(Target.cpu()).cxx_flags(spec)
        assert "-march=native" not in Toolchain.for_target(Target.cuda("9.0a")).cxx_flags(spec)

    @pytest.mark.parametrize(
        ("family", "version", "is_quiet"),
        [("gcc", (19, 1), False), ("clang", (17, 0), False), ("clang", (18, 1), True)],
    )
    def test_clang_is_not_to_warn_of_its_own_reading_of_this_cpu(
        self, family: compilers.Family, version: tuple[int, int], is_quiet: bool
    ) -> None:
        made = Toolchain.for_target(Target.cpu())
        made = replace(made, cxx=replace(made.cxx, family=family, version=version))
        flags = made.cxx_flags(Spec("op", cpp_files=["/x.cpp"]))
        assert ("-Wno-invalid-feature-combination" in flags) == is_quiet

    def test_no_errno_and_no_trap_keep_loops_of_a_cpu_kernel_from_vectors(self) -> None:
        wanted = {"-fno-math-errno", "-fno-trapping-math"}
        if platform.machine() == "x86_64":
            wanted.add("-mprefer-vector-width=512")
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert wanted <= set(Toolchain.for_target(Target.cpu()).cxx_flags(spec))
        assert not wanted & set(Toolchain.for_target(Target.cuda("9.0a")).cxx_flags(spec))

    def test_gcc_leaves_loops_that_copy_as_they_are_and_clang_is_not_told(self) -> None:
        made = Toolchain.for_target(Target.cpu())
        for family in ("gcc", "clang"):
            of_family = dataclasses.replace(made, cxx=dataclasses.replace(made.cxx, family=family))
            flags = of_family.cxx_flags(Spec("op", cpp_files=["/x.cpp"]))
            assert ("-fno-tree-loop-distribute-patterns" in flags) is (family == "gcc")

    def test_without_openmps_library_its_pragmas_still_make_vectors(self) -> None:
        made = Toolchain.for_target(Target.cpu())
        without = dataclasses.replace(made, cxx=dataclasses.replace(made.cxx, features=("native",)))
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert "-fopenmp-simd" in without.cxx_flags(spec)
        assert "-fopenmp" not in without.cxx_flags(spec) + without.link_flags(spec)
        assert "-fopenmp-simd" not in Toolchain.for_target(Target.cuda("9.0a")).cxx_flags(spec)

    def test_code_for_a_level_of_cpus_is_for_that_level_and_does_not_depend_on_this_cpu(self) -> None:
        level = cpu.levels()[0]
        made = Toolchain.for_target(Target.cpu(level.name))
        flags = made.cxx_flags(Spec("op", cpp_files=["/x.cpp"]))
        assert [flag for flag in flags if flag.startswith("-march")] == [f"-march={level.march}"]
        assert made.identity()["cpu"] is None

    def test_several_architectures_are_one_call_and_the_host_part_is_for_the_lowest(self) -> None:
        flags = Toolchain.for_target(Target.cuda("9.0a", "9.0")).nvcc_flags(Spec("op", cuda_files=["/x.cu"]))
        assert [flag for flag in flags if flag.startswith(("-gencode", "-DKJIT_CUDA_ARCH"))] == [
            "-gencode=arch=compute_90,code=sm_90",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-DKJIT_CUDA_ARCH=900",
        ]

    def test_the_architecture_is_known_to_the_code(self) -> None:
        flags = Toolchain.for_target(Target.cuda("10.0a")).nvcc_flags(Spec("op", cuda_files=["/x.cu"]))
        assert "-DKJIT_CUDA_ARCH=1000" in flags
        assert "-gencode=arch=compute_100a,code=sm_100a" in flags


def test_tvm_ffis_folders_are_found_without_importing_it() -> None:
    loaded = "tvm_ffi" in sys.modules
    assert (locations.tvm_ffi_include() / "tvm" / "ffi" / "c_api.h").is_file()
    assert locations.tvm_ffi_library().is_file()
    assert ("tvm_ffi" in sys.modules) == loaded


def test_ninja_is_found_on_path_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = write_program(tmp_path / "ninja", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ninja() == program


def test_without_ninja_on_path_the_package_has_one() -> None:
    pytest.importorskip("ninja")
    assert os.access(find_ninja(), os.X_OK)


def test_no_ninja_at_all_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match="pip install ninja"):
        find_ninja()
