"""Two copies of a tree with one cache: each has modules of its own.

A package in a larger repository is built in one copy of it and asked for in another. `ask(copy)` says what a program
would see there: whether the module had to be built, and what it answers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kjit.engine import builder, outcomes
from kjit.engine.cache.store import Store
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

CPU = Target.cpu()
HIT, BUILT = "hit", "built"


def answer(number: object) -> str:
    return f"#define ANSWER {number}\n"


class Copy:
    """A repository with a package `pkg`, whose op answers `ANSWER`, and what lies beside the package."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = root / "pkg" / "csrc" / "answer.cpp"

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def ask(self, **parts: Any) -> tuple[str, int]:
        variant = Variant(Spec("answer", cpp_files=[self.source], **parts), CPU)
        outcome = builder.build(variant, Store.open())
        return outcome.state, load_variant(variant).answer()


@pytest.fixture
def first(tmp_path: Path, answer_op: Callable[..., Spec], cache_dir: Path) -> Copy:
    """The repository, whose source includes `answer.h` from wherever it is found."""
    del cache_dir
    answer_op(tmp_path / "first" / "pkg")
    (tmp_path / "first" / "pkg" / "csrc" / "answer.h").unlink()
    return Copy(tmp_path / "first")


def copied(first: Copy, name: str = "second") -> Copy:
    shutil.copytree(first.root, first.root.with_name(name), symlinks=True)
    return Copy(first.root.with_name(name))


def include(copy: Copy, what: str) -> None:
    copy.source.write_text(copy.source.read_text().replace('"answer.h"', what))


def say(copy: Copy, expression: str) -> None:
    copy.source.write_text(copy.source.read_text().replace("= ANSWER", f"= {expression}"))


class TestAHeaderBesideThePackage:
    """`inc/answer.h`, outside of the package's folder, reached in each way that begins in the package."""

    @pytest.fixture(params=["included", "through another", "through a link", "-I", "-iprefix", "extra_include_paths"])
    def way(self, first: Copy, request: pytest.FixtureRequest) -> Callable[[Copy], dict[str, Any]]:
        """The arguments of a wrapper in a copy."""
        first.write("inc/answer.h", answer(42))
        if request.param == "included":
            include(first, '"../../inc/answer.h"')
        elif request.param == "through another":
            include(first, '"../../inc/outer.h"')
            first.write("inc/outer.h", '#include "deeper/inner.h"\n')
            first.write("inc/deeper/inner.h", '#include "../answer.h"\n')
        elif request.param == "through a link":
            include(first, '"link/../answer.h"')
            (first.root / "inc" / "deep").mkdir()
            (first.source.parent / "link").symlink_to("../../inc/deep")
        flags = {"-I": ["-I{}/../inc"], "-iprefix": ["-iprefix", "{}/", "-iwithprefix", "../inc"]}

        def parts(copy: Copy) -> dict[str, Any]:
            if request.param == "extra_include_paths":
                return {"extra_include_paths": [copy.root / "inc"]}
            words = flags.get(request.param, [])
            return {"extra_cflags": [word.replace("{}", str(copy.root / "pkg")) for word in words]}

        return parts

    def test_each_copy_has_its_own(self, first: Copy, way: Callable[[Copy], dict[str, Any]]) -> None:
        second = copied(first)
        second.write("inc/answer.h", answer(43))
        assert first.ask(**way(first)) == (BUILT, 42)
        assert second.ask(**way(second)) == (BUILT, 43)
        assert first.ask(**way(first)) == (HIT, 42)
        second.write("inc/answer.h", answer(44))
        assert second.ask(**way(second)) == (BUILT, 44)


def test_a_moved_tree_is_built_again_and_is_a_hit_where_it_was(first: Copy) -> None:
    include(first, "<stdint.h>")
    say(first, "sizeof(__FILE__)")
    length = len(str(first.source)) + 1
    assert first.ask() == (BUILT, length)
    moved = Copy(first.root.rename(first.root.with_name("moved")))
    assert moved.ask() == (BUILT, length)
    moved.root.rename(first.root)
    assert first.ask() == (HIT, length)


def test_a_link_in_a_copy_that_leads_elsewhere_is_followed(first: Copy) -> None:
    first.write("inc/answer.h", answer(42))
    first.write("other/answer.h", answer(43))
    for name in ("inc", "other"):
        (first.root / name / "deep").mkdir()
    (first.source.parent / "link").symlink_to("../../inc/deep")
    include(first, '"link/../answer.h"')
    second = copied(first)
    (second.source.parent / "link").unlink()
    (second.source.parent / "link").symlink_to("../../other/deep")
    assert first.ask() == (BUILT, 42)
    assert second.ask() == (BUILT, 43)


class TestTheFirstCopysFiles:
    """An absolute path to a file of the first copy means that file in the second copy, too."""

    @pytest.fixture(
        params=["include", "macro", "CPATH", "@file", "nested @file", "-include", "-DPATH", "CXX", "linker script"]
    )
    def parts(
        self, first: Copy, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> dict[str, Any]:
        header = first.write("pkg/inc/answer.h", answer(42))
        folder = header.parent
        if request.param == "include":
            include(first, f'"{header}"')
        elif request.param == "macro":
            include(first, "PLACE")
            first.source.write_text(f'#define PLACE "{header}"\n{first.source.read_text()}')
        elif request.param == "CPATH":
            request.getfixturevalue("small_support")
            monkeypatch.setenv("CPATH", str(folder))
        elif request.param == "@file":
            (tmp_path / "options").write_text(f"--include-directory '{folder}'\n")
            return {"extra_cflags": [f"@{tmp_path}/options"]}
        elif request.param == "nested @file":
            (tmp_path / "outer").write_text(f"@{tmp_path}/options")
            (tmp_path / "options").write_text(f'-isystem "{folder}"\n')
            return {"extra_cflags": [f"@{tmp_path}/outer"]}
        elif request.param == "-include":
            include(first, "<stdint.h>")
            return {"extra_cflags": ["-include", str(header)]}
        elif request.param == "-DPATH":
            include(first, "PLACE")
            return {"extra_cflags": [f'-DPLACE="{header}"']}
        elif request.param == "CXX":
            request.getfixturevalue("small_support")
            script = tmp_path / "c++"
            script.write_text(f'#!/bin/sh\nexec {Toolchain.for_target(CPU).cxx.path} -I{folder} "$@"\n')
            script.chmod(0o755)
            monkeypatch.setenv("CXX", str(script))
        elif request.param == "linker script":
            include(first, "<stdint.h>")
            first.source.write_text('extern "C" int more();\n' + first.source.read_text())
            say(first, "more()")
            make_library(folder / "more.a", 42)
            (tmp_path / "libmore.a").write_text(f'INPUT("{folder}/more.a")\n')
            return {"extra_ldflags": [f"-L{tmp_path}", "-lmore"]}
        return {}

    def test_an_edit_there_is_noticed_in_both(
        self, first: Copy, parts: dict[str, Any], request: pytest.FixtureRequest
    ) -> None:
        second = copied(first)
        assert first.ask(**parts) == (BUILT, 42)
        assert second.ask(**parts)[1] == 42
        assert second.ask(**parts) == (HIT, 42)
        if "linker script" in request.node.name:
            make_library(first.root / "pkg" / "inc" / "more.a", 43)
        else:
            first.write("pkg/inc/answer.h", answer(43))
        assert second.ask(**parts) == (BUILT, 43)
        assert first.ask(**parts)[1] == 43


def make_library(path: Path, number: int) -> None:
    source = path.with_suffix(".cpp")
    source.write_text(f'extern "C" int more() {{ return {number}; }}\n')
    subprocess.run(["g++", "-fPIC", "-c", source, "-o", path.with_suffix(".o")], check=True)
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rc", path, path.with_suffix(".o")], check=True)


def test_a_static_library_beside_the_package_is_each_copys_own(first: Copy) -> None:
    first.write("pkg/csrc/answer.h", 'extern "C" int more();\n#define ANSWER more()\n')
    (first.root / "lib").mkdir()
    second = copied(first)
    for copy, number in ((first, 42), (second, 43)):
        make_library(copy.root / "lib" / "libmore.a", number)
        flags = [f"-L{copy.root}/pkg/../lib", "-lmore"]
        assert [copy.ask(extra_ldflags=flags) for _ in range(2)] == [(BUILT, number), (HIT, number)]


@pytest.mark.nvcc
class TestCuda:
    TARGET = Target.cuda("9.0a")

    def build(self, copy: Copy, **parts: Any) -> outcomes.Outcome:
        spec = Spec("op", cuda_files=[copy.root / "pkg" / "csrc" / "op.cu"], **parts)
        return builder.build(Variant(spec, self.TARGET), Store.open())

    @pytest.mark.parametrize("flags", [[], pytest.param(["-isystem", "{}/pkg/../inc"], marks=pytest.mark.nightly)])
    def test_a_header_beside_the_package_is_each_copys_own(self, first: Copy, flags: list[str]) -> None:
        name = "<h.h>" if flags else '"../../inc/h.h"'
        first.write("pkg/csrc/op.cu", f"#include {name}\n__global__ void op(int* x) {{ *x = ANSWER; }}\n")
        first.write("inc/h.h", answer(42))
        second = copied(first)

        def state(copy: Copy) -> str:
            return self.build(copy, extra_cuda_cflags=[flag.replace("{}", str(copy.root)) for flag in flags]).state

        assert [state(first), state(second)] == [BUILT, BUILT]
        second.write("inc/h.h", answer(43))
        assert [state(first), state(second)] == [HIT, BUILT]

    def test_a_header_that_is_included_ahead_from_a_folder_with_an_odd_name(self, first: Copy) -> None:
        first.write("pkg/csrc/op.cu", "__global__ void op(int* x) { *x = ANSWER; }\n")
        header = first.write("pkg/a b/pre.h", answer(42))
        states = []
        for number in (42, 42, 43):
            header.write_text(answer(number))
            states.append(self.build(first, extra_cuda_cflags=["-include", str(header)]).state)
        assert states == [BUILT, HIT, BUILT]


def a_compiler(name: str) -> str:
    """A compiler of this name, with or without a version in it, that kjit works with; the test is skipped without."""
    for candidate in (name, *(f"{name}-{version}" for version in range(30, 10, -1))):
        with contextlib.suppress(KjitError), pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", candidate)
            return str(find_cxx().path)
    pytest.skip(f"there is no {name} that is new enough")


class TestOddFiles:
    """Files that no compiler can open, and names that its list of files cannot express."""

    def test_a_link_that_leads_nowhere_is_a_hit_until_it_leads_somewhere(self, first: Copy, tmp_path: Path) -> None:
        (first.root / "early").mkdir()
        first.write("late/answer.h", answer(42))
        (first.root / "early" / "answer.h").symlink_to(tmp_path / "nowhere.h")
        folders = [first.root / "early", first.root / "late"]
        assert [first.ask(extra_include_paths=folders) for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        (tmp_path / "nowhere.h").write_text(answer(43))
        assert first.ask(extra_include_paths=folders) == (BUILT, 43)

    def test_a_folder_that_is_a_link_to_nowhere_is_watched(self, first: Copy, tmp_path: Path) -> None:
        include(first, "<sub/answer.h>")
        (first.root / "early").mkdir()
        first.write("late/sub/answer.h", answer(42))
        (first.root / "early" / "sub").symlink_to(tmp_path / "nowhere")
        folders = [first.root / "early", first.root / "late"]
        assert [first.ask(extra_include_paths=folders) for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        (tmp_path / "nowhere").mkdir()
        (tmp_path / "nowhere" / "answer.h").write_text(answer(43))
        assert first.ask(extra_include_paths=folders) == (BUILT, 43)

    def test_a_link_to_nowhere_that_comes_later_is_watched_from_then_on(self, first: Copy, tmp_path: Path) -> None:
        (first.root / "early").mkdir()
        first.write("late/answer.h", answer(42))
        folders = [first.root / "early", first.root / "late"]
        assert first.ask(extra_include_paths=folders) == (BUILT, 42)
        (first.root / "early" / "answer.h").symlink_to(tmp_path / "nowhere.h")
        assert first.ask(extra_include_paths=folders)[1] == 42
        (tmp_path / "nowhere.h").write_text(answer(43))
        assert first.ask(extra_include_paths=folders) == (BUILT, 43)

    @pytest.mark.usefixtures("small_support")
    @pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=pytest.mark.nightly)])
    @pytest.mark.parametrize("name", ["x\\y.h", "x\\ y.h", "#x.h", "c:d.h", "$x.h", "it's.h"])
    def test_a_header_may_be_called_whatever_an_include_can_say(
        self, first: Copy, monkeypatch: pytest.MonkeyPatch, compiler: str, name: str
    ) -> None:
        monkeypatch.setenv("CXX", a_compiler(compiler))
        include(first, f'"{name}"')
        header = first.write(f"pkg/csrc/{name}", answer(42))
        assert [first.ask() for _ in range(2)] == [(BUILT, 42), (HIT, 42)]
        header.write_text(answer(43))
        assert first.ask() == (BUILT, 43)

    def test_of_two_headers_that_are_alike_both_are_compared(self, first: Copy) -> None:
        # GCC reads the second one and does not list it.
        text = "#pragma once\n#ifndef ANSWER\n#define ANSWER 42\n#endif\n"
        first.write("pkg/csrc/answer.h", '#include "a/x.h"\n#include "b/x.h"\n')
        for folder in ("a", "b"):
            os.utime(first.write(f"pkg/csrc/{folder}/x.h", text), (1, 1))
        assert first.ask() == (BUILT, 42)
        first.write("pkg/csrc/b/x.h", "#undef ANSWER\n#define ANSWER 43\n")
        assert first.ask() == (BUILT, 43)
