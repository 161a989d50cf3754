"""The C++ cases once more, under the address and undefined-behaviour sanitizers: none of them finds anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sanitized

HERE = Path(__file__).parent
CASES = sorted(
    path.name for path in HERE.glob("test_*.py") if path.name not in ("test_headers.py", Path(__file__).name)
)
QUICK = ("test_ffi.py", "test_tensor.py", "test_utils.py")
"""What each call passes through. The other headers' loops take a minute and more."""

pytestmark = pytest.mark.skipif(bool(sanitized.why_not()), reason=sanitized.why_not())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python that may load sanitized libraries."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=sanitized.environment(), cwd=HERE, capture_output=True, text=True)


@pytest.mark.parametrize(
    "cases", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in CASES]
)
def test_the_cases_pass_with_nothing_to_report(cases: str) -> None:
    # Without the plugins of the run around it, which would start processes of their own.
    done = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", cases)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert "runtime error" not in done.stderr


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sanitized.build(HERE / "planted_cases.cpp", tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("write_past_the_end", "heap-buffer-overflow"),
        ("read_a_tensor_past_its_end", "heap-buffer-overflow"),
        ("use_after_free", "heap-use-after-free"),
        ("overflow", "signed integer overflow"),
        ("misaligned_load", "misaligned address"),
    ],
)
def test_a_planted_mistake_is_reported(planted: Path, name: str, report: str) -> None:
    done = run("-c", f"import tvm_ffi; tvm_ffi.load_module({str(planted)!r}).{name}(5)")
    assert done.returncode != 0
    assert report in done.stderr


def test_without_a_mistake_nothing_is_reported(planted: Path) -> None:
    done = run("-c", f"import tvm_ffi; assert tvm_ffi.load_module({str(planted)!r}).none(5) == 5")
    assert (done.returncode, done.stderr) == (0, "")
