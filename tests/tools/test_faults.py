"""tools/faults.py for a short while: whatever fault comes, nothing wrong is loaded, nothing hangs, nothing crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
    "Recalled",
    "ManyVariants",
)


def test_no_fault_makes_kjit_load_a_wrong_module_or_hang(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--json", f"--count={COUNT}", f"--variants={VARIANTS}", "--seed=1"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    table = json.loads(done.stdout)
    injected = {name: row.pop("injected") for name, row in table.items()}
    assert injected == {name: VARIANTS if name == "ManyVariants" else COUNT for name in FAULTS}
    for name, row in table.items():
        assert row.pop("loads") >= COUNT, name
        assert row == {"wrong": 0, "hangs": 0, "crashes": 0}, name
