"""kjit/patterns/elementwise.h on a GPU, or in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elementwise import EXPORTS, MIXES, NEGATED, OFFSETS, SIZES, check_mix, check_negate
from machine import DEVICE

import kjit

CASES = Path(__file__).parent / "elementwise_cases.cuh"


@pytest.fixture(scope="module")
def module() -> Any:
    return kjit.load_jit(
        "elementwise_cases",
        cuda_files=[CASES],
        cuda_wrappers=EXPORTS,
    )


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
