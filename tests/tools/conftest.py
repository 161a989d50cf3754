"""Access to the scripts in tools/, which are no package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def import_tool() -> Callable[[str], ModuleType]:
    """Imports a script of tools/ by its name."""

    def imported(name: str) -> ModuleType:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.pop(0)

    return imported
