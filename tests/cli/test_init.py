"""The command `kjit init`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def kjit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kjit", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_folder_becomes_a_project(tmp_path: Path) -> None:
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


def test_a_named_folder_is_made(tmp_path: Path) -> None:
    done = kjit("init", "my-kernels", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my-kernels" / "pyproject.toml").is_file()
    assert "Next: cd my-kernels && kjit new scale" in done.stdout


def test_a_second_time_nothing_happens(tmp_path: Path) -> None:
    kjit("init", cwd=tmp_path)
    before = (tmp_path / "pyproject.toml").read_text()
    done = kjit("init", cwd=tmp_path)
    assert done.returncode == 0
    assert "nothing to do" in done.stdout
    assert (tmp_path / "pyproject.toml").read_text() == before


def test_an_existing_pyproject_is_added_to_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    done = kjit("init", cwd=tmp_path)
    assert "pyproject.toml (added what was missing)" in done.stdout
    assert (tmp_path / "pyproject.toml").read_text().startswith('[project]\nname = "x"\n')


def test_a_broken_pyproject_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("x = \n")
    done = kjit("init", cwd=tmp_path)
    assert done.returncode == 2
    assert "pyproject.toml:1" in done.stderr


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    done = kjit("init", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a file" in done.stderr
