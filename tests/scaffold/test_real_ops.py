"""Ops of inference engines are scaffolded, built and right, once their math is written where the scaffold says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from real_ops import REAL, RealOp

PACKAGE = "real_kernels"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.kjit]\npackage = "{PACKAGE}"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    return tmp_path


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in the project; kernels run on the GPU where there is one, else in the simulator."""
    environment = {**os.environ, "COLUMNS": "200"}
    if not torch.cuda.is_available():
        environment["KJIT_SIM"] = "1"
    arguments = [sys.executable, "-m", *command]
    return subprocess.run(arguments, cwd=project, env=environment, capture_output=True, text=True, check=False)


CHOSEN = ("quantise_groups", "top_k", "gather_layers_")
"""With sizes that follow from others, a list of tensors, and two of the patterns."""


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([real for real in REAL if real.op.name in CHOSEN], id="some"),
        pytest.param(REAL, id="all", marks=pytest.mark.nightly),
    ],
)
def test_with_their_math_they_pass_their_tests(project: Path, ops: Sequence[RealOp]) -> None:
    for real in ops:
        real.write(project, PACKAGE)
    done = run(project, "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-k", "not compile and not torch_library")
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
    done = run(project, "kjit", "build", "--target", "cuda", "--arch", "9.0a")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr
