"""kjit.engine.compile.compile: from a variant to a library, and failures on the way."""

from __future__ import annotations

import ctypes
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from warm import begin

from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_library
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError, ToolchainError, UsageError
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

# Plain C over tvm-ffi's ABI, so that these tests are about compiling and not about kjit's headers.
ANSWER = """
#include <tvm/ffi/c_api.h>
#include <string>
#include "answer.h"
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
  r->v_int64 = ANSWER + static_cast<int64_t>(std::string().size());
  return 0;
}
__attribute__((visibility("default"))) int internal() { return 1; }
"""
KERNEL = """
__global__ void fill(float* p) {
  __shared__ float s[32];
  s[threadIdx.x] = p[0];
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x ^ 1];
}
void launch(float* p) { fill<<<1, 32>>>(p); }
"""
ODD = 'it\'s $HOME `x` é #1; "q"'
"""A folder's name with what shells, ninja, make and nvcc each read in their own way."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "answer.h").write_text("#define ANSWER 42\n")
    path = tmp_path / "csrc" / "answer.cpp"
    path.write_text(ANSWER)
    return path


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir()
    return folder


def build(spec: Spec, staging: Path, target: str = "cpu", verbose: bool = False) -> Built:
    made_for = Target.cpu() if target == "cpu" else Target.cuda(target)
    return compile_variant(Variant(spec, made_for), Toolchain.for_target(made_for), staging, verbose=verbose, jobs=2)


def read_by(built: Built) -> set[Path]:
    return {Path(path) for path in built.headers}


def symbols(library: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in out.stdout.splitlines()}


def needed(library: Path) -> str:
    out = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True)
    return out.stdout


class TestCpu:
    def test_a_library_has_its_exports_no_path_and_two_segments_and_what_was_read_is_reported(
        self, source: Path, staging: Path
    ) -> None:
        built = build(Spec("answer", cpp_files=[source]), staging)
        assert built.library == staging / "answer.so"
        ctypes.CDLL(str(tvm_ffi_library()))  # modules name it by soname: whoever loads one has it loaded
        assert hasattr(ctypes.CDLL(str(built.library)), "__tvm_ffi_answer")
        assert symbols(built.library) == {"__tvm_ffi_answer"}
        assert "RPATH" not in needed(built.library) and "RUNPATH" not in needed(built.library)
        out = subprocess.run(["readelf", "-lW", str(built.library)], capture_output=True, text=True, check=True)
        assert [line.split()[0] for line in out.stdout.splitlines() if "LOAD" in line] == ["LOAD", "LOAD"]
        assert "GNU_RELRO" not in out.stdout
        # Those of the code that all modules share, too.
        assert {source, source.parent / "answer.h", kjit_include() / "kjit" / "utils.cpp"} <= read_by(built)
        assert all(path.is_absolute() for path in read_by(built))

    def test_it_holds_what_its_exports_reach_and_keeps_the_names(self, source: Path, staging: Path) -> None:
        source.write_text("#include <cstdint>\nint64_t kept_name() { return 42; }\n")
        built = build(Spec("answer", cpp_files=[source], cpp_wrappers=[("answer", "::kept_name")]), staging)
        names = {
            file: subprocess.run(["nm", "-C", staging / file], capture_output=True, text=True, check=True).stdout
            for file in ("kjit_host.o", built.library.name)
        }
        assert "kept_name()" in names["answer.so"]  # for profilers and debuggers
        assert "kjit::host::details::Matching::" in names["kjit_host.o"]  # of TensorMatcher, which this op has not
        assert "kjit::host::details::Matching::" not in names["answer.so"]

    def test_a_unit_with_exports_may_not_leave_a_symbol_undefined_either(self, source: Path, staging: Path) -> None:
        source.write_text(
            "#include <cstdint>\nint other(int);\nint unused(int x) { return other(x); }\n"
            "int64_t answer() { return 42; }\n"
        )
        with pytest.raises(CompileError, match=r"undefined symbol: other\(int\)"):
            build(Spec("answer", cpp_files=[source], cpp_wrappers=[("answer", "::answer")]), staging)

    def test_nothing_is_left_in_the_temporary_folder(
        self, source: Path, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        build(Spec("answer", cpp_files=[source]), staging)
        assert list((tmp_path / "temporary").iterdir()) == []


class TestWrappers:
    def test_sources_are_included_into_one_unit_that_exports_the_wrappers(self, tmp_path: Path, staging: Path) -> None:
        header = tmp_path / "twice.h"
        header.write_text(
            "template <typename T, int kFactor> struct Twice { static T run(T x) { return x * kFactor; } };\n"
        )
        built = build(Spec("twice", cpp_files=[header], cpp_wrappers=[("twice", "Twice<double, 2>::run")]), staging)
        assert symbols(built.library) == {"__tvm_ffi_twice"}
        assert header in read_by(built)
        assert not any(path.parent == staging for path in read_by(built))

    def test_a_file_name_that_cpp_cannot_include_is_refused(self, tmp_path: Path, staging: Path) -> None:
        with pytest.raises(UsageError, match=r"C\+\+ cannot include"):
            build(Spec("op", cpp_files=[tmp_path / 'a"b.h'], cpp_wrappers=[("f", "f")]), staging)


class TestOddNames:
    def test_a_cpu_module_builds_from_and_in_folders_with_odd_names(self, source: Path, tmp_path: Path) -> None:
        home = tmp_path / ODD
        (home / "staging").mkdir(parents=True)
        (home / "include").mkdir()
        shutil.copy(source, home / "answer.cpp")
        (home / "include" / "answer.h").write_text("#define ANSWER 1\n")
        spec = Spec("answer", cpp_files=[home / "answer.cpp"], extra_include_paths=[home / "include"])
        built = build(spec, home / "staging")
        assert built.library.is_file()
        assert {home / "answer.cpp", home / "include" / "answer.h"} <= read_by(built)

    @pytest.mark.nvcc
    def test_a_cuda_module_builds_from_and_in_folders_with_odd_names(self, tmp_path: Path) -> None:
        home = tmp_path / ODD
        (home / "staging").mkdir(parents=True)
        (home / "include").mkdir()
        (home / "my kernel.cuh").write_text('#include "near.h"\n#include <far.h>\n' + KERNEL)
        (home / "near.h").write_text("// near\n")
        (home / "include" / "far.h").write_text("// far\n")
        spec = Spec("fill", cuda_files=[home / "my kernel.cuh"], extra_include_paths=[home / "include"])
        built = build(spec, home / "staging", "9.0a")
        assert built.library.is_file()
        assert {home / "my kernel.cuh", home / "near.h", home / "include" / "far.h"} <= read_by(built)

    def test_an_error_shows_the_real_name(self, tmp_path: Path, staging: Path) -> None:
        (tmp_path / ODD).mkdir()
        (tmp_path / ODD / "bad.cpp").write_text("int f() { return oops; }\n")
        with pytest.raises(CompileError) as caught:
            build(Spec("bad", cpp_files=[tmp_path / ODD / "bad.cpp"]), staging)
        place, _, words = caught.value.message.partition("bad.cpp:1:18: error: ")
        assert place.endswith(f"{ODD}/")
        assert "'oops'" in words

    def test_the_command_to_repeat_works_from_any_folder(self, tmp_path: Path, staging: Path) -> None:
        (tmp_path / ODD).mkdir()
        (tmp_path / ODD / "bad.h").write_text("inline int f() { return oops; }\n")
        with pytest.raises(CompileError) as caught:
            build(Spec("bad", cpp_files=[tmp_path / ODD / "bad.h"], cpp_wrappers=[("f", "f")]), staging)
        shutil.rmtree(staging)
        again = subprocess.run(["sh", "-c", caught.value.command], capture_output=True, text=True, check=False)
        assert again.returncode != 0
        assert "oops" in again.stderr


@pytest.mark.nvcc
class TestCuda:
    def test_it_reports_what_each_kernel_uses(self, tmp_path: Path, staging: Path) -> None:
        (tmp_path / "fill.cuh").write_text(KERNEL.replace("void launch", 'extern "C" void __tvm_ffi_launch'))
        built = build(Spec("fill", cuda_files=[tmp_path / "fill.cuh"]), staging, "9.0a")
        (kernel,) = built.resources
        assert (kernel.kernel, kernel.arch, kernel.shared) == ("fill", "sm_90a", 128)
        assert kernel.registers > 0
        assert built.warnings == ""
        assert "[libcudart.so." in needed(built.library)

    def test_cuda_and_cpp_sources_make_one_module(self, source: Path, tmp_path: Path, staging: Path) -> None:
        (tmp_path / "fill.cuh").write_text(KERNEL)
        source.write_text(
            "#include <cuda_runtime.h>\nvoid launch(float*);\n" + ANSWER + "void use() { launch(nullptr); }\n"
        )
        built = build(Spec("both", cpp_files=[source], cuda_files=[tmp_path / "fill.cuh"]), staging, "8.0")
        assert symbols(built.library) == {"__tvm_ffi_answer"}

    @pytest.mark.parametrize(
        ("type_name", "header"),
        [("bf16x2_t", "cuda_bf16.h"), ("float", None)],
    )
    def test_the_types_that_an_export_names_are_defined_and_no_others(
        self, type_name: str, header: str | None, tmp_path: Path, staging: Path
    ) -> None:
        (tmp_path / "size.cuh").write_text(
            "#include <kjit/device.cuh>\nnamespace kjit { template <typename T> int size() { return sizeof(T); } }\n"
        )
        spec = Spec("size", cuda_files=[tmp_path / "size.cuh"], cuda_wrappers=[("size", f"size<{type_name}>")])
        known = {"cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"}
        read = known & {path.name for path in read_by(build(spec, staging, "8.0"))}
        assert (header in read) if header else not read
        assert "cuda_bf16.h" not in read or header != "cuda_fp16.h"


class TestSupport:
    """The part of kjit that is compiled once and linked into every module."""

    @pytest.fixture
    def empty_cache(self, small_support: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = small_support.parent / "empty"
        monkeypatch.setenv("KJIT_CACHE_DIR", str(folder))
        return folder

    @pytest.fixture
    def kept_cache(self, empty_cache: Path, _shared_cache: Path, source: Path, tmp_path: Path) -> Path:
        """A cache that holds it, and nothing else."""
        begin(empty_cache, _shared_cache)
        shutil.rmtree(empty_cache / LAYOUT / "support")
        (tmp_path / "earlier").mkdir()
        build(Spec("answer", cpp_files=[source]), tmp_path / "earlier")
        return empty_cache

    def test_it_is_compiled_by_the_first_build_only(self, source: Path, staging: Path, empty_cache: Path) -> None:
        first = build(Spec("answer", cpp_files=[source]), staging)
        second = build(Spec("answer", cpp_files=[source]), staging)
        assert (len(first.commands), len(second.commands)) == (3, 2)
        assert list(empty_cache.glob(f"{LAYOUT}/support/*/kjit_host.o"))

    def test_it_is_kept_where_the_first_build_fails(self, source: Path, staging: Path, empty_cache: Path) -> None:
        (source.parent / "answer.h").write_text("#define ANSWER oops\n")
        with pytest.raises(CompileError, match="'oops'"):
            build(Spec("answer", cpp_files=[source]), staging)
        assert list(empty_cache.glob(f"{LAYOUT}/support/*/kjit_host.o"))
        (source.parent / "answer.h").write_text("#define ANSWER 1\n")
        assert len(build(Spec("answer", cpp_files=[source]), staging).commands) == 2

    @pytest.mark.parametrize("name", ["kjit_host.o", "kjit_host.o.d"])
    def test_a_truncated_one_is_compiled_again(self, source: Path, staging: Path, kept_cache: Path, name: str) -> None:
        (kept,) = kept_cache.glob(f"{LAYOUT}/support/*/{name}")
        whole = kept.read_bytes()
        kept.write_bytes(whole[: len(whole) // 2] if name.endswith(".o") else b"")
        build(Spec("answer", cpp_files=[source]), staging)
        assert kept.read_bytes() == whole

    @pytest.mark.parametrize("name", ["", "kjit_host.o"])
    def test_one_that_others_may_write_to_is_compiled_again_and_replaced(
        self, source: Path, staging: Path, kept_cache: Path, name: str
    ) -> None:
        (folder,) = kept_cache.glob(f"{LAYOUT}/support/*")
        (folder / name).chmod(0o777)
        assert len(build(Spec("answer", cpp_files=[source]), staging).commands) == 3
        assert not any(path.stat().st_mode & 0o022 for path in (folder, *folder.iterdir()))
        assert len(build(Spec("answer", cpp_files=[source]), staging).commands) == 2

    @pytest.mark.parametrize("inner", ["", f"{LAYOUT}/support"])
    def test_where_others_may_put_one_nothing_is_linked(
        self, source: Path, staging: Path, kept_cache: Path, inner: str
    ) -> None:
        (kept_cache / inner).chmod(0o777)
        with pytest.raises(CacheError, match="may be written by users other than its owner") as caught:
            build(Spec("answer", cpp_files=[source]), staging)
        assert f"`chmod -R go-w {kept_cache}`" in (caught.value.hint or "")


class TestFailures:
    def test_verbose_adds_the_whole_log_and_the_command(self, tmp_path: Path, staging: Path) -> None:
        (tmp_path / "bad.cpp").write_text("int f() { return oops; }\n")
        with pytest.raises(CompileError) as caught:
            build(Spec("bad", cpp_files=[tmp_path / "bad.cpp"]), staging, verbose=True)
        assert caught.value.log.strip() in caught.value.message
        assert caught.value.command in caught.value.message

    def test_a_failed_link_is_repeated_from_its_sources(self, tmp_path: Path, staging: Path) -> None:
        (tmp_path / "bad.cpp").write_text('extern "C" int other(int);\nint __tvm_ffi_f(int x) { return other(x); }\n')
        with pytest.raises(CompileError) as caught:
            build(Spec("bad", cpp_files=[tmp_path / "bad.cpp"]), staging)
        again = subprocess.run(["sh", "-c", caught.value.command], capture_output=True, text=True, check=False)
        assert "undefined reference to `other'" in again.stderr

    def fake_compiler(self, folder: Path, body: str) -> Toolchain:
        """The CPU toolchain with a shell script in the compiler's place."""
        program = folder / "fake-c++"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        real = Toolchain.for_target(Target.cpu())
        return replace(real, cxx=replace(real.cxx, path=program))

    def fail(self, toolchain: Toolchain, source: Path, staging: Path) -> pytest.ExceptionInfo[Exception]:
        with pytest.raises((CompileError, ToolchainError, CacheError)) as caught:
            compile_variant(Variant(Spec("answer", cpp_files=[source]), Target.cpu()), toolchain, staging)
        return caught

    def test_a_full_disk_is_one_sentence_with_the_folders_that_were_written_to(
        self, source: Path, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "other").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))
        words = "fatal error: error writing to answer.s: No space left on device"
        caught = self.fail(self.fake_compiler(tmp_path, f"echo '{words}' >&2; exit 1"), source, staging)
        assert isinstance(caught.value, CacheError)
        assert caught.value.message.startswith(f"No space is left on the disk to compile in '{staging}")
        assert f"(or in '{tmp_path / 'other'}', where compilers keep temporary files)" in caught.value.message

    def test_a_compiler_that_dies_without_a_word_is_no_riddle(
        self, source: Path, staging: Path, tmp_path: Path
    ) -> None:
        caught = self.fail(self.fake_compiler(tmp_path, "kill -9 $$"), source, staging)
        assert "The compiler ended without a message" in str(caught.value)
