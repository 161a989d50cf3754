"""kjit/row.cuh on a GPU, or in the simulator. Sums are of small integers, so that every order gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE

import kjit

CASES = Path(__file__).parent / "row_cases.cuh"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kjit.load_jit(
        "row_cases",
        cuda_files=[CASES],
        cuda_wrappers=[("reduce_rows", "reduce_rows"), ("move", "move")],
        build_directory=tmp_path_factory.mktemp("row"),
    )


@pytest.mark.parametrize(
    ("rows", "columns", "parts", "max_block", "threads"),
    [
        (1000, 1, 4, 1024, 1),
        (1001, 3, 4, 1024, 2),
        (130, 64, 4, 1024, 32),  # of short rows, a thread has at most two
        (130, 65, 4, 1024, 32),
        (7, 128, 4, 1024, 32),
        (7, 129, 4, 1024, 64),
        (5, 1000, 2, 1024, 512),
        (3, 5000, 2, 1024, 1024),
        (3, 5000, 2, 128, 128),
        (0, 10, 2, 1024, 8),
    ],
)
def test_a_row_is_reduced_by_the_threads_that_share_it(
    module: Any, rows: int, columns: int, parts: int, max_block: int, threads: int
) -> None:
    x = torch.randint(-50, 50, (rows, columns), device=DEVICE).float()
    sums, peaks = torch.empty(rows, device=DEVICE), torch.empty(rows, device=DEVICE)
    shared_by = torch.empty(rows, dtype=torch.int32, device=DEVICE)
    assert module.reduce_rows(x, sums, peaks, shared_by, parts, max_block) == threads
    assert torch.equal(sums, x.sum(-1))
    assert torch.equal(peaks, x.amax(-1))
    assert bool((shared_by == threads).all())


def test_vectors_come_from_anywhere_and_absent_ones_are_zero(module: Any) -> None:
    x = torch.arange(1, 9, dtype=torch.int32, device=DEVICE)
    aligned, anywhere = torch.empty_like(x[:4]), torch.empty_like(x[:4])
    absent = torch.ones_like(x)
    module.move(x, aligned, anywhere, absent)
    assert aligned.tolist() == [5, 6, 7, 8]
    assert anywhere.tolist() == [4, 5, 6, 7]
    assert absent.tolist() == [0] * 8
