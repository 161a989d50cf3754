"""The command `kjit test`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit import env
from kjit.cli.test import targets_of_tests
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.runtime import gpus
from kjit.spec import Spec, Target

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
def kjit_test(project: Path, kjit_in: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `kjit test`."""
    for name in ("KJIT_SIM", "PYTEST_ADDOPTS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of these tests, which take long to import
    return lambda *arguments, folder=".": kjit_in(project / folder, "test", *arguments)


def test_the_tests_of_an_op_run_from_any_folder_of_the_project(kjit_test: Run) -> None:
    for folder in (".", "src/ops"):
        done = kjit_test("good", folder=folder)
        assert done.returncode == 0, done.stderr
        assert "2 passed" in done.stdout
        assert "test_bad.py" not in done.stdout


def test_what_follows_two_dashes_is_for_pytest(kjit_test: Run) -> None:
    done = kjit_test("bad", "--", "-k", "not value", "-q", "--", "-p")
    assert done.returncode == 2  # pytest takes the second `--`, and for a file what follows
    said = done.stdout + done.stderr
    assert "file or directory not found: -p" in said or "unrecognized arguments: -- -p" in said  # pytest 8.0
    assert kjit_test("bad", "good", "--", "-k", "not value").returncode == 0


@pytest.mark.parametrize(("options", "value"), [((), "None"), (("--sim", "--check"), "check")])
def test_an_option_chooses_the_simulator(kjit_test: Run, options: tuple[str, ...], value: str) -> None:
    assert f"simulator: {value}\n" in kjit_test("good", *options, "--", "-s").stdout


def test_a_test_that_fails_or_does_not_import_is_status_1(kjit_test: Run, project: Path) -> None:
    assert kjit_test("bad").returncode == 1
    (project / "tests" / "test_good.py").write_text("import nothing_of_this_name\n")
    assert kjit_test("good").returncode == 1


def test_tests_of_which_none_ran_are_a_failure(kjit_test: Run) -> None:
    done = kjit_test("good", "--", "-k", "nothing")
    assert done.returncode == 1
    assert "error: no test ran.\n" in done.stderr


@pytest.mark.parametrize(
    ("op", "error", "hint"),
    [
        ("bare", "op 'bare' has no test: there is no tests/test_bare.py.", "`kjit new bare --dry-run`"),
        ("goood", "there is no op 'goood'", "did you mean good?"),
        ("-k", "no such option: -k.", "options for pytest follow --: -- -k ..."),
    ],
)
def test_an_op_without_a_test_and_an_unknown_one_are_wrong_usage(
    kjit_test: Run, op: str, error: str, hint: str
) -> None:
    done = kjit_test("good", op)
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr
    assert hint in done.stderr


def test_a_warning_of_torch_about_itself_is_not_shown(kjit_test: Run, project: Path) -> None:
    warned = "import warnings\nwarnings.warn('`torch.jit.script_method` is deprecated. Switch.', DeprecationWarning)\n"
    (project / "tests" / "test_good.py").write_text(f"{warned}\n\ndef test():\n    pass\n")
    assert "1 passed in" in kjit_test("good").stdout


def test_a_process_that_dies_names_the_signal(kjit_test: Run, project: Path) -> None:
    (project / "tests" / "test_good.py").write_text("import os\n\n\ndef test():\n    os.kill(os.getpid(), 9)\n")
    done = kjit_test("good")
    assert done.returncode == 1
    assert "error: pytest was ended by SIGKILL." in done.stderr


def test_an_op_may_be_named_like_a_module_of_python(kjit_test: Run, project: Path) -> None:
    (project / "src" / "ops" / "copy.py").write_text("VALUE = 1\n")
    check = "import copy\nassert copy.copy\n"  # as pytest does
    (project / "tests" / "test_copy.py").write_text(_TEST.format(op="copy", expected=1) + check)
    done = kjit_test("copy", "--", "-q", folder="src/ops")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def declared(project: Path, answer_op: Callable[..., Spec], cache_dir: Path) -> Path:
    """The op `answer`, declared and with a test that runs it; this is its header."""
    del cache_dir
    answer_op(project)
    (project / "src" / "ops" / "answer.py").write_text(
        "from pathlib import Path\nimport kjit\n\n@kjit.module()\ndef answer():\n"
        "    csrc = Path(__file__).parents[2] / 'csrc'\n"
        "    return kjit.Spec('answer', cpp_files=[csrc / 'answer.cpp'])\n"
    )
    (project / "tests" / "test_answer.py").write_text(
        "from ops.answer import answer\n\ndef test_answer():\n    assert answer().answer() == 42\n"
    )
    return project / "csrc" / "answer.h"


def test_what_an_op_declares_is_built_before_its_tests(kjit_test: Run, declared: Path) -> None:
    del declared
    done = kjit_test("answer")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout
    assert "[1/1] built answer cpu" in done.stderr
    assert done.stderr.count("compiling") == 1
    assert "built" not in kjit_test("answer").stderr


def test_an_op_that_does_not_compile_has_no_test_run_and_its_error_once(kjit_test: Run, declared: Path) -> None:
    declared.write_text("#define ANSWER oops\n")
    done = kjit_test("answer")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("'oops'") == 1
    assert done.stderr.endswith("No test was run.\n")


@pytest.mark.parametrize("option", ["-knot"])
def test_where_pytest_may_not_run_all_tests_nothing_is_built_first(kjit_test: Run, declared: Path, option: str) -> None:
    declared.write_text("#define ANSWER oops\n")
    done = kjit_test("answer", "--", option, "-q")
    assert "compiling" not in done.stderr
    assert "No test was run" not in done.stderr


@pytest.mark.parametrize(
    ("sides", "simulator", "forbidden", "expected"),
    [
        (("cuda", "cpu"), None, False, ["cpu", "sim"]),
        (("cuda", "cpu"), "sim-check", False, ["cpu", "sim-check"]),
        (("cuda", "cpu"), None, True, ["cpu"]),
    ],
)
def test_without_a_gpu_kernels_are_built_for_the_simulator_unless_it_is_forbidden(
    monkeypatch: pytest.MonkeyPatch,
    sides: tuple[str, ...],
    simulator: env.Simulation | None,
    forbidden: bool,
    expected: list[str],
) -> None:
    monkeypatch.setattr(gpus, "visible_gpus", list)
    monkeypatch.setattr("kjit.runtime.load.device_capability", lambda _: None)
    for name in ("KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST", "KJIT_SIM"):
        monkeypatch.delenv(name, raising=False)
    if forbidden:
        monkeypatch.setenv("KJIT_SIM", "0")
    for kind in ("sim", "sim-check"):
        try:
            Toolchain.for_target(Target(kind))  # type: ignore[arg-type]
        except ToolchainError as error:
            pytest.skip(error.message)
    files = {"cuda": {"cuda_files": ["/x.cu"]}, "cpu": {"cpp_files": ["/x.cpp"]}}
    spec = Spec("x", **{name: value for side in sides for name, value in files[side].items()})  # type: ignore[arg-type]
    assert [str(target) for target in targets_of_tests([spec], simulator)] == expected
