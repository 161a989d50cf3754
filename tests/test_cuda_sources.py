"""Every CUDA source of the repository compiles, for several architectures, with no GPU."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

import kjit
from kjit.project import find_project
from kjit.runtime.load import ensure_built

ROOT = Path(__file__).resolve().parent.parent
ARCHS = ["8.0", "9.0a", "10.0a"]
OPS = [
    value
    for op in find_project(ROOT).ops()
    for value in vars(importlib.import_module(f"kjit.ops.{op}")).values()
    if isinstance(value, kjit.DeclaredModule)
]

pytestmark = pytest.mark.nvcc


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("spec", [spec for op in OPS for spec in op.specs()], ids=lambda spec: spec.label)
def test_a_reference_op_compiles(spec: kjit.Spec, arch: str) -> None:
    artifact = ensure_built(kjit.Variant(spec.only("cuda"), kjit.Target.cuda(arch)))
    assert artifact.build["warnings"] == ""


@pytest.mark.parametrize("arch", ARCHS)
def test_the_kernels_of_the_gpu_tests_compile(arch: str) -> None:
    exports = runpy.run_path(str(ROOT / "tests" / "gpu" / "test_launch.py"))["EXPORTS"]
    spec = kjit.Spec("launch_cases", cuda_files=[ROOT / "tests" / "gpu" / "launch_cases.cuh"], cuda_wrappers=exports)
    artifact = ensure_built(kjit.Variant(spec, kjit.Target.cuda(arch)))
    assert artifact.build["warnings"] == ""
