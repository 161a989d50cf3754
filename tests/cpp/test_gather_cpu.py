"""kjit/patterns/gather.h on the CPU."""

from __future__ import annotations

from typing import Any

import gathering
import pytest
from gathering import LOOK_UPS, OFFSETS, SHAPES, check_look_up

CASES = "gather_cases"
EXPORTS = gathering.EXPORTS


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("number", range(len(LOOK_UPS)))
def test_rows_that_an_index_chooses_meet_what_is_beside_them(
    module: Any, number: int, offsets: tuple[int, int, int], absent: bool
) -> None:
    for shape in SHAPES:
        check_look_up(module, number, shape, offsets, "cpu", absent=absent)
