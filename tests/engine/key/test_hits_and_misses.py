"""All rules about hits and misses, on the whole path: key, look-up, compile, loaded module.

`road.ask()` says what a program would see: whether the module had to be built, and what it answers. How these keys and
records work in detail is in test_key.py and test_recorded_headers.py; tools/oracle.py tries edits at random.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kjit.engine import builder
from kjit.engine.cache.store import Store
from kjit.engine.compile import compile as compile_module
from kjit.engine.key.key import Key
from kjit.engine.outcomes import Started
from kjit.engine.toolchain import toolchain
from kjit.engine.toolchain.build_flags import cxx_flags
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime import manifest
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()
HIT = "hit"
BUILT = "built"


@dataclass
class Road:
    """An op in a project, and a cache. The files that matter are `source` and `header`."""

    project: Path
    write_op: WriteOp
    cache: Path

    def __post_init__(self) -> None:
        self.write_op(self.project)

    @property
    def source(self) -> Path:
        return self.project / "csrc" / "answer.cpp"

    @property
    def header(self) -> Path:
        return self.project / "csrc" / "answer.h"

    def ask(self, project: Path | None = None, **parts: Any) -> tuple[str, int]:
        """`("hit" or "built", the number that the module answers)`."""
        variant = self.variant(project, **parts)
        recalled = manifest.find(variant, str(self.cache))
        outcome = builder.build(variant, Store.open())
        if recalled is not None:  # then it says what the key says
            assert outcome.artifact is not None
            assert (outcome.state, outcome.artifact.path) == (HIT, recalled)
        return outcome.state, load_variant(variant).answer()

    def variant(self, project: Path | None = None, **parts: Any) -> Variant:
        args = parts.pop("args", ())
        source = (project or self.project) / "csrc" / "answer.cpp"
        return Variant(Spec("answer", *args, cpp_files=[source], **parts), CPU)

    def key(self, **parts: Any) -> str:
        """Two that are different are a miss."""
        return Key.of(self.variant(**parts), Toolchain.for_target(CPU)).key1


@pytest.fixture
def unbuilt(tmp_path: Path, answer_op: WriteOp, cache_dir: Path) -> Road:
    """An op that is not built yet."""
    return Road(tmp_path / "project", answer_op, cache_dir)


@pytest.fixture
def road(unbuilt: Road) -> Road:
    """An op that is built and answers 42."""
    assert unbuilt.ask() == (BUILT, 42)
    return unbuilt


def answer(number: int) -> str:
    return f"#define ANSWER {number}\n"


def include(road: Road, what: str) -> None:
    road.source.write_text(road.source.read_text().replace('"answer.h"', what))


def make_library(road: Road, path: Path, number: int) -> None:
    """Have the op answer with what a static library says, and make one that says `number`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = road.source.read_text()
    if "more()" not in text:
        road.source.write_text('extern "C" int more();\n' + text.replace("= ANSWER", "= more()"))
    source = path.with_suffix(".cpp")
    source.write_text(f'extern "C" int more() {{ return {number}; }}\n')
    cxx = Toolchain.for_target(CPU).cxx.path
    subprocess.run([cxx, "-fPIC", "-c", source, "-o", path.with_suffix(".o")], check=True)
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rc", path, path.with_suffix(".o")], check=True)


class TestFilesThatDidNotChange:
    def test_touching_the_source_and_a_header_is_a_hit(self, road: Road) -> None:
        for path in (road.source, road.header):
            os.utime(path)
        assert road.ask() == (HIT, 42)

    def test_a_reverted_edit_of_a_header_is_a_hit_and_so_is_the_edit_again(self, road: Road) -> None:
        road.header.write_text(answer(43))
        assert road.ask() == (BUILT, 43)
        road.header.write_text(answer(42))
        assert road.ask() == (HIT, 42)
        road.header.write_text(answer(43))
        assert road.ask() == (HIT, 43)


class TestOtherPlaces:
    def test_container_layers_whose_files_have_one_date_are_compared_by_content(
        self, road: Road, tmp_path: Path
    ) -> None:
        layer = shutil.copytree(road.project, tmp_path / "layer")
        newer = shutil.copytree(road.project, tmp_path / "newer")
        (newer / "csrc" / "answer.h").write_text(answer(43))
        for each in (layer, newer):
            give_one_date(each)
        replace_by(layer, road.project)
        assert road.ask() == (HIT, 42)
        replace_by(newer, road.project)
        assert road.ask() == (BUILT, 43)

    def test_a_restored_cache_is_a_hit(self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        subprocess.run(["cp", "-r", road.cache, tmp_path / "restored"], check=True)
        (tmp_path / "restored").chmod(0o700)
        monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "restored"))
        assert road.ask() == (HIT, 42)


def replace_by(other: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    other.rename(folder)


def give_one_date(folder: Path) -> None:
    """As archives, images and package stores do that can be made again bit by bit."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1, 1))


class TestEdits:
    def test_a_header_changed_to_the_same_size_under_its_old_date_is_a_miss(self, road: Road) -> None:
        date = road.header.stat().st_mtime_ns
        road.header.write_text(answer(43))
        os.utime(road.header, ns=(date, date))
        assert road.ask() == (BUILT, 43)

    def test_edits_within_one_process_are_loaded_beside_the_old_module(self, road: Road) -> None:
        old = load_variant(road.variant())
        road.header.write_text(answer(43))
        new = load_variant(road.variant())
        assert (old.answer(), new.answer()) == (42, 43)


class TestNewFiles:
    def test_a_header_that_newly_comes_before_one_of_the_system_is_a_miss(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CPATH", str(tmp_path / "more"))
        (tmp_path / "more").mkdir()
        road.header.write_text(f"#include <stdint.h>\n#ifndef ANSWER\n{answer(42)}#endif\n")
        assert road.ask() == (BUILT, 42)
        (tmp_path / "more" / "stdint.h").write_text(f"{answer(43)}#include_next <stdint.h>\n")
        assert road.ask() == (BUILT, 43)

    def test_a_precompiled_header_that_newly_comes_before_a_header_is_a_miss(self, road: Road) -> None:
        text = road.header.read_text()
        road.header.write_text(answer(43))
        flags = cxx_flags(Toolchain.for_target(CPU), road.variant().spec)
        command = [Toolchain.for_target(CPU).cxx.path, *flags, "-x", "c++-header", road.header]
        assert road.ask() == (BUILT, 43)
        subprocess.run([*command, "-o", road.header.parent / "answer.h.gch"], check=True)
        road.header.write_text(text)
        assert road.ask()[0] == BUILT


class TestEachWayToAHeader:
    """`answer.h` is found in a way of the compiler's, and edited."""

    @pytest.mark.parametrize(
        "way",
        ["macro", "through a link", "CPATH", "nested @file", "-include", "-DPATH", "-iprefix", "CXX"],
    )
    def test_an_edit_is_noticed(
        self,
        unbuilt: Road,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        request: pytest.FixtureRequest,
        way: str,
    ) -> None:
        folder = tmp_path / "inc"
        (folder / "deep").mkdir(parents=True)
        header = unbuilt.header.rename(folder / "answer.h")
        parts: dict[str, list[str]] = {}
        if way in ("CPATH", "CXX"):
            request.getfixturevalue("small_support")
        if way == "macro":
            unbuilt.source.write_text(f'#define PLACE "{header}"\n{unbuilt.source.read_text()}')
        elif way == "through a link":
            (unbuilt.source.parent / "link").symlink_to(folder / "deep")
            include(unbuilt, '"link/../answer.h"')
        elif way == "CPATH":
            monkeypatch.setenv("CPATH", str(folder))
        elif way == "nested @file":
            (tmp_path / "outer").write_text(f"@{tmp_path}/options")
            (tmp_path / "options").write_text(f'-isystem "{folder}"\n')
            parts = {"extra_cflags": [f"@{tmp_path}/outer"]}
        elif way == "-include":
            include(unbuilt, "<stdint.h>")
            parts = {"extra_cflags": ["-include", str(header)]}
        elif way == "-DPATH":
            parts = {"extra_cflags": [f'-DPLACE="{header}"']}
        elif way == "-iprefix":
            parts = {"extra_cflags": ["-iprefix", f"{tmp_path}/", "-iwithprefix", "inc"]}
        elif way == "CXX":
            script = tmp_path / "c++"
            script.write_text(f'#!/bin/sh\nexec {Toolchain.for_target(CPU).cxx.path} -I{folder} "$@"\n')
            script.chmod(0o755)
            monkeypatch.setenv("CXX", str(script))
        if way in ("macro", "-DPATH"):
            include(unbuilt, "PLACE")
        assert [unbuilt.ask(**parts) for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        header.write_text(answer(43))
        assert unbuilt.ask(**parts) == (BUILT, 43)

    @pytest.mark.parametrize("name", ["x\\ y.h", "#c:d.h", "$it's.h"])
    def test_a_header_may_be_called_whatever_an_include_can_say(self, unbuilt: Road, name: str) -> None:
        include(unbuilt, f'"{name}"')
        header = unbuilt.header.rename(unbuilt.header.with_name(name))
        assert [unbuilt.ask() for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        header.write_text(answer(43))
        assert unbuilt.ask() == (BUILT, 43)

    def test_of_two_headers_that_are_alike_both_are_compared(self, unbuilt: Road) -> None:
        # GCC reads the second one and does not list it.
        text = "#pragma once\n#ifndef ANSWER\n#define ANSWER 42\n#endif\n"
        unbuilt.header.write_text('#include "a/x.h"\n#include "b/x.h"\n')
        for folder in ("a", "b"):
            path = unbuilt.header.parent / folder / "x.h"
            path.parent.mkdir()
            path.write_text(text)
            os.utime(path, (1, 1))
        assert unbuilt.ask() == (BUILT, 42)
        path.write_text("#undef ANSWER\n#define ANSWER 43\n")
        assert unbuilt.ask() == (BUILT, 43)


class TestLinks:
    def test_a_link_that_leads_nowhere_is_a_hit_until_it_leads_somewhere(self, road: Road, tmp_path: Path) -> None:
        early, late = tmp_path / "early", tmp_path / "late"
        for folder in (early, late):
            folder.mkdir()
        road.header.rename(late / "answer.h")
        (early / "answer.h").symlink_to(tmp_path / "nowhere.h")
        assert [road.ask(extra_include_paths=[early, late]) for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        (tmp_path / "nowhere.h").write_text(answer(43))
        assert road.ask(extra_include_paths=[early, late]) == (BUILT, 43)

    def test_a_source_that_is_a_link_is_read_where_it_points(self, road: Road, tmp_path: Path) -> None:
        real = tmp_path / "real.cpp"
        road.source.rename(real)
        road.source.symlink_to(real)
        assert road.ask() == (HIT, 42)  # the header is still the one beside the link
        real.write_text(real.read_text().replace("= ANSWER", "= ANSWER + 1"))
        assert road.ask() == (BUILT, 43)


class TestOtherInputs:
    def test_a_changed_static_library_is_a_miss(self, road: Road) -> None:
        folder = road.project / "lib"
        make_library(road, folder / "libmore.a", 42)
        for flags in ([f"-L{folder}", "-lmore"], ["-L", str(folder), "-l:libmore.a"], [str(folder / "libmore.a")]):
            make_library(road, folder / "libmore.a", 42)
            assert road.ask(extra_ldflags=flags) == (BUILT, 42)
            make_library(road, folder / "libmore.a", 43)
            assert road.ask(extra_ldflags=flags) == (BUILT, 43)

    @pytest.mark.usefixtures("small_support")
    def test_a_static_library_that_a_variable_leads_to_is_a_miss_when_it_changes(
        self, road: Road, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = road.project / "lib"
        make_library(road, folder / "libmore.a", 42)
        monkeypatch.setenv("LIBRARY_PATH", str(folder))
        assert road.ask(extra_ldflags=["-lmore"]) == (BUILT, 42)
        assert road.ask(extra_ldflags=["-lmore"]) == (HIT, 42)
        make_library(road, folder / "libmore.a", 43)
        assert road.ask(extra_ldflags=["-lmore"]) == (BUILT, 43)

    def test_a_static_library_that_newly_comes_before_another_is_a_miss_until_it_goes(self, road: Road) -> None:
        first, second = road.project / "first", road.project / "second"
        make_library(road, second / "libmore.a", 42)
        flags = [f"-L{first}", f"-L{second}", "-lmore"]
        assert road.ask(extra_ldflags=flags) == (BUILT, 42)
        make_library(road, first / "libmore.a", 43)
        assert road.ask(extra_ldflags=flags) == (BUILT, 43)
        shutil.rmtree(first)
        assert road.ask(extra_ldflags=flags) == (HIT, 42)

    @pytest.mark.nvcc
    def test_a_changed_file_of_options_that_a_variable_names_for_nvcc_is_a_miss(
        self, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del cache_dir
        options, source = tmp_path / "options.txt", tmp_path / "op.cu"
        source.write_text('extern "C" __global__ void kernel(int* x) { *x = MORE; }\n')
        monkeypatch.setenv("NVCC_APPEND_FLAGS", f"-optf {options}")
        variant = Variant(Spec("op", cuda_files=[source]), Target.cuda("9.0a"))
        states = []
        for more in ("1", "1", "2"):
            options.write_text(f"-DMORE={more}\n")
            states.append(builder.build(variant, Store.open()).state)
        assert states == [BUILT, HIT, BUILT]


class TestEnvironment:
    @pytest.mark.parametrize(
        "variable",
        [
            *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
            *("SOURCE_DATE_EPOCH", "CXX"),
        ],
    )
    def test_a_variable_that_the_cpp_compiler_reads_makes_another_key(
        self, unbuilt: Road, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        cxx = Toolchain.for_target(CPU).cxx.path
        before = unbuilt.key()
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(cxx) if variable == "CXX" else "/somewhere")
            assert unbuilt.key() != before
        assert unbuilt.key() == before

    @pytest.mark.nvcc
    @pytest.mark.parametrize(
        "variable", ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CXX"]
    )
    def test_a_variable_that_nvcc_reads_makes_another_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        first, made = cuda_key(tmp_path)
        assert made.cuda is not None
        value = {"CUDA_HOME": str(made.cuda.home), "CXX": str(made.cxx.path)}.get(variable, "-DX")
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            other, _ = cuda_key(tmp_path)
        again, _ = cuda_key(tmp_path)
        assert first.key1 == again.key1 != other.key1

    @pytest.mark.nvcc
    def test_a_variable_that_would_change_a_build_and_is_in_no_key_does_not_reach_nvcc(
        self, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del cache_dir
        for name in ("INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "PTXAS_FLAGS", "CUDAFE_FLAGS"):
            monkeypatch.setenv(name, "--no-such-flag")
        (tmp_path / "op.cu").write_text("__global__ void op() {}\n")
        variant = Variant(Spec("op", cuda_files=[tmp_path / "op.cu"]), Target.cuda("9.0a"))
        assert builder.build(variant, Store.open()).state == BUILT


@pytest.mark.usefixtures("small_support")
class TestCompilers:
    def test_another_compiler_is_a_miss_and_the_first_one_again_a_hit(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        road.source.write_text(f"#ifndef MORE\n#define MORE 0\n#endif\n{road.source.read_text()}")
        road.source.write_text(road.source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        make_compiler(tmp_path / "c++", 1)
        for cxx, state, number in ((None, BUILT, 42), (tmp_path / "c++", BUILT, 43), (None, HIT, 42)):
            with monkeypatch.context() as patch:
                if cxx is not None:
                    patch.setenv("CXX", str(cxx))
                assert road.ask() == (state, number)

    def test_a_compiler_that_was_replaced_under_its_name_is_a_miss(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        road.source.write_text(road.source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        monkeypatch.setenv("CXX", str(tmp_path / "c++"))
        make_compiler(tmp_path / "c++", 1)
        assert road.ask() == (BUILT, 43)
        make_compiler(tmp_path / "c++", 2)
        assert road.ask() == (BUILT, 44)

    def test_another_assembler_on_path_is_a_miss_and_without_it_again_a_hit(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if find_cxx().family == "clang":  # which has an assembler of its own
            monkeypatch.setenv("CXX", "g++")
            assert road.ask() == (BUILT, 42)
        command = [find_cxx().path, "-print-prog-name=as"]
        own = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if Path(own).is_absolute():
            pytest.skip(f"this g++ always runs {own}")
        real = shutil.which("as")
        assert real is not None
        (tmp_path / "as").write_text(f'#!/bin/sh\nexec {real} "$@"\n')
        (tmp_path / "as").chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            key = Key.of(road.variant(), Toolchain.for_target(CPU))
            assert Store.open().find(key).reason == f"'{key_cxx(key)}' runs another as"
            assert road.ask() == (BUILT, 42)
        assert road.ask() == (HIT, 42)

    def test_a_script_that_calls_another_compiler_than_before_is_a_miss(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        road.source.write_text(road.source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        script = tmp_path / "c++"
        script.write_text(f'#!/bin/sh\nexec {tmp_path}/real "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        for number in (1, 2):
            make_compiler(tmp_path / "real", number)
            toolchain._discover.cache_clear()  # as a new process would begin
            assert [road.ask() for _ in range(2)] == [(BUILT, 42 + number), (HIT, 42 + number)]

    def test_a_variable_that_a_script_adds_to_its_command_is_part_of_the_key(
        self, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        road.source.write_text(road.source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        make_compiler(tmp_path / "c++", "${HOW_MUCH_MORE:-1}")
        monkeypatch.setenv("CXX", str(tmp_path / "c++"))
        assert road.ask() == (BUILT, 43)
        monkeypatch.setenv("HOW_MUCH_MORE", "2")
        assert road.ask() == (BUILT, 44)
        monkeypatch.delenv("HOW_MUCH_MORE")
        assert road.ask() == (HIT, 43)

    @pytest.mark.nvcc
    @pytest.mark.parametrize("field", ["path", "size", "mtime_ns", "version_text"])
    def test_another_host_compiler_for_nvcc_makes_another_key(self, tmp_path: Path, field: str) -> None:
        first, made = cuda_key(tmp_path)
        other: Any = {"path": Path("/other/c++"), "size": 1, "mtime_ns": 1, "version_text": "another"}[field]
        replaced = replace(made, cxx=replace(made.cxx, **{field: other}))
        assert Key.of(first.variant, replaced).key1 != first.key1


def key_cxx(key: Key) -> object:
    """The path of the C++ compiler in a key."""
    identity: Any = key.inputs["toolchain"]
    return identity["cxx"]["path"]


def make_compiler(path: Path, more: int | str) -> None:
    """A C++ compiler of our own, which defines a macro."""
    real = shutil.which("g++") or shutil.which("clang++")
    path.unlink(missing_ok=True)
    path.write_text(f'#!/bin/sh\nexec {real} -DMORE={more} "$@"\n')
    path.chmod(0o755)


def cuda_key(folder: Path, arch: str = "9.0a") -> tuple[Key, Toolchain]:
    (folder / "op.cuh").write_text("\n")
    made = Toolchain.for_target(Target.cuda(arch))
    return Key.of(Variant(Spec("op", cuda_files=[folder / "op.cuh"]), made.target), made), made


class TestDuringTheBuild:
    @pytest.fixture
    def during(self, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
        """Actions to run at the end of each later compile."""
        actions: list[Callable[[], object]] = []
        real = compile_module.compile_variant

        def compile_variant(*args: Any, **kwargs: Any) -> Any:
            built = real(*args, **kwargs)
            if actions:
                actions.pop(0)()
            return built

        monkeypatch.setattr(builder, "compile_variant", compile_variant)
        return actions

    def test_a_header_that_is_edited_is_compiled_again(self, unbuilt: Road, during: list[Callable[[], object]]) -> None:
        during.append(lambda: unbuilt.header.write_text(answer(43)))
        assert unbuilt.ask() == (BUILT, 43)
        assert during == []
        assert len(list(Store.open().entries())) == 1

    def test_a_source_that_is_edited_is_compiled_again_under_its_new_key(
        self, unbuilt: Road, during: list[Callable[[], object]]
    ) -> None:
        during.append(lambda: unbuilt.source.write_text(unbuilt.source.read_text() + "\n"))
        assert unbuilt.ask() == (BUILT, 42)
        assert len(list(Store.open().entries())) == 1
        assert unbuilt.ask() == (HIT, 42)

    def test_a_header_that_is_edited_and_reverted_is_compiled_again(
        self, unbuilt: Road, during: list[Callable[[], object]]
    ) -> None:
        started: list[Started] = []

        def there_and_back() -> None:
            text = unbuilt.header.read_text()
            unbuilt.header.write_text(answer(43))
            unbuilt.header.write_text(text)

        during.append(there_and_back)
        builder.build(unbuilt.variant(), Store.open(), on_start=started.append)
        assert len(started) == 2
        assert unbuilt.ask() == (HIT, 42)

    def test_a_folder_that_is_exchanged_as_in_a_deployment_is_compiled_again(
        self, unbuilt: Road, during: list[Callable[[], object]]
    ) -> None:
        newer = shutil.copytree(unbuilt.project / "csrc", unbuilt.project / "newer", copy_function=shutil.copy2)
        (newer / "answer.h").write_text(answer(43))

        def exchange() -> None:
            (unbuilt.project / "csrc").rename(unbuilt.project / "older")
            newer.rename(unbuilt.project / "csrc")

        during.append(exchange)
        assert unbuilt.ask() == (BUILT, 43)

    @pytest.mark.usefixtures("small_support")
    def test_a_compiler_that_is_exchanged_is_asked_again(
        self, unbuilt: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: list[Callable[[], object]]
    ) -> None:
        unbuilt.source.write_text(unbuilt.source.read_text().replace("= ANSWER", "= ANSWER + MORE"))
        monkeypatch.setenv("CXX", str(tmp_path / "c++"))
        make_compiler(tmp_path / "c++", 1)
        during.append(lambda: make_compiler(tmp_path / "c++", 2))
        assert unbuilt.ask() == (BUILT, 44)
        assert len(list(Store.open().entries())) == 1

    def test_a_header_that_is_edited_each_time_is_an_error_and_nothing_is_kept(
        self, unbuilt: Road, during: list[Callable[[], object]]
    ) -> None:
        during += [lambda n=n: unbuilt.header.write_text(answer(n)) for n in (1, 2)]  # type: ignore[misc]
        with pytest.raises(KjitError, match=r"answer.h' changed during the compile, twice"):
            unbuilt.ask()
        assert list(Store.open().entries()) == []
