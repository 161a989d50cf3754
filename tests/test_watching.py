"""kjit.watching: the ops that a changed file belongs to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kjit.project import Project, read_project
from kjit.spec import Spec
from kjit.watching import Watcher, concerned, folders

ARTIFACTS = {"a": ["a1"], "b": ["b1"]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    for name in ("kernels/a.py", "kernels/b.py", "kernels/csrc/a.cuh", "kernels/include/step.h", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return read_project(tmp_path / "pyproject.toml")


@pytest.mark.parametrize(
    ("changed", "now", "failed", "expected"),
    [
        ([], ARTIFACTS, [], ["a", "b"]),
        (["kernels/csrc/a.cuh"], ARTIFACTS, [], ["a"]),
        (["tests/test_b.py"], ARTIFACTS, [], ["b"]),
        (["benchmarks/bench_b.py"], ARTIFACTS, [], ["b"]),
        (["kernels/include/step.h"], ARTIFACTS, [], []),
        (["kernels/include/step.h"], {"a": ["a2"], "b": ["b1"]}, [], ["a"]),
        (["kernels/csrc/a.cuh"], ARTIFACTS, ["b"], ["a", "b"]),
        (["tests/conftest.py"], ARTIFACTS, [], ["a", "b"]),
        (["kernels/other.py"], ARTIFACTS, [], ["a", "b"]),
    ],
)
def test_what_a_change_concerns(
    project: Project, changed: list[str], now: dict[str, list[str]], failed: list[str], expected: list[str]
) -> None:
    files = [project.root / name for name in changed]
    assert concerned(project, ["a", "b"], files, ARTIFACTS, now, failed) == expected


def test_an_op_that_is_not_watched_concerns_nobody(project: Project) -> None:
    assert concerned(project, ["a"], [project.root / "kernels/b.py"], ARTIFACTS, ARTIFACTS, []) == []


def test_no_folder_is_watched_twice(project: Project) -> None:
    assert folders(project) == [project.root / "kernels", project.root / "tests"]


def test_folders_of_sources_inside_of_the_project_are_watched_too(project: Project, tmp_path: Path) -> None:
    (project.root / "native").mkdir()
    inside, outside = project.root / "native", tmp_path.parent
    spec = Spec("a", cpp_files=[inside / "a.cpp"], extra_include_paths=[outside])
    assert folders(project, [spec]) == [project.root / "kernels", project.root / "tests", inside]


def test_what_was_saved_in_a_folder_that_was_not_watched_yet_is_not_missed(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    old, new = tmp_path / "old.h", tmp_path / "new.h"
    began_ns = time.time_ns()
    for path, minutes in ((old, -1), (new, 0)):
        path.write_text("")
        os.utime(path, ns=(began_ns, began_ns + minutes * 60_000_000_000))
    watcher = Watcher(tmp_path)
    watcher.watch([tmp_path], began_ns)
    try:
        assert watcher.wait() == [new]
        new.write_text("int x;")
        assert watcher.wait() == [new]
    finally:
        watcher.end()
