"""A project whose ops need no compiler, for tests of recorded calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kjit.runtime import recording

PACKAGE = "replayed_kernels"

WRAPPER = """
import torch

import kjit

@kjit.module()
def _scale() -> kjit.Spec:
    return kjit.Spec("scale", cpp_files=["/nowhere/scale.cpp"])

@kjit.torch_op(outputs=lambda x: torch.empty_like(x))
def scale(x: torch.Tensor, alpha: float = 2.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    if x.shape[0] == 13:
        raise RuntimeError("Tensor match failed for x\\n  its shape is wrong")
    return torch.mul(x, alpha + (x.shape[0] == 7), out=out)

@kjit.torch_op(mutates_args=("x",))
def clear(x: torch.Tensor) -> None:
    x.zero_()

@kjit.torch_op(mutates_args=("table",))
def store(rows: torch.Tensor, table: torch.Tensor, slots: torch.Tensor) -> None:
    table[slots] = rows
"""
_TEST = """
from typing import Any

import torch

import kjit.testing
from {package}.scale import _scale, scale, store

def reference(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return x * alpha

def make_inputs(shape: tuple[int, ...], device: str) -> dict[str, Any]:
    return {{"x": torch.ones(shape, device=device), "alpha": 2.0}}

def stored(rows: torch.Tensor, table: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    table[slots] = rows
    return table

REFERENCES = {{store: stored}}

class TestScale(kjit.testing.OpTest, op=scale, module=_scale, reference=reference, inputs=make_inputs):
    shape = (3,)
    shapes = ((3,),)
"""


def write_project(root: Path) -> Path:
    """A project in `root` with the ops `scale`, of which it has a test, `store`, of which it has a reference, and
    `clear`. `scale` is wrong for seven rows, and refuses thirteen."""
    (root / PACKAGE).mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{PACKAGE}"\n')
    (root / PACKAGE / "__init__.py").touch()
    (root / PACKAGE / "scale.py").write_text(WRAPPER)
    (root / "tests" / "test_scale.py").write_text(_TEST.format(package=PACKAGE))
    return root


def forget() -> None:
    """Have Python import the project's package anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    importlib.invalidate_caches()


def record(root: Path, folder: Path, calls: Callable[[ModuleType], object], **environment: str) -> None:
    """Import the project's wrapper while calls are recorded into `folder`, and make some; then forget it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_RECORD", str(folder))
        for name, value in environment.items():
            patch.setenv(name, value)
        recording.recorder.cache_clear()
        patch.syspath_prepend(str(root))
        forget()
        calls(importlib.import_module(f"{PACKAGE}.scale"))
    forget()
