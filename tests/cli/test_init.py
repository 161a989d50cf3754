"""The command `kjit init`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kjit(kjit_in: Kjit) -> Kjit:
    return lambda *arguments, cwd: kjit_in(cwd, *arguments)


def test_the_folder_becomes_a_project(kjit: Kjit, tmp_path: Path) -> None:
    done = kjit("init", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "pyproject.toml",
        ".gitignore",
        ".clang-format",
        "kernels/__init__.py",
        "Next: kjit new scale",
    ]
    assert (tmp_path / "tests").is_dir()
    assert (tmp_path / "benchmarks").is_dir()


def test_a_named_folder_is_made(kjit: Kjit, tmp_path: Path) -> None:
    done = kjit("init", "my-kernels", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my-kernels" / "pyproject.toml").is_file()
    assert "Next: cd my-kernels && kjit new scale" in done.stdout


def test_a_second_time_nothing_happens(kjit: Kjit, tmp_path: Path) -> None:
    kjit("init", cwd=tmp_path)
    before = (tmp_path / "pyproject.toml").read_text()
    done = kjit("init", cwd=tmp_path)
    assert done.returncode == 0
    assert "nothing to do" in done.stdout
    assert (tmp_path / "pyproject.toml").read_text() == before


def test_an_existing_pyproject_is_added_to_and_that_is_said(kjit: Kjit, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    done = kjit("init", cwd=tmp_path)
    assert "pyproject.toml (added what was missing)" in done.stdout
    assert (tmp_path / "pyproject.toml").read_text().startswith('[project]\nname = "x"\n')


def test_a_broken_pyproject_is_wrong_usage(kjit: Kjit, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("x = \n")
    done = kjit("init", cwd=tmp_path)
    assert done.returncode == 2
    assert "pyproject.toml:1" in done.stderr


def test_a_file_is_no_folder(kjit: Kjit, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    done = kjit("init", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a file" in done.stderr


def test_vs_code_gets_tasks_whose_errors_have_places(kjit: Kjit, tmp_path: Path) -> None:
    done = kjit("init", "--editor", "vscode", cwd=tmp_path)
    assert ".vscode/tasks.json" in done.stdout.splitlines()
    tasks = json.loads((tmp_path / ".vscode" / "tasks.json").read_text())["tasks"]
    assert [task["label"] for task in tasks] == [
        f"kjit {name}" for name in ("build", "test", "watch", "sanitize", "bench")
    ]
    pattern = re.compile(tasks[0]["problemMatcher"]["pattern"]["regexp"])
    match = pattern.match("kernels/csrc/scale.cpp:20:20: error: expected ';' before '}' token")
    assert match is not None
    assert match.groups() == ("kernels/csrc/scale.cpp", "20", "20", "error", "expected ';' before '}' token")
    assert pattern.match("error: scale<fp32_t> cpu does not compile.") is None


def test_tasks_that_exist_are_kept_and_other_editors_are_refused(kjit: Kjit, tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "tasks.json").write_text("{}")
    done = kjit("init", "--editor", "vscode", cwd=tmp_path)
    assert (done.returncode, "exists and is kept" in done.stderr) == (0, True)
    assert (tmp_path / ".vscode" / "tasks.json").read_text() == "{}"
    done = kjit("init", "--editor", "vim", cwd=tmp_path)
    assert (done.returncode, "--editor vscode" in done.stderr) == (2, True)
