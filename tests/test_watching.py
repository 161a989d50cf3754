"""kjit.watching: the ops that a changed file belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.project import Project, read_project
from kjit.spec import Spec
from kjit.watching import changes, concerned, folders

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


def test_folders_of_sources_inside_of_the_project_are_watched_too(project: Project, tmp_path: Path) -> None:
    (project.root / "native").mkdir()
    inside, outside = project.root / "native", tmp_path.parent
    spec = Spec("a", cpp_files=[inside / "a.cpp"], extra_include_paths=[outside])
    assert folders(project, [spec]) == [*folders(project), inside]


def test_changes_are_told_from_the_first_answer_on(project: Project) -> None:
    pytest.importorskip("watchfiles")
    told = changes(project, folders(project))
    assert next(told) == []
    header = project.root / "kernels" / "include" / "step.h"
    header.write_text("int x;")
    (header.parent / "notes.txt").write_text("no source")
    assert next(told) == [header]
