"""The command `kjit test`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_TEST = """
import os
from ops.{op} import VALUE

def test_value():
    assert VALUE == {expected}

def test_simulator():
    print("simulator:", os.environ.get("KJIT_SIM"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in src layout with the ops `good`, `bad` (its test fails) and `bare` (it has no test)."""
    (tmp_path / "pyproject.toml").write_text('[tool.kjit]\npackage = "ops"\n')
    package, tests = tmp_path / "src" / "ops", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    for op, expected in (("good", 1), ("bad", 2), ("bare", None)):
        (package / f"{op}.py").write_text("VALUE = 1\n")
        if expected is not None:
            (tests / f"test_{op}.py").write_text(_TEST.format(op=op, expected=expected))
    return tmp_path


@pytest.fixture
def kjit_test(project: Path) -> Run:
    """A function that runs `kjit test`."""
    hidden = ("KJIT_SIM", "PYTEST_ADDOPTS", "PYTHONPATH")

    def run(*arguments: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("kjit"), "test", *arguments],
            cwd=project / folder,
            env={name: value for name, value in os.environ.items() if name not in hidden},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_tests_of_an_op_run_from_any_folder_of_the_project(kjit_test: Run) -> None:
    for folder in (".", "src/ops"):
        done = kjit_test("good", folder=folder)
        assert done.returncode == 0, done.stderr
        assert "2 passed" in done.stdout
        assert "test_bad.py" not in done.stdout


def test_without_an_op_all_that_have_a_test_run(kjit_test: Run) -> None:
    done = kjit_test()
    assert done.returncode == 1
    assert "1 failed, 3 passed" in done.stdout
    assert done.stderr == "without a test: bare\n"


def test_what_follows_two_dashes_is_for_pytest(kjit_test: Run) -> None:
    done = kjit_test("bad", "--", "-k", "not value", "-q", "--", "-p")
    assert done.returncode == 2  # pytest takes the second `--`, and for a file what follows
    said = done.stdout + done.stderr
    assert "file or directory not found: -p" in said or "unrecognized arguments: -- -p" in said  # pytest 8.0
    assert kjit_test("bad", "good", "--", "-k", "not value").returncode == 0


@pytest.mark.parametrize(("options", "value"), [((), "None"), (("--sim",), "1"), (("--sim", "--check"), "check")])
def test_an_option_chooses_the_simulator(kjit_test: Run, options: tuple[str, ...], value: str) -> None:
    assert f"simulator: {value}\n" in kjit_test("good", *options, "--", "-s").stdout


def test_a_test_that_fails_or_does_not_import_is_status_1(kjit_test: Run, project: Path) -> None:
    assert kjit_test("bad").returncode == 1
    (project / "tests" / "test_good.py").write_text("import nothing_of_this_name\n")
    assert kjit_test("good").returncode == 1


def test_an_option_that_pytest_does_not_know_is_wrong_usage(kjit_test: Run) -> None:
    assert kjit_test("good", "--", "--no-such-option").returncode == 2


def test_tests_of_which_none_ran_are_a_failure(kjit_test: Run) -> None:
    done = kjit_test("good", "--", "-k", "nothing")
    assert done.returncode == 1
    assert "error: no test ran.\n" in done.stderr


@pytest.mark.parametrize(
    ("op", "error", "hint"),
    [
        ("bare", "op 'bare' has no test: there is no tests/test_bare.py.", "`kjit new bare --dry-run`"),
        ("goood", "there is no op 'goood'", "did you mean good?"),
    ],
)
def test_an_op_without_a_test_and_an_unknown_one_are_wrong_usage(
    kjit_test: Run, op: str, error: str, hint: str
) -> None:
    done = kjit_test("good", op)
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr
    assert hint in done.stderr


def test_a_project_without_any_test_says_so(kjit_test: Run, project: Path) -> None:
    for file in (project / "tests").iterdir():
        file.unlink()
    done = kjit_test()
    assert done.returncode == 2
    assert "there is no test of an op in tests" in done.stderr


def test_a_process_that_dies_names_the_signal(kjit_test: Run, project: Path) -> None:
    (project / "tests" / "test_good.py").write_text("import os\n\n\ndef test():\n    os.kill(os.getpid(), 9)\n")
    done = kjit_test("good")
    assert done.returncode == 1
    assert "error: pytest was ended by SIGKILL." in done.stderr


def test_an_op_may_be_named_like_a_module_of_python(kjit_test: Run, project: Path) -> None:
    for name in ("copy", "types", "random"):
        (project / "src" / "ops" / f"{name}.py").write_text("VALUE = 1\n")
    (project / "tests" / "test_copy.py").write_text(_TEST.format(op="copy", expected=1) + "import torch\n")
    for folder in (".", "src/ops"):
        done = kjit_test("copy", "--", "-q", folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_projects_root_can_be_imported_from(kjit_test: Run, project: Path) -> None:
    """As with `python -m pytest` there."""
    (project / "helpers.py").write_text("VALUE = 1\n")
    (project / "tests" / "test_good.py").write_text("from helpers import VALUE\n\ndef test_value(): assert VALUE\n")
    for folder in (".", "src/ops"):
        assert kjit_test("good", folder=folder).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["good", "-k", "agrees"], "no such option: -k.", "what is for pytest follows --: -- -k ..."),
        (["tests/test_good.py"], "'tests/test_good.py' is a file, and ops are wanted here.", "kjit test good"),
    ],
)
def test_how_to_say_it_is_told(kjit_test: Run, arguments: list[str], error: str, hint: str) -> None:
    done = kjit_test(*arguments)
    assert done.returncode == 2
    assert f"error: {error}\nhint: {hint}\n" in done.stderr
