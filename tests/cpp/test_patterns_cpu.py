"""kjit/patterns/*.h on the CPU; test_rowwise_cpu.py has those of rowwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from each_pattern import Check, cases_of, each_check
from forked import Forks

from kjit import env


@pytest.fixture(scope="module")
def module_of(load_cpp: Callable[..., Any]) -> Callable[[str], Any]:
    return cache(lambda pattern: load_cpp(cases_of(pattern)[0].stem, cases_of(pattern)[1]))


@each_check()
def test_results_are_exact_and_nothing_else_is_written(
    module_of: Callable[[str], Any], pattern: str, check: Check
) -> None:
    check(module_of(pattern), "cpu")


def test_results_are_the_same_where_they_go_past_the_caches(forked: Forks) -> None:
    # The variable is read once per process.
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    chosen = ["-k", "elementwise and (mix or in_place)"]
    # The settings of this repository are for one of the plugins.
    variables = {env.CPU_CACHE_BYTES: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = forked.pytest(*options, *chosen, cwd=Path(__file__).parent, **variables)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
