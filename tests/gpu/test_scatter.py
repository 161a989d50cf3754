"""kjit/patterns/scatter.h on a GPU, or in the simulator."""

from __future__ import annotations

from typing import Any

import pytest
import scattering
from machine import DEVICE
from scattering import OFFSETS, SHAPES, STORES, check_duplicates, check_store

CASES = "scatter_cases"
EXPORTS = scattering.EXPORTS


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("number", range(len(STORES)))
def test_rows_go_where_an_index_says_and_nothing_else_is_written(
    module: Any, number: int, offsets: tuple[int, int, int], absent: bool
) -> None:
    for shape in SHAPES:
        check_store(module, number, shape, offsets, DEVICE, absent=absent)


def test_a_row_that_is_named_twice_gets_one_of_the_values(module: Any) -> None:
    check_duplicates(module, DEVICE)
