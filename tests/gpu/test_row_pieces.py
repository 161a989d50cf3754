"""kjit/detail/row_pieces.cuh on a GPU, or in the simulator."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from machine import DEVICE

VECTORS = (1, 4, 8)
CASES = "row_pieces_cases"
EXPORTS = [(f"visit_{vec}", f"visit<{vec}>") for vec in VECTORS]


@pytest.mark.parametrize("most", [0, 7, 64])
@pytest.mark.parametrize("vec", VECTORS)
@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (1, 1000), (300, 8), (7, 257), (40, 33), (3, 2048), (129, 64)])
def test_every_element_is_in_one_piece(module: Any, vec: int, rows: int, vectors: int, most: int) -> None:
    size = vectors * vec
    visits = torch.zeros(rows * size + 1, dtype=torch.int32, device=DEVICE)
    getattr(module, f"visit_{vec}")(visits, rows, size, most)
    assert visits[:-1].eq(1).all()
    assert visits[-1] == 0


@pytest.mark.parametrize(("rows", "size"), [(0, 8), (5, 0), (0, 0)])
def test_of_nothing_there_are_no_pieces(module: Any, rows: int, size: int) -> None:
    visits = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    module.visit_4(visits, rows, size, 0)
    assert visits.tolist() == [0]


def test_a_piece_is_found_without_a_division(module: Any) -> None:
    numbers = random.Random(0)
    most = 2**30
    sizes = [1, 2, 3, 5, 7, 641, 65_535, 65_537, 2**29, 2**30 - 1, 2**30, *(2**n + 1 for n in range(2, 30, 3))]
    for of_row in [*sizes, *(numbers.randint(1, 2 ** numbers.randint(1, 30)) for _ in range(100))]:
        rows = most // of_row
        last = rows * of_row - 1
        near = [of_row * numbers.randint(0, rows - 1) + at for at in (0, of_row - 1) for _ in range(20)]
        asked = [0, last, *near, *(numbers.randint(0, last) for _ in range(20))]
        found = torch.empty(len(asked), dtype=torch.int64, device=DEVICE)
        module.divide(found, torch.tensor(asked, device=DEVICE), of_row)
        assert found.tolist() == [number // of_row for number in asked], of_row


def test_no_dimension_of_a_grid_is_too_large(module: Any) -> None:
    """The hardware has 65,535 blocks in y and z."""
    assert [module.grid(1000, 4096, i) for i in range(3)] == [2000, 1, 1]
    assert [module.grid(2**34, 8, i) for i in range(3)] == [2**22, 16, 1]
    assert [module.grid(2, 2**40, i) for i in range(3)] == [2**22, 2, 128]
