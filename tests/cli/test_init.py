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
