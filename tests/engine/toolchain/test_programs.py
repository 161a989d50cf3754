"""kjit.engine.toolchain.programs: ninja."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from fakes import write_program

from kjit.engine.toolchain.programs import find_ninja
from kjit.errors import ToolchainError


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


def test_ninja_is_found_on_path_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = write_program(tmp_path / "ninja", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ninja() == program


def test_without_ninja_on_path_the_package_has_one() -> None:
    pytest.importorskip("ninja")
    assert os.access(find_ninja(), os.X_OK)


def test_no_ninja_at_all_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match="pip install ninja"):
        find_ninja()
