"""Ops of inference engines are scaffolded and built, and correct once their math is in the marked places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from forked import Forks
from real_ops import REAL, RealOp

from kjit.engine.miss import ensure_built
from kjit.project import find_project
from kjit.runtime.declared import declared_in
from kjit.spec import Target
from kjit.testing import Kernels

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
        real.write(project, find_project(project).package)
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
@pytest.mark.parametrize("real", REAL, ids=lambda real: real.op.name)
def test_none_spills_registers(project: Path, real: RealOp) -> None:
    real.write(project, find_project(project).package)
    module = declared_in(vars(find_project(project).import_wrapper(real.op.name)))[0]
    for variant in module.variants([Target.cuda(arch) for arch in ("8.0", "9.0a", "10.0a")]):
        Kernels().check(ensure_built(variant))
