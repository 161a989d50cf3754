"""Every CUDA source of the repository compiles, for several architectures, with no GPU."""

from __future__ import annotations

import importlib
import re
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

GPU_TESTS = [
    path for path in sorted((ROOT / "tests" / "gpu").glob("test_*.py")) if "EXPORTS" in path.read_text("utf-8")
]

pytestmark = pytest.mark.nvcc


@pytest.fixture(autouse=True)
def gpu_tests_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))  # for formats.py


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("spec", [spec for op in OPS for spec in op.specs()], ids=lambda spec: spec.label)
def test_a_reference_op_compiles(spec: kjit.Spec, arch: str) -> None:
    artifact = ensure_built(kjit.Variant(spec.only("cuda"), kjit.Target.cuda(arch)))
    assert artifact.build["warnings"] == ""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("module", GPU_TESTS, ids=lambda path: path.stem)
def test_the_kernels_of_a_gpu_test_compile(module: Path, arch: str) -> None:
    exports = runpy.run_path(str(module))["EXPORTS"]
    (cases,) = set(re.findall(r"\b\w+_cases\b", module.read_text("utf-8")))
    spec = kjit.Spec(cases, cuda_files=[module.parent / f"{cases}.cuh"], cuda_wrappers=exports)
    artifact = ensure_built(kjit.Variant(spec, kjit.Target.cuda(arch)))
    assert artifact.build["warnings"] == ""
