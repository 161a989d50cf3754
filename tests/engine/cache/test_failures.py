"""kjit.engine.cache.failures: a process does not repeat a failed compile, unless it may succeed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import Forks

from kjit.engine import builder
from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.programs import find_ninja
from kjit.errors import CompileError, KjitError
from kjit.runtime import LAYOUT
from kjit.spec import CudaArch, Spec, Target, Variant

WriteOp = Callable[..., Spec]
Compiles = list[Variant]


@pytest.fixture(scope="module", autouse=True)
def _needs_ninja() -> None:
    version = subprocess.run([find_ninja(), "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, version.split(".")[:2])) < (1, 13):
        pytest.skip(f"needs ninja 1.13, which says how a command has ended, and there is {version.strip()}")


@pytest.fixture
def store(cache_dir: Path) -> Store:
    del cache_dir
    return Store.open()


@pytest.fixture
def broken(tmp_path: Path, answer_op: WriteOp) -> Variant:
    """An op whose header makes it not compile."""
    variant = Variant(answer_op(tmp_path / "project"), Target.cpu())
    header_of(variant).write_text("#define ANSWER oops\n")
    return variant


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """The variants that have been compiled."""
    compiled: Compiles = []

    def count(variant: Variant, *args: object, **options: object) -> object:
        compiled.append(variant)
        return compile_variant(variant, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builder, "compile_variant", count)
    return compiled


def header_of(variant: Variant) -> Path:
    return Path(variant.spec.cpp_files[0]).with_suffix(".h")


def fail(variant: Variant, store: Store, *, verbose: bool = False) -> CompileError:
    with pytest.raises(CompileError) as caught:
        build(variant, store, verbose=verbose)
    return caught.value


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that puts a program of these lines before compile commands."""

    def write(lines: str) -> None:
        path = tmp_path / "launcher"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        monkeypatch.setenv("KJIT_COMPILER_LAUNCHER", str(path))

    return write


CLANG = next(filter(shutil.which, ("clang++", "clang++-19", "clang++-16")), None)
needs_clang = pytest.mark.skipif(CLANG is None, reason="needs clang++")
COMPILERS = [
    "g++",
    pytest.param("clang++", marks=needs_clang),
    "sim",
    pytest.param("nvcc", marks=pytest.mark.nvcc),
]


def without_header(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "nothere.h") -> Variant:
    """An op for one of the four kinds of compiler that includes `name` from a header in a folder of its own."""
    folder = tmp_path / "the project"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "has.h").write_text(f'#include "{name}"\n')
    source = folder / ("op.cu" if side in ("sim", "nvcc") else "op.cpp")
    source.write_text('#include <kjit/ffi.h>\n#include "inner/has.h"\nKJIT_EXPORT(f, [](int64_t x) { return x; })\n')
    more: dict[str, Any] = {"extra_include_paths": [str(tmp_path / "include"), str(tmp_path / "later")]}
    (tmp_path / "include").mkdir()
    if side in ("sim", "nvcc"):
        target = Target.sim() if side == "sim" else Target.cuda(CudaArch(9, 0, "a"))
        return Variant(Spec("op", cuda_files=[source], **more), target)
    monkeypatch.setenv("CXX", str(CLANG) if side == "clang++" else side)
    return Variant(Spec("op", cpp_files=[source], **more), Target.cpu())


def compiled_by_another_process(variant: Variant, forked: Forks) -> str:
    """The error in another process, after whether it is a repeated one there."""
    script = f"""
import kjit
try:
    kjit.load_jit("answer", cpp_files=[{variant.spec.cpp_files[0]!r}])
except kjit.CompileError as error:
    print(error.is_repeated, error.message, end="")
"""
    return forked.run(script).stdout


class TestAgain:
    def test_it_is_not_compiled_and_the_error_is_the_same(
        self, store: Store, broken: Variant, compiles: Compiles
    ) -> None:
        first, second = fail(broken, store), fail(broken, store)
        assert len(compiles) == 1
        assert "'oops'" in first.message
        assert (second.message, second.hint, second.log, second.command) == (
            first.message,
            first.hint,
            first.log,
            first.command,
        )
        assert (first.is_repeated, second.is_repeated) == (False, True)

    def test_more_of_it_can_be_asked_for(self, store: Store, broken: Variant) -> None:
        fail(broken, store)
        assert "the compiler's whole output:" in fail(broken, store, verbose=True).message

    def test_paths_are_shown_from_where_the_process_is(
        self, store: Store, broken: Variant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail(broken, store)
        monkeypatch.chdir(header_of(broken).parent)
        # g++ names the macro, clang its use.
        assert re.search(r"\nanswer\.(h:1|cpp:6):16: error", fail(broken, store).message)

    def test_nor_is_it_where_it_does_not_link(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, compiles: Compiles
    ) -> None:
        variant = Variant(answer_op(tmp_path / "project"), Target.cpu())
        header_of(variant).write_text("long elsewhere();\n#define ANSWER elsewhere()\n")
        first, second = fail(variant, store), fail(variant, store)
        assert (len(compiles), second.message, second.is_repeated) == (1, first.message, True)
        assert "does not link" in first.message
        fix_header(variant)
        assert build(variant, store).state == "built"

    @pytest.mark.nvcc
    def test_a_cuda_kernel_is_not_compiled_again_either(self, store: Store, tmp_path: Path, compiles: Compiles) -> None:
        source = tmp_path / "kernel.cu"
        source.write_text("__global__ void kernel(int* out) { *out = oops; }\n")
        variant = Variant(Spec("kernel", cuda_files=[source]), Target.cuda(CudaArch(9, 0, "a")))
        first, second = fail(variant, store), fail(variant, store)
        assert (len(compiles), second.message) == (1, first.message)


def fix_header(variant: Variant) -> None:
    header_of(variant).write_text("#define ANSWER 1\n")


def fix_source(variant: Variant) -> None:
    source = Path(variant.spec.cpp_files[0])
    source.write_text(source.read_text().replace("ANSWER", "1"))


def touch_header(variant: Variant) -> None:
    os.utime(header_of(variant))


def add_header_before(variant: Variant) -> None:
    # Searched before the folder of the source, where `tvm/ffi/c_api.h` is looked for first.
    folder = header_of(variant).parent / "tvm" / "ffi"
    folder.mkdir(parents=True)
    (folder / "c_api.h").write_text("#error\n")


class TestChanged:
    @pytest.mark.parametrize("fix", [fix_header, fix_source])
    def test_what_was_fixed_is_built(self, store: Store, broken: Variant, fix: Callable[[Variant], None]) -> None:
        fail(broken, store)
        fail(broken, store)
        fix(broken)
        assert build(broken, store).state == "built"

    @pytest.mark.parametrize("change", [touch_header, add_header_before])
    def test_what_may_have_changed_is_compiled_again(
        self, store: Store, broken: Variant, compiles: Compiles, change: Callable[[Variant], None]
    ) -> None:
        fail(broken, store)
        change(broken)
        fail(broken, store)
        assert len(compiles) == 2

    def test_the_same_op_in_another_folder_has_an_error_with_its_own_paths(
        self, store: Store, broken: Variant, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        fail(broken, store)
        clone = Variant(answer_op(tmp_path / "clone"), Target.cpu())
        header_of(clone).write_text("#define ANSWER oops\n")
        error = fail(clone, store)
        assert str(tmp_path / "clone") in error.log
        assert str(tmp_path / "project") not in error.log

    def test_with_another_launcher_it_is_compiled_again(
        self, store: Store, broken: Variant, compiles: Compiles, launch: Callable[[str], None]
    ) -> None:
        fail(broken, store)
        launch('exec "$@"')
        fail(broken, store)
        assert len(compiles) == 2

    @pytest.mark.parametrize(
        ("side", "cause"),
        [
            ("g++", "a link to itself"),
            ("g++", "a link to nowhere"),
            ("g++", "a folder"),
            ("g++", "no permission"),
            pytest.param("clang++", "a link to itself", marks=[pytest.mark.nightly, needs_clang]),
            pytest.param("sim", "a link to itself", marks=pytest.mark.nightly),
            pytest.param("nvcc", "a link to itself", marks=[pytest.mark.nightly, pytest.mark.nvcc]),
        ],
    )
    def test_a_header_that_could_not_be_read_is_read_once_it_can(
        self, side: str, cause: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variant = without_header(side, tmp_path, monkeypatch)
        header = tmp_path / "the project" / "nothere.h"
        if cause == "no permission":
            if os.geteuid() == 0:
                pytest.skip("root can read every file")
            header.write_text("")
            header.chmod(0)
        elif cause == "a folder":
            header.mkdir()
        else:
            header.symlink_to(header if cause == "a link to itself" else "nowhere.h")
        monkeypatch.setenv("CPATH", str(header.parent))
        fail(variant, store)
        fail(variant, store)
        if cause == "no permission":
            header.chmod(0o600)
        elif cause == "a link to nowhere":
            header.with_name("nowhere.h").write_text("")
        else:
            header.rmdir() if cause == "a folder" else header.unlink()
            header.write_text("")
        assert build(variant, store).state == "built"

    def test_a_file_that_inline_assembly_lacked_is_read_once_it_is_there(
        self, store: Store, broken: Variant, tmp_path: Path
    ) -> None:
        data = tmp_path / "data.bin"
        header_of(broken).write_text(f'asm(".incbin \\"{data}\\"");\n#define ANSWER 1\n')
        fail(broken, store)
        fail(broken, store)
        data.write_text("")
        assert build(broken, store).state == "built"


class TestNotRemembered:
    def test_by_another_process(self, store: Store, broken: Variant, forked: Forks) -> None:
        first = fail(broken, store)
        assert compiled_by_another_process(broken, forked) == f"False {first.message}"

    def test_in_the_cache(self, store: Store, broken: Variant) -> None:
        fail(broken, store)
        assert {path.name for path in (store.root / LAYOUT).iterdir()} & {"failures", "cpu"} == set()

    @pytest.mark.usefixtures("small_support")
    @pytest.mark.parametrize("side", COMPILERS)
    def test_a_missing_header(
        self, side: str, store: Store, tmp_path: Path, compiles: Compiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may appear in any folder."""
        variant = without_header(side, tmp_path, monkeypatch)
        assert "nothere.h" in fail(variant, store).message
        fail(variant, store)
        assert len(compiles) == 2

    def test_a_library_that_is_not_installed(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, compiles: Compiles
    ) -> None:
        variant = Variant(answer_op(tmp_path / "project", extra_ldflags=["-lnowhere"]), Target.cpu())
        fail(variant, store)
        fail(variant, store)
        assert len(compiles) == 2

    @pytest.mark.parametrize(
        "lines",
        [
            '"$@"; echo "cc1plus: out of memory allocating 65536 bytes"; exit 1',
            '"$@"; echo "virtual memory exhausted: Cannot allocate memory"; exit 1',
            '"$@"; echo "c++: fatal error: Killed signal terminated program cc1plus"; exit 1',
            '"$@"; echo "answer.cpp:3:1: internal compiler error: Segmentation fault"; exit 1',
            '"$@"; kill -9 $$',
            'echo "sccache: error: Server startup failed"; exit 2',
        ],
    )
    def test_what_may_pass(
        self, store: Store, broken: Variant, compiles: Compiles, launch: Callable[[str], None], lines: str
    ) -> None:
        launch(lines)
        fail(broken, store)
        assert not fail(broken, store).is_repeated
        assert len(compiles) == 2

    def test_a_full_disk(
        self, store: Store, broken: Variant, compiles: Compiles, launch: Callable[[str], None]
    ) -> None:
        launch('"$@"; echo "error writing to /tmp/ccA.s: No space left on device"; exit 1')
        for _ in range(2):
            with pytest.raises(KjitError, match="No space is left"):
                build(broken, store)
        assert len(compiles) == 2

    def test_what_changed_while_the_compiler_ran(
        self, store: Store, broken: Variant, compiles: Compiles, launch: Callable[[str], None]
    ) -> None:
        launch(f'"$@"; status=$?; echo "#define ANSWER 1" >{header_of(broken)}; exit $status')
        fail(broken, store)
        header_of(broken).write_text("#define ANSWER oops\n")
        assert not fail(broken, store).is_repeated
        assert len(compiles) == 2
