"""The types of kjit are visible to type checkers in a client's code, because of `py.typed`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CLIENT = """
from pathlib import Path
from typing import Protocol

from typing_extensions import assert_type

import kjit


class Exports(Protocol):
    def answer(self) -> int: ...


@kjit.module(exports=Exports, variants=kjit.product(n=[1, 2]))
def _answer(n: int) -> kjit.Spec:
    return kjit.Spec("answer", *kjit.make_cpp_args(n), cpp_files=[Path("answer.cpp")])


@kjit.cache_once
def twice(n: int) -> int:
    return 2 * n


assert_type(_answer(1), Exports)
assert_type(twice(1), int)
assert_type(kjit.__version__, str)
"""
WRONG = """
kjit.Spec("answer", cpp_file="answer.cpp")
twice("one")
_answer(1).question()
"""
# The types of PyTorch take a minute to read, and are not kjit's.
SETTINGS = """
[mypy]
strict = true
[mypy-torch.*,triton.*,tvm_ffi.*]
follow_imports = skip
ignore_missing_imports = true
"""


@pytest.mark.needs("mypy")
def test_a_client_is_checked_against_the_types_of_kjit(tmp_path: Path) -> None:
    if find_spec("kjit._version") is None:
        pytest.skip(
            "kjit was never installed or built here: its version is in no file that the type checker could read"
        )
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    (tmp_path / "right.py").write_text(CLIENT)
    (tmp_path / "wrong.py").write_text(CLIENT + WRONG)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [(line.partition(":")[0], line.rpartition("[")[2]) for line in errors] == [
        ("wrong.py", "call-arg]"),
        ("wrong.py", "arg-type]"),
        ("wrong.py", "attr-defined]"),
    ], done.stdout + done.stderr
