"""`kjit sanitize`: its reports and exit status."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.cli.sanitize import _with_kernels
from kjit.errors import UsageError
from kjit.planning.wrappers import Collected
from kjit.spec import Spec

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]

_RIGHT = """
def test_answer():
    assert True
"""
_WRONG = """
import time
from pathlib import Path

def test_wrong():
    assert 1 == 2

def test_kernel():
    raise RuntimeError("kernel copy<float> reads 4 bytes at 0x10, past the end of argument 1 of copy (x: float32[3]), "
                       "at /p/copy.cuh:7 (block (0, 0, 0), thread (3, 0, 0))")

def test_hangs():
    Path("hangs").touch()
    time.sleep(1000)
"""
_AT_THE_LIMIT = """
import subprocess, time
from pathlib import Path

plain = subprocess.Popen.wait

def wait(process, timeout=None):
    while timeout == 8 and not Path("hangs").exists() and process.poll() is None:
        time.sleep(0.01)
    return plain(process, 0 if timeout == 8 else timeout)

subprocess.Popen.wait = wait
"""
"""Reaches a limit of 8 s as soon as the test hangs."""


@pytest.fixture
def tested(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test file of `answer`, which declares nothing that would have to be built."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of these tests, which take long to import
    (project / "kernels" / "answer.py").write_text("")
    (project / "tests").mkdir()
    file = project / "tests" / "test_answer.py"
    file.write_text(_RIGHT)
    return file


def test_nothing_is_found(kjit: Kjit, tested: Path) -> None:
    done = kjit("sanitize", "--sim")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sim-check: nothing found (")
    assert (tested.parents[1] / ".kjit" / ".gitignore").read_text() == "*\n"


def test_a_mistake_a_failed_test_and_one_that_hangs_are_reported(kjit: Kjit, tested: Path) -> None:
    tested.write_text(_WRONG)
    done = kjit("sanitize", "answer", "--sim", "--timeout", "8s", first=_AT_THE_LIMIT)
    assert done.returncode == 1
    first, mistake, example = done.stdout.splitlines()[:3]
    assert first.startswith("sim-check: 1 mistake in 1 report (")
    assert mistake == "  kernel copy<float> reads 4 bytes past the end of x, at /p/copy.cuh:7"
    assert example == "      for example block (0, 0, 0), thread (3, 0, 0), test_kernel"
    assert "sim-check was ended after 8 s in tests/test_answer.py::test_hangs." in done.stderr
    report = Path(tested.parents[1] / ".kjit" / "sanitize" / "answer-sim-check.txt")
    assert f"all of it: {report.relative_to(tested.parents[1])}\n" in done.stderr


def test_json_has_all_of_it_and_k_chooses_tests(kjit: Kjit, tested: Path) -> None:
    tested.write_text(_WRONG)
    done = kjit("sanitize", "answer", "--sim", "--json", "-k", "wrong")
    (run,) = json.loads(done.stdout)
    assert (done.returncode, run["findings"], run["timed_out"]) == (1, [], False)
    assert run["failed"] == [{"test": "tests/test_answer.py::test_wrong", "error": "assert 1 == 2"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("answr",), "did you mean answer?"),
        (("--tool", "leakcheck"), "the tools are memcheck, racecheck, initcheck, synccheck"),
        (("--sim", "--tool", "memcheck"), "--tool is for compute-sanitizer"),
        (("--timeout", "soon"), "'soon' is not a duration."),
    ],
)
def test_wrong_usage(kjit: Kjit, tested: Path, arguments: tuple[str, ...], said: str) -> None:
    assert tested.is_file()
    done = kjit("sanitize", *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_an_op_without_a_cuda_source_is_refused_when_it_is_named_and_left_out_else(
    kjit: Kjit, project: Path, answer_op: Callable[..., Spec], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tests").mkdir()
    (project / "tests" / "test_answer.py").write_text(_RIGHT)
    done = kjit("sanitize", "answer", "--sim")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no CUDA source: answer; the sanitizers check CUDA kernels." in done.stderr
    (project / "csrc" / "scale.cuh").touch()
    scale = Spec("scale", cuda_files=[project / "csrc" / "scale.cuh"])
    every = Collected([("answer", [answer_op(project)]), ("scale", [scale])], [], ["undeclared"])
    assert _with_kernels(every, are_named=False) == ["scale", "undeclared"]
    assert "without a CUDA source: answer\n" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no CUDA source: answer;"):
        _with_kernels(every, are_named=True)


def test_no_test_at_all_is_a_failure(kjit: Kjit, tested: Path) -> None:
    assert tested.is_file()
    done = kjit("sanitize", "--sim", "-k", "nothing_of_this_name")
    assert (done.returncode, "error: no test ran" in done.stderr) == (1, True)
