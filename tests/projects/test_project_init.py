"""kjit.projects.init: a folder becomes a project, and its files stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kjit.errors import UsageError
from kjit.project import find_project, load_toml
from kjit.projects.init import scaffold_project

REPOSITORY = Path(__file__).resolve().parents[2]


def init(root: Path) -> None:
    scaffold_project(root)[1].write()


def pytest_finds_package(root: Path) -> bool:
    """Whether `pytest`, run in `root`, can import the package."""
    test = root / "tests" / "test_import.py"
    test.parent.mkdir(exist_ok=True)
    test.write_text("def test_import() -> None:\n    import kernels\n")
    # As a command, not with -m, which would put the current folder on sys.path.
    command = [str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:cacheprovider", "tests/test_import.py"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take longer to import than all else
    return subprocess.run(command, cwd=root, env=alone, capture_output=True, check=False).returncode == 0


def test_a_new_folder_becomes_a_project(tmp_path: Path) -> None:
    init(tmp_path / "new" / "My Kernels")
    root = tmp_path / "new" / "My Kernels"
    project = find_project(root)
    assert project.root == root
    assert (project.package_dir / "__init__.py").is_file()
    assert project.tests_dir.is_dir()
    assert project.benchmarks_dir.is_dir()
    assert (root / ".gitignore").is_file()
    assert load_toml(root / "pyproject.toml")["project"]["name"] == "my-kernels"


def test_what_is_there_is_left_alone_and_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    init(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "mine\n"
    assert scaffold_project(tmp_path)[1].files == []


def test_kernels_are_formatted_as_kjit_formats_its_own(tmp_path: Path) -> None:
    init(tmp_path)
    assert (tmp_path / ".clang-format").read_text() == (REPOSITORY / ".clang-format").read_text()


@pytest.mark.parametrize(
    "before",
    [
        "",
        '[project]\nname = "x"\nversion = "1"\n',
        "[tool.ruff]\nline-length = 100\n\n[[tool.x.y]]\na = 1\n",
        "tool.ruff.line-length = 100\n",
    ],
)
def test_an_existing_pyproject_gets_what_it_lacks_and_loses_nothing(tmp_path: Path, before: str) -> None:
    (tmp_path / "pyproject.toml").write_text(before)
    init(tmp_path)
    after = (tmp_path / "pyproject.toml").read_text()
    assert after.startswith(before)
    assert load_toml(tmp_path / "pyproject.toml")["tool"]["kjit"] == {"package": "kernels"}
    assert pytest_finds_package(tmp_path)


@pytest.mark.parametrize("end", ["\r\n", ""])
def test_a_pyproject_keeps_its_line_ends(tmp_path: Path, end: str) -> None:
    before = f'[project]\r\nname = "x"{end}'.encode()
    (tmp_path / "pyproject.toml").write_bytes(before)
    init(tmp_path)
    after = (tmp_path / "pyproject.toml").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(b"\r\n")
    assert load_toml(tmp_path / "pyproject.toml")["tool"]["kjit"] == {"package": "kernels"}


def test_a_pyproject_that_cannot_be_added_to_is_left_alone(tmp_path: Path) -> None:
    text = "tool = {ruff = {line-length = 100}}\n"
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"nothing can be added(.|\n)*\[tool\.kjit\]"):
        scaffold_project(tmp_path)
    assert (tmp_path / "pyproject.toml").read_text() == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q'\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -q\n"),
    ],
)
def test_a_configured_pytest_is_not_configured_again(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / name).write_text(text)
    init(tmp_path)
    assert "pythonpath" not in (tmp_path / "pyproject.toml").read_text()
