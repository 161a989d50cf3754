"""The projects in `examples/`: copied to an empty folder, built, tested and shipped as their page describes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from forked import Forks

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the example that the test is about."""
    ignored = shutil.ignore_patterns("__pycache__", "prebuilt", "dist", ".pytest_cache")
    return Path(shutil.copytree(EXAMPLES / request.param, tmp_path / request.param, ignore=ignored))


def run(folder: Path, *arguments: str, **environment: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("example", ["one-file"], indirect=True)
def test_a_kernel_in_one_file(example: Path) -> None:
    assert "deviations 1.000" in run(example, "standardize.py")


@pytest.mark.nvcc
@pytest.mark.parametrize("example", ["histogram"], indirect=True)
def test_a_kernel_written_by_hand(example: Path, forked: Forks) -> None:
    done = forked.pytest("-q", "-p", "no:cacheprovider", cwd=example)
    assert (done.returncode, " passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.nightly
@pytest.mark.needs("build", "hatchling")
@pytest.mark.parametrize("example", ["softcap"], indirect=True)
def test_an_op_of_kjit_new_is_tested_and_shipped_in_a_wheel(example: Path, tmp_path: Path) -> None:
    assert " passed" in run(example, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "agrees and cpu and 32")
    run(example, "-m", "kjit", "build", "--target", "cpu", "--out", "kernels/prebuilt")
    run(example, "-m", "build", "--wheel", "--no-isolation")
    (wheel,) = (example / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    use = "import torch; from kernels.softcap import softcap; print(softcap(torch.tensor([0.0, 1e9]), 2.0).tolist())"
    alone = {"KJIT_CACHE_DIR": str(tmp_path / "none"), "KJIT_NO_COMPILE": "1", "PYTHONPATH": str(installed)}
    assert run(tmp_path, "-c", use, **alone) == "[0.0, 2.0]\n"
