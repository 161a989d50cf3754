"""tools/test_range.py: its runs, and that only tests which ran are reported as passed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOUT = """#!/bin/sh
case "$*" in
  *__file__*) echo "{kjit}" ;;
  *"-m pytest"*) echo "= 7 passed, 2 skipped in 3.21s ="; exit {status} ;;
esac
"""


@pytest.fixture(scope="module")
def tool(import_tool: Callable[[str], Any]) -> Any:
    return import_tool("test_range")


@pytest.fixture
def declared(tool: Any, tmp_path: Path) -> Any:
    (tmp_path / "pyproject.toml").write_text(
        """
[project]
requires-python = ">=3.10"
classifiers = ["Programming Language :: Python :: 3.11", "Programming Language :: Python :: 3.10"]
dependencies = ["torch>=2.6", "rich>=13,<16", "tomli>=2; python_version < '3.11'"]
[project.optional-dependencies]
bench = ["pandas>=2"]
dev = ["hypothesis>=6", "numpy>=1", "packaging>=23", "pytest>=8", "pytest-timeout>=2", "pytest-xdist>=3"]
"""
    )
    return tool.Declared.read(tmp_path / "pyproject.toml")


def test_every_python_runs_with_the_lowest_and_with_the_latest_or_says_that_it_is_not_here(
    tool: Any, declared: Any
) -> None:
    rows = tool.rows_of(declared, {"3.10": "/usr/bin/python3.10"})
    assert [row.name for row in rows] == ["3.10-lowest", "3.10-latest", "3.11-lowest", "3.11-latest"]
    assert [row.interpreter for row in rows[:2]] == ["/usr/bin/python3.10"] * 2
    assert [row.skipped for row in rows] == ["", "", *["there is no Python 3.11 on this machine"] * 2]
    table = tool.results_table(rows[2:])
    assert table.splitlines()[2].startswith("| 3.11   | lowest       |       | skipped: there is no Python 3.11")
    assert "passed" not in table
    assert tool.exit_status(rows[2:]) == 1


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        (["--only", "python=3.12"], ["3.12-lowest", "3.12-latest"]),
        (
            ["--only", "python=3.10,which=latest", "--only", "python=3.14"],
            ["3.10-latest", "3.14-lowest", "3.14-latest"],
        ),
    ],
)
def test_some_can_be_chosen(
    tool: Any, capsys: pytest.CaptureFixture[str], options: list[str], listed: list[str]
) -> None:
    assert tool.main(["--list", *options]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == listed


def test_the_fast_tests_are_files_and_folders_that_exist(tool: Any) -> None:
    paths = tool.fast_tests(ROOT)
    assert {"tests/runtime", "tests/cli", "tests/test_spec.py"} <= set(paths)
    assert "tests/test_wheel.py" not in paths
    assert all((ROOT / path).exists() for path in (*paths, *tool.NOT_FAST))


def test_a_lower_bound_that_nothing_ran_with_is_reported(tool: Any, declared: Any) -> None:
    rows = tool.rows_of(declared, {})[:2]
    rows[0].versions = {"torch": "2.6.0+cpu", "rich": "13.1.0", "pandas": "2.0.0.post1", "tomli": "2.0.0"}
    rows[1].versions = {"torch": "2.15.0", "rich": "13.0.0", "pandas": "2.3.3", "tomli": "2.4.0"}
    assert list(tool.untried_bounds(rows, declared)) == ["rich: <16,>=13 is declared, and 13.1.0 was installed"]


class Faked:
    """A run with a `uv` that installs programs which only say what real ones would."""

    def __init__(self, tool: Any, declared: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tool, self.declared, self.folder = tool, declared, folder
        self.venv = folder / "3.10-lowest" / "venv"
        monkeypatch.setattr(tool, "WORK", folder)
        monkeypatch.setattr(tool, "BIN", folder)
        monkeypatch.setenv("KJIT_NO_COMPILE", "1")

    def run(self, *choice: Any, kjit: Path | None = None, status: int = 0, uv: str | None = None) -> Any:
        said = SHOUT.format(kjit=kjit or self.venv / "lib" / "kjit" / "__init__.py", status=status)
        installs = [
            "#!/bin/sh",
            'case "$1 $2" in',
            f"\"pip list\") echo '{json.dumps([{'name': 'torch', 'version': '2.6.0'}])}' ;;",
            f"venv*) mkdir -p {self.venv}/bin; cat > {self.venv}/bin/python <<'END'\n{said}END",
            f"cp {self.venv}/bin/python {self.venv}/bin/kjit; chmod +x {self.venv}/bin/*;; esac",
        ]
        (self.folder / "uv").write_text(uv or "\n".join(installs))
        (self.folder / "uv").chmod(0o755)
        (row, *_) = self.tool.rows_of(self.declared, {"3.10": sys.executable})
        self.tool.Environment(row, self.declared, self.folder / "kjit-1-py3-none-any.whl", *choice).run()
        return row

    def log(self, name: str) -> str:
        return (self.folder / "3.10-lowest" / f"{name}.log").read_text()


@pytest.fixture
def faked(tool: Any, declared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faked:
    return Faked(tool, declared, tmp_path, monkeypatch)


def test_all_steps_of_an_environment_pass(tool: Any, faked: Faked) -> None:
    row = faked.run()
    assert [(step.name, step.state) for step in row.steps] == [(name, "passed") for name in tool.STEPS]
    assert row.steps[-1].said == "7 passed, 2 skipped"
    assert row.versions == {"torch": "2.6.0"}
    assert tool.exit_status([row]) == 0
    assert "--resolution lowest-direct --no-build" in faked.log("install")
    assert not (faked.folder / "3.10-lowest" / "tree" / "kjit").exists()


@pytest.mark.parametrize(
    ("fault", "failed", "said"),
    [
        ({"uv": '#!/bin/sh\n[ "$1" = venv ] || { echo "No solution found"; exit 1; }\n'}, 0, "No solution found"),
        (
            {"kjit": ROOT / "kjit" / "__init__.py"},
            1,
            f"kjit comes from {ROOT}/kjit/__init__.py, and not from the wheel",
        ),
        ({"status": 1}, 3, "7 passed, 2 skipped"),
    ],
    ids=["environment", "another kjit", "tests"],
)
def test_a_step_that_fails_says_why_and_is_no_success(
    tool: Any, faked: Faked, fault: dict[str, Any], failed: int, said: str
) -> None:
    row = faked.run(**fault)
    assert [step.state for step in row.steps[: failed + 1]] == ["passed"] * failed + ["FAILED"]
    assert row.steps[failed].said == said
    assert tool.exit_status([row]) == 1
    if failed == 0:
        assert [step.state for step in row.steps[1:]] == ["not run"] * 3


def test_ci_runs_every_python_that_is_declared(tool: Any) -> None:
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    (matrix,) = re.findall(r"^ +python: (\[.*\])$", workflow, re.MULTILINE)
    assert tuple(json.loads(matrix)) == tool.Declared.read(ROOT / "pyproject.toml").pythons
    (command,) = re.findall(r"make test-range (RANGE=.*)$", workflow, re.MULTILINE)
    made = subprocess.run(
        ["make", "-n", "test-range", command.replace("${{ matrix.python }}", "3.12").replace('"', "")],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tools/test_range.py --only python=3.12 --json range.json" in made.stdout
