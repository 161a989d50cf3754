"""kjit/patterns/*.h on a GPU, or in the simulator; test_rowwise.py has those of rowwise."""

from __future__ import annotations

from functools import cache
from typing import Any

from each_pattern import Check, cases_of, each_check
from machine import DEVICE, QUICKLY

import kjit


@cache
def module_of(pattern: str) -> Any:
    path, exports = cases_of(pattern)
    return kjit.load_jit(path.stem, cuda_files=[path], cuda_wrappers=exports, extra_cuda_cflags=list(QUICKLY))


@each_check()
def test_results_are_exact_and_nothing_else_is_written(pattern: str, check: Check) -> None:
    check(module_of(pattern), DEVICE)
