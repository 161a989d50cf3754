"""Ops of inference engines are scaffolded and built, and correct once their math is in the marked places."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from forked import Forks
from real_ops import REAL, RealOp

PACKAGE = "real_kernels"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.kjit]\npackage = "{PACKAGE}"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    return tmp_path


CHOSEN = ("quantise_groups", "top_k", "gather_layers_")
"""With sizes that follow from others, a list of tensors, and two of the patterns."""


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([real for real in REAL if real.op.name in CHOSEN], id="some"),
        pytest.param(REAL, id="all", marks=pytest.mark.nightly),
    ],
)
def test_with_their_math_they_pass_their_tests(
    project: Path, ops: Sequence[RealOp], forked: Forks, quick_simulator: list[str]
) -> None:
    for real in ops:
        real.write(project, PACKAGE)
    options = ["-q", "-rf", "-p", "no:cacheprovider", *quick_simulator, "-k", "not compile and not torch_library"]
    simulated = {} if torch.cuda.is_available() else {"KJIT_SIM": "1"}
    done = forked.pytest(*options, cwd=project, **simulated)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed", done.stdout.splitlines()[-1])
    assert passed is not None
    assert int(passed[1]) > 20 * len(ops)
    assert "not written yet" not in done.stdout


@pytest.mark.nvcc
@pytest.mark.nightly
def test_nvcc_builds_all_of_them(project: Path) -> None:
    for real in REAL:
        real.write(project, PACKAGE)
    command = [sys.executable, "-m", "kjit", "build", "--target", "cuda", "--arch", "9.0a"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr
