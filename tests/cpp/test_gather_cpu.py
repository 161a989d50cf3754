"""kjit/patterns/gather.h on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gathering import LOOK_UPS, OFFSETS, SHAPES, check_look_up


@pytest.fixture(scope="module")
def module(load_cpp: Callable[[str], Any]) -> Any:
    return load_cpp("gather_cases")


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("number", range(len(LOOK_UPS)))
def test_rows_that_an_index_chooses_meet_what_is_beside_them(
    module: Any, number: int, offsets: tuple[int, int, int], absent: bool
) -> None:
    for shape in SHAPES:
        check_look_up(module, number, shape, offsets, "cpu", absent=absent)
