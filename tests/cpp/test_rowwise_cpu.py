"""kjit/patterns/rowwise.h on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pattern_rowwise
import pytest
import torch
from pattern_rowwise import CHECKS, MIXES, check_every_role, check_special_rows

CASES = "rowwise_cases"
EXPORTS = pattern_rowwise.EXPORTS

# Empty, less than a vector, around the boundaries of vectors and of staged or combined parts; for one thread and for
# several.
SHAPES = [(3, 0), (70, 1), (5, 7), (40, 96), (9, 128), (33, 129), (40, 1000), (9, 4097), (1, 66_001)]


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("op", CHECKS)
def test_rows_of_every_length_are_as_the_reference_in_float64(module: Any, op: str, offset: int) -> None:
    for rows, columns in SHAPES:
        CHECKS[op](module, rows, columns, offset, "cpu")


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", [(0, 0), (1, 1), (0, 3)])
@pytest.mark.parametrize("number", range(len(MIXES)))
def test_tensors_of_every_role_and_several_dtypes(
    module: Any, number: int, offsets: tuple[int, int], absent: bool
) -> None:
    for rows, columns in SHAPES:
        check_every_role(module, number, rows, columns, offsets, "cpu", absent=absent)


@pytest.mark.parametrize("columns", [5, 33, 64, 128, 5001])
def test_nan_and_infinities_are_as_torch_has_them(module: Any, columns: int) -> None:
    check_special_rows(module, columns, "cpu")


def test_totals_are_the_same_in_each_run(module: Any) -> None:
    x = torch.randn(3, 70_001)
    runs = [torch.empty_like(x) for _ in range(3)]
    for out in runs:
        module.softmax(x, out)
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


def test_results_are_the_same_where_they_go_past_the_caches(run_past_the_caches: Callable[[str, str], str]) -> None:
    assert "passed" in run_past_the_caches(__file__, "every_length and (rms_norm or softmax or quantise) or every_role")
