"""Random programs mean the same by both compilers: kernels, parameters, and values of host code."""

from __future__ import annotations

from pathlib import Path

import pytest
from both import compare_host
from device_programs import drawn
from expressions import PREPARED, in_contexts, integers
from structs import draw_many
from test_device_code import hold_programs

pytestmark = [pytest.mark.nvcc, pytest.mark.nightly]

_PER_UNIT = 12


@pytest.mark.parametrize("seed", range(12))
def test_kernels_of_random_programs_are_nvccs(seed: int, tmp_path: Path) -> None:
    hold_programs([drawn(1000 * seed + each) for each in range(_PER_UNIT)], tmp_path)


@pytest.mark.parametrize("seed", range(50, 54))
def test_constants_of_random_expressions_are_nvccs(seed: int, tmp_path: Path) -> None:
    drawn_integers = list(integers(seed, 400))
    structs = draw_many(seed, 20)
    before = "\n".join([PREPARED, "namespace more {", *(each.definition for each in structs), "}"])
    sizes = [f"sizeof(more::{each.name})" for each in structs]
    compare_host([*drawn_integers, *in_contexts(drawn_integers[:200]), *sizes], tmp_path, before).hold()
