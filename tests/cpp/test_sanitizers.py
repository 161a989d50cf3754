"""The C++ cases under the address and undefined-behaviour sanitizers, without findings."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import sanitized
from exported import functions_of

HERE = Path(__file__).parent
CASES = sorted(
    path.name for path in HERE.glob("test_*.py") if path.name not in ("test_headers.py", Path(__file__).name)
)

pytestmark = pytest.mark.skipif(bool(sanitized.why_not()), reason=sanitized.why_not())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python that can load sanitized libraries."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=sanitized.environment(), cwd=HERE, capture_output=True, text=True)


@pytest.mark.nightly
@pytest.mark.parametrize("cases", CASES)
def test_the_cases_pass_with_nothing_to_report(cases: str) -> None:
    # Without the plugins of the outer run, which would start processes of their own.
    done = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", cases)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert "runtime error" not in done.stderr


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE / "planted_cases.cpp"
    return sanitized.build(source, functions_of(source), tmp_path_factory.mktemp("planted"))


# Each call in its own process, as a report ends it; forked, since a sanitized Python is slow to start.
CALLS = """
import os, sys, tvm_ffi
library, *names = sys.argv[1:]
module = tvm_ffi.load_module(library)
for name in names:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 2)
        os.close(write)
        os._exit(getattr(module, name)(5))
    os.close(write)
    with open(read) as stderr:
        report = stderr.read()
    print(repr((name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), report)))
"""
REPORTS = {
    "write_past_the_end": "heap-buffer-overflow",
    "overflow": "signed integer overflow",
}


def test_planted_mistakes_are_reported_and_without_one_nothing_is(planted: Path) -> None:
    done = run("-c", CALLS, str(planted), "none", *REPORTS)
    assert done.returncode == 0, done.stderr
    (name, status, report), *others = map(ast.literal_eval, done.stdout.splitlines())
    assert (name, status, report) == ("none", 5, "")
    assert [name for name, _, _ in others] == list(REPORTS)
    for name, status, report in others:
        assert status != 0
        assert REPORTS[name] in report
