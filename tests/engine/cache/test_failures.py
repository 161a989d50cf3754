"""kjit.engine.cache.failures: a process does not repeat a failed compile, unless it may succeed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.engine import builder
from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.programs import find_ninja
from kjit.errors import CompileError
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

    def test_a_header_that_comes_before_another_is_read(
        self, store: Store, broken: Variant, compiles: Compiles
    ) -> None:
        fail(broken, store)
        add_header_before(broken)
        fail(broken, store)
        assert len(compiles) == 2


class TestNotRemembered:
    @pytest.mark.parametrize("lacks", ["header", "library"])
    def test_what_is_not_installed(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, compiles: Compiles, lacks: str
    ) -> None:
        """It may appear in any folder."""
        flags = ["-lnowhere"] if lacks == "library" else []
        variant = Variant(answer_op(tmp_path / "project", extra_ldflags=flags), Target.cpu())
        if lacks == "header":
            header_of(variant).write_text('#include "nothere.h"\n')
        fail(variant, store)
        fail(variant, store)
        assert len(compiles) == 2

    @pytest.mark.parametrize(
        "lines",
        [
            '"$@"; echo "cc1plus: out of memory allocating 65536 bytes"; exit 1',
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

    def test_what_changed_while_the_compiler_ran(
        self, store: Store, broken: Variant, compiles: Compiles, launch: Callable[[str], None]
    ) -> None:
        launch(f'"$@"; status=$?; echo "#define ANSWER 1" >{header_of(broken)}; exit $status')
        fail(broken, store)
        header_of(broken).write_text("#define ANSWER oops\n")
        assert not fail(broken, store).is_repeated
        assert len(compiles) == 2
