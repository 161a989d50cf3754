"""kjit/patterns/rowwise.h on a GPU, or in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from machine import DEVICE, many
from parts import InParts
from pattern_rowwise import CHECKS, EXPORTS, HUGE, MANY, MIXES, OFFSETS, SHAPES, check_every_role, check_special_rows

EVERY_NIGHT = ["add_rms_norm", "qk_norm_across", "every_role_1"]
"""Ops of which another has as many tensors, or the same code for other dtypes."""


def every_night(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly if name in EVERY_NIGHT else ()) for name in names]


@pytest.fixture(scope="module")
def module(load_cuda: Callable[..., Any]) -> Any:
    return InParts(partial(load_cuda, "rowwise_cases"), EXPORTS, EVERY_NIGHT)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("op", every_night(CHECKS))
def test_rows_of_every_length_are_as_the_reference_in_float64(module: Any, op: str, offset: int) -> None:
    for rows, columns in SHAPES:
        CHECKS[op](module, rows, columns, offset, DEVICE)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "cross_entropy"])
@pytest.mark.parametrize("shape", [MANY, HUGE])
def test_many_rows_and_rows_that_no_cluster_holds(module: Any, op: str, shape: tuple[int, int]) -> None:
    CHECKS[op](module, *shape, 0, DEVICE)


LONG = [
    (1, 250_000, 0),  # few rows: as many blocks for each as can share one
    (8, 16_384, 0),
    (33, 16_387, 0),
    (many(300), 65_536, 0),  # more than the GPU works on at a time, fetched ahead
    (many(300), 65_539, 0),
    (many(300), 33_000, 0),  # blocks of half the threads, as larger ones would not fill an SM
    (many(300), 14_001, 0),  # and of a quarter, as rows are not aligned
    (33, 50_000, 0),
    (3, 600_003, 0),  # more than a cluster can hold
    (3, 30_001, 1),  # the tensors are never aligned at the same time
]


@pytest.mark.parametrize("op", every_night(["rms_norm", "add_rms_norm", "layer_norm"]))
@pytest.mark.parametrize("shape", LONG)
def test_rows_are_right_however_many_blocks_share_them(module: Any, op: str, shape: tuple[int, int, int]) -> None:
    CHECKS[op](module, *shape, DEVICE)


def test_a_row_that_is_not_finite_leaves_those_beside_it_alone(module: Any) -> None:
    rows, columns = 4_500, 101
    x = torch.randn(rows, columns, device=DEVICE).bfloat16()
    weight = torch.randn(columns, device=DEVICE).bfloat16()
    out, spoilt = torch.empty_like(x), torch.empty_like(x)
    module.rms_norm(x, weight, 1e-6, out)
    x[7::5] = torch.inf
    module.rms_norm(x, weight, 1e-6, spoilt)
    finite = torch.ones(rows, dtype=torch.bool, device=DEVICE)
    finite[7::5] = False
    assert torch.equal(out[finite], spoilt[finite])
    assert spoilt[~finite].isnan().all()


def test_rows_are_read_as_the_kernel_ahead_has_left_them(module: Any) -> None:
    """They are asked for before that kernel has ended."""
    rows, columns = many(300), 65_536
    middle, out = torch.zeros(rows, columns, device=DEVICE), torch.empty(rows, columns, device=DEVICE)
    for _ in range(5):
        x = torch.randn(rows, columns, device=DEVICE) * 8
        module.softmax(x, middle)
        module.softmax(middle, out)
        torch.testing.assert_close(out, torch.softmax(torch.softmax(x.double(), -1), -1).float())


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("offsets", [(0, 0), (1, 1), (0, 3)])
@pytest.mark.parametrize("role", every_night(f"every_role_{number}" for number in range(len(MIXES))))
def test_tensors_of_every_role_and_several_dtypes(
    module: Any, role: str, offsets: tuple[int, int], absent: bool
) -> None:
    number = int(role[-1])
    for rows, columns in SHAPES[:-6]:
        check_every_role(module, number, rows, columns, offsets, DEVICE, absent=absent)


@pytest.mark.parametrize("columns", [5, 64, 5001, 9000])
def test_nan_and_infinities_are_as_torch_has_them(module: Any, columns: int) -> None:
    check_special_rows(module, columns, DEVICE)


def test_totals_are_the_same_in_each_run(module: Any) -> None:
    x = torch.randn(3, 70_001, device=DEVICE)
    out = torch.empty_like(x)  # the same one: where it begins within a line decides which elements are combined first
    runs = []
    for _ in range(3):
        module.softmax(x, out)
        runs.append(out.clone())
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])
