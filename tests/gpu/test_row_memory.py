"""kjit/detail/row_memory.cuh in the simulator, which sees each access outside of a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gathering
import pytest
import rowwise

import kjit
from kjit.testing import simulated

OPS = ["rms_norm", "layer_norm"]
LOOK_UPS = [0, 1]
EXPORTS = [
    *((name, symbol) for name, symbol in rowwise.EXPORTS if name in OPS),
    *(gathering.EXPORTS[number] for number in LOOK_UPS),
]


@pytest.fixture(scope="module")
def module() -> Any:
    with simulated(check=True):
        return kjit.load_jit(
            "row_memory_cases",
            cuda_files=[Path(__file__).parent / "row_memory_cases.cuh"],
            cuda_wrappers=EXPORTS,
            extra_cuda_cflags=["-O1"],
        )


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("columns", [17, 131, 1001])
@pytest.mark.parametrize("op", OPS)
def test_rows_that_begin_anywhere_are_read_inside_of_their_tensors(
    module: Any, op: str, columns: int, offset: int
) -> None:
    for rows in (1, 3):
        rowwise.CHECKS[op](module, rows, columns, offset, "cpu")


@pytest.mark.parametrize("offsets", [(1, 0, 0), (0, 1, 0), (3, 0, 1)])
@pytest.mark.parametrize("columns", [17, 131])
@pytest.mark.parametrize("number", LOOK_UPS)
def test_so_are_the_rows_of_a_table(module: Any, number: int, columns: int, offsets: tuple[int, int, int]) -> None:
    for rows in (1, 40):
        gathering.check_look_up(module, number, (rows, columns), offsets, "cpu", absent=False)
