"""kjit/patterns/*.h on the CPU; test_rowwise_cpu.py has those of rowwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from each_pattern import Check, cases_of, each_check


@pytest.fixture(scope="module")
def module_of(load_cpp: Callable[..., Any]) -> Callable[[str], Any]:
    return cache(lambda pattern: load_cpp(cases_of(pattern)[0].stem, cases_of(pattern)[1]))


@each_check()
def test_results_are_exact_and_nothing_else_is_written(
    module_of: Callable[[str], Any], pattern: str, check: Check
) -> None:
    check(module_of(pattern), "cpu")


def test_results_are_the_same_where_they_go_past_the_caches(run_past_the_caches: Callable[[str, str], str]) -> None:
    assert "passed" in run_past_the_caches(__file__, "elementwise and (mix or in_place)")
