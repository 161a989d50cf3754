"""tools/faults.py, for a short time: with any fault nothing wrong is loaded, nothing hangs, and nothing crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "faults.py"
COUNT, VARIANTS = 1, 20

FAULTS = (
    "Killed",
    "DiskFull",
    "Truncated",
    "Flipped",
    "Replaced",
    "NoRecord",
    "Deleted",
    "TwoVersions",
    "ClockSetBack",
    "Edited",
    "CompilerReplaced",
    "OddNames",
    "Copied",
    "Exchanged",
    "ManyVariants",
)


EVERY_DAY = ("Killed", "Flipped", "TwoVersions", "CompilerReplaced", "Exchanged")
"""One of each kind: of builds, of files in the cache, of kjit, of compilers, of what is known by times."""


@pytest.mark.parametrize(
    "faults", [pytest.param(EVERY_DAY, id="some"), pytest.param(FAULTS, id="all", marks=pytest.mark.nightly)]
)
def test_no_fault_makes_kjit_load_a_wrong_module_or_hang(tmp_path: Path, faults: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--json", f"--count={COUNT}", f"--variants={VARIANTS}", "--seed=1", "--only", *faults],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    table = json.loads(done.stdout)
    injected = {name: row.pop("injected") for name, row in table.items()}
    assert injected == {name: VARIANTS if name == "ManyVariants" else COUNT for name in faults}
    for name, row in table.items():
        assert row.pop("loads") >= COUNT, name
        assert row == {"wrong": 0, "hangs": 0, "crashes": 0}, name
