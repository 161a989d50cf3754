"""The checks of each pattern's kernels, on a GPU and on the CPU: those of the modules `pattern_*.py`.

Such a module has the EXPORTS of the ops in tests/gpu/PATTERN_cases.h, and their `checks()`, if a test for all patterns
runs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Check = Callable[[Any, str], None]
"""Called with the compiled module and the name of the device."""

HERE = Path(__file__).parent
NAMES = sorted(path.stem.removeprefix("pattern_") for path in HERE.glob("pattern_*.py"))


def cases_of(pattern: str) -> tuple[Path, list[tuple[str, str]]]:
    """The file with the ops, and their exports."""
    return HERE / "gpu" / f"{pattern}_cases.h", importlib.import_module(f"pattern_{pattern}").EXPORTS


def each_check() -> pytest.MarkDecorator:
    """The parameters `pattern` and `check` of a test."""
    found = [
        pytest.param(name, check, id=f"{name}-{of}")
        for name in NAMES
        for of, check in getattr(importlib.import_module(f"pattern_{name}"), "checks", list)()
    ]
    return pytest.mark.parametrize(("pattern", "check"), found)
