"""kjit/patterns/elementwise.h on a GPU, or in the simulator."""

from __future__ import annotations

from typing import Any

import elementwise
import pytest
from elementwise import HALVES, MIXES, NEGATED, OFFSETS, SHAPES, SIZES, check_halves, check_mix, check_negate
from machine import DEVICE

CASES = "elementwise_cases"
EXPORTS = elementwise.EXPORTS


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("number", range(len(MIXES)))
def test_every_element_of_tensors_of_several_dtypes_is_computed(
    module: Any, number: int, offsets: tuple[int, ...], absent: bool
) -> None:
    for size in SIZES:
        check_mix(module, number, size, offsets, DEVICE, absent=absent)


@pytest.mark.parametrize("offset", [0, 1, 7])
@pytest.mark.parametrize("number", range(len(NEGATED)))
def test_a_tensor_is_changed_in_place_by_math_that_is_a_template(module: Any, number: int, offset: int) -> None:
    for size in SIZES:
        check_negate(module, number, size, offset, DEVICE)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (0, 32), (0, 3), (1, 0)])
@pytest.mark.parametrize("number", range(len(HALVES)))
def test_rows_that_do_not_follow_each_other_are_read_and_written_at_their_places(
    module: Any, number: int, offset: int, gap: int, absent: bool
) -> None:
    for shape in SHAPES:
        check_halves(module, number, shape, offset, gap, DEVICE, absent=absent)
