"""tools/test_range.py: its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tool(import_tool: Callable[[str], Any]) -> Any:
    return import_tool("test_range")


@pytest.fixture
def declared(tool: Any, tmp_path: Path) -> Any:
    (tmp_path / "pyproject.toml").write_text(
        """
[project]
requires-python = ">=3.10"
classifiers = ["Programming Language :: Python :: 3.11", "Programming Language :: Python :: 3.10"]
dependencies = ["torch>=2.6", "rich>=13,<16", "tomli>=2; python_version < '3.11'"]
[project.optional-dependencies]
bench = ["pandas>=2"]
dev = ["hypothesis>=6", "numpy>=1", "packaging>=23", "pytest>=8", "pytest-timeout>=2", "pytest-xdist>=3"]
"""
    )
    return tool.Declared.read(tmp_path / "pyproject.toml")


def test_every_python_runs_with_the_lowest_and_with_the_latest_or_says_that_it_is_not_here(
    tool: Any, declared: Any
) -> None:
    rows = tool.rows_of(declared, {"3.10": "/usr/bin/python3.10"})
    assert [row.name for row in rows] == ["3.10-lowest", "3.10-latest", "3.11-lowest", "3.11-latest"]
    assert [row.interpreter for row in rows[:2]] == ["/usr/bin/python3.10"] * 2
    assert [row.skipped for row in rows] == ["", "", *["there is no Python 3.11 on this machine"] * 2]
    table = tool.results_table(rows[2:])
    assert table.splitlines()[2].startswith("| 3.11   | lowest       |       | skipped: there is no Python 3.11")
    assert "passed" not in table
    assert tool.exit_status(rows[2:]) == 1
