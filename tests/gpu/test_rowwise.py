"""kjit/patterns/rowwise.h on a GPU, or in the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, QUICKLY
from parts import InParts
from rowwise import CHECKS, EXPORTS, HUGE, MANY, MIXES, OFFSETS, SHAPES, check_every_role, check_special_rows

import kjit

CASES = Path(__file__).parent / "rowwise_cases.cuh"


EVERY_NIGHT = ["add_rms_norm", "qk_norm_across", "every_role_1"]
"""Ops of which another has as many tensors, or the same code for other dtypes."""


def every_night(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly if name in EVERY_NIGHT else ()) for name in names]


@pytest.fixture(scope="module")
def module() -> Any:
    def load(exports: Sequence[tuple[str, str]]) -> Any:
        return kjit.load_jit(
            "rowwise_cases",
            cuda_files=[CASES],
            cuda_wrappers=exports,
            extra_cuda_cflags=list(QUICKLY),
        )

    return InParts(load, EXPORTS, [name for name, _ in EXPORTS if name not in EVERY_NIGHT])


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("op", every_night(CHECKS))
def test_rows_of_every_length_are_as_the_reference_in_float64(module: Any, op: str, offset: int) -> None:
    for rows, columns in SHAPES:
        CHECKS[op](module, rows, columns, offset, DEVICE)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "cross_entropy"])
@pytest.mark.parametrize("shape", [MANY, HUGE])
def test_many_rows_and_rows_that_no_cluster_holds(module: Any, op: str, shape: tuple[int, int]) -> None:
    CHECKS[op](module, *shape, 0, DEVICE)


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
