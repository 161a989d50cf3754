"""kjit/patterns/gather.h on a GPU, or in the simulator."""

from __future__ import annotations

from typing import Any

import gathering
import pytest
import torch
from gathering import LOOK_UPS, OFFSETS, SHAPES, check_look_up
from machine import DEVICE

CASES = "gather_cases"
EXPORTS = gathering.EXPORTS


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("number", range(len(LOOK_UPS)))
def test_rows_that_an_index_chooses_meet_what_is_beside_them(
    module: Any, number: int, offsets: tuple[int, int, int], absent: bool
) -> None:
    for shape in SHAPES:
        check_look_up(module, number, shape, offsets, DEVICE, absent=absent)


@pytest.mark.parametrize("columns", [257, 256, 1])
def test_a_table_without_rows_gives_zeros(module: Any, columns: int) -> None:
    def ones(*shape: int) -> torch.Tensor:
        return torch.ones(shape, device=DEVICE)

    index, total, out = ones(5).long(), ones(5, columns), ones(5, columns)
    module.look_up_0(ones(0, columns), index, ones(columns), None, ones(5), None, total, out)
    assert out.eq(0).all()
    assert total.eq(2).all()
