"""kjit/detail/row_memory.cuh in the simulator, which checks each access to memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pattern_gather
import pattern_rowwise
import pytest
import torch
from parts import InParts

import kjit
from kjit.testing import simulated

OPS = ["rms_norm", "layer_norm"]
LOOK_UPS = [0, 1]
EXPORTS = [
    *((name, symbol) for name, symbol in pattern_rowwise.EXPORTS if name in OPS),
    ("rms_norm_of_bytes", "RmsNorm<fp8_e4m3_t>::run"),
    *(pattern_gather.EXPORTS[number] for number in LOOK_UPS),
]


@pytest.fixture(scope="module")
def module() -> Any:
    def load(exports: Sequence[tuple[str, str]]) -> Any:
        with simulated(check=True):
            return kjit.load_jit(
                "row_memory_cases",
                cuda_files=[Path(__file__).parent / "row_memory_cases.cuh"],
                cuda_wrappers=exports,
                extra_cuda_cflags=["-O1", "-Xcompiler=-g1"],
            )

    return InParts(load, EXPORTS, ["layer_norm", "look_up_1"])


def first(names: Sequence[Any]) -> list[Any]:
    """The first of them every day, the others every night."""
    return [pytest.param(name, marks=pytest.mark.nightly if number else ()) for number, name in enumerate(names)]


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("columns", [17, 131, 1001])
@pytest.mark.parametrize("op", first(OPS))
def test_rows_that_begin_anywhere_are_read_inside_of_their_tensors(
    module: Any, op: str, columns: int, offset: int
) -> None:
    for rows in (1, 3):
        pattern_rowwise.CHECKS[op](module, rows, columns, offset, "cpu")


@pytest.mark.parametrize("offsets", [(1, 0, 0), (0, 1, 0), (3, 0, 1)])
@pytest.mark.parametrize("columns", [17, 131])
@pytest.mark.parametrize("number", first(LOOK_UPS))
def test_so_are_the_rows_of_a_table(module: Any, number: int, columns: int, offsets: tuple[int, int, int]) -> None:
    for rows in (1, 40):
        pattern_gather.check_look_up(module, number, (rows, columns), offsets, "cpu", absent=False)


@pytest.mark.parametrize("columns", [17, 517, 2049, 4097])
def test_each_element_of_a_row_is_done_whose_vectors_have_sixteen(module: Any, columns: int) -> None:
    x = torch.randn(130, columns).clamp(0.25, 2).to(torch.float8_e4m3fn)
    out = torch.zeros_like(x)
    module.rms_norm_of_bytes(x, torch.ones(columns).to(x.dtype), 1e-6, out)
    right = torch.nn.functional.rms_norm(x.double(), (columns,), eps=1e-6)
    torch.testing.assert_close(out.double(), right, rtol=0.07, atol=0)


def test_a_row_that_is_too_long_is_refused(module: Any) -> None:
    x = torch.empty(1, 2**30 + 1, dtype=torch.bfloat16)  # memory that nobody touches
    message = "a row of 1073741825 elements is longer than pattern rowwise takes on a GPU, 1073741824"
    with pytest.raises(RuntimeError, match=message):
        module.rms_norm(x, x[0], 1e-6, torch.empty_like(x))
