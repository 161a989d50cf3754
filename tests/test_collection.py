"""The test run itself: a file of tests that pytest passes over looks like one that passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slow import SLOW

ROOT = Path(__file__).parents[1]


def test_a_run_from_the_project_s_root_collects_every_file_of_tests() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", ""]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    collected = {line.partition("::")[0] for line in run.stdout.splitlines() if "::" in line}
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")}
    assert collected == files


def test_what_is_left_out_of_the_fast_tests_exists() -> None:
    assert [name for name in SLOW if not (ROOT / name).exists()] == []
    assert list(SLOW) == sorted(set(SLOW))
