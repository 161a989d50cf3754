"""kjit/patterns/*.h on a GPU, or in the simulator; test_rowwise.py has those of rowwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from each_pattern import Check, cases_of, each_check
from machine import DEVICE


@pytest.fixture(scope="module")
def module_of(load_cuda: Callable[..., Any]) -> Callable[[str], Any]:
    return cache(lambda pattern: load_cuda(cases_of(pattern)[0].stem, cases_of(pattern)[1]))


@each_check()
def test_results_are_exact_and_nothing_else_is_written(
    module_of: Callable[[str], Any], pattern: str, check: Check
) -> None:
    check(module_of(pattern), DEVICE)
