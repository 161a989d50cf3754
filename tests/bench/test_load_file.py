"""kjit.benchmark.load_file: a file as a module that others find by its name."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from kjit.benchmark import load_file


def test_its_functions_belong_to_a_module_that_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("FACTOR = 2\n\ndef twice(x):\n    return FACTOR * x\n")
    module = load_file(tmp_path / "test_x.py")
    assert module.twice(3) == 6
    assert importlib.import_module(module.twice.__module__) is module


def test_a_file_that_changed_within_a_second_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "test_x.py"
    loaded = []
    for factor in (2, 3):
        path.write_text(f"FACTOR = {factor}\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        loaded.append(load_file(path).FACTOR)
    assert loaded == [2, 3]
