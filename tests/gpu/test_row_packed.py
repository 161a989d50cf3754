"""kjit/row_packed.cuh on a GPU, or in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE

import kjit

CASES = Path(__file__).parent / "row_packed_cases.cuh"
EXPORTS = [(name, name) for name in ("rows", "worth_packing", "packed", "limit")]
ON_DEVICE = torch.empty(0, device=DEVICE)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kjit.load_jit(
        "row_packed_cases",
        cuda_files=[CASES],
        cuda_wrappers=EXPORTS,
        build_directory=tmp_path_factory.mktemp("row_packed"),
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 257, 5001])
@pytest.mark.parametrize("size", [32, 33, 34, 35, 36, 63, 100, 127, 257, 383, 1500])
def test_rows_are_added_up_and_written_wherever_they_begin(module: Any, rows: int, size: int) -> None:
    x = torch.randint(-100, 100, (rows, size), dtype=torch.int32, device=DEVICE)
    column = torch.randint(-100, 100, (size,), dtype=torch.int32, device=DEVICE)
    sums = torch.empty(rows, dtype=torch.int32, device=DEVICE)
    out = torch.full((rows * size + 1,), 7, dtype=torch.int32, device=DEVICE)
    module.rows(sums, out, x, column)
    assert torch.equal(sums, x.sum(1, dtype=torch.int32))
    number = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    assert torch.equal(out[:-1].view(rows, size), x + column + 10 * number[:, None])
    assert out[-1] == 7


@pytest.mark.parametrize(
    ("rows", "row_size", "vec", "most", "is_worth_it"),
    [
        (100_000, 72, 8, 384, True),
        (58_253, 72, 8, 384, False),  # 8 MiB less a row
        (58_255, 72, 8, 384, True),
        (2**40, 72, 8, 384, True),
        (100_000, 63, 8, 384, False),  # less than eight vectors
        (100_000, 257, 8, 257, True),  # eight rows are 257 vectors
        (100_000, 257, 8, 256, False),
        (1_365, 384, 1, 384, False),
        (1_366, 384, 1, 384, True),
        (100_000, 3000, 8, 384, True),
        (100_000, 3001, 8, 384, False),
    ],
)
def test_many_short_rows_are_packed(
    module: Any, rows: int, row_size: int, vec: int, most: int, is_worth_it: bool
) -> None:
    assert module.worth_packing(rows, row_size, vec, most) is is_worth_it


@pytest.mark.parametrize("aligned", [True, False])
def test_few_lanes_are_idle_in_a_small_block(module: Any, aligned: bool) -> None:
    most = module.limit(False)
    assert module.limit(True) < most
    for vec in (2, 4, 8, 16):
        for row_size in range(8 * vec, most * vec, vec if aligned else 1):
            if not module.worth_packing(10**9, row_size, vec, most):
                continue
            block, threads, rows = (module.packed(10**9, row_size, vec, aligned, i, ON_DEVICE) for i in range(3))
            assert threads * vec == rows * row_size
            assert threads <= block <= most
            assert block % 32 == 0
            if aligned:
                assert threads >= 0.75 * block
            assert threads > 0.7 * block


@pytest.mark.parametrize(
    ("row_size", "vec", "aligned", "block", "threads"),
    [
        (72, 8, True, 128, 126),
        (264, 8, True, 128, 99),
        (520, 8, True, 160, 130),
        (1032, 8, True, 160, 129),
        (100, 8, False, 128, 125),
        (300, 8, False, 160, 150),  # 75 of 96 lanes would be too few, where vectors are of two rows
        (257, 8, False, 288, 257),
        (67, 4, False, 160, 134),
    ],
)
def test_how_large_a_block_is(module: Any, row_size: int, vec: int, aligned: bool, block: int, threads: int) -> None:
    assert [module.packed(10**6, row_size, vec, aligned, i, ON_DEVICE) for i in range(2)] == [block, threads]


def test_a_block_has_more_rows_where_there_are_more(module: Any) -> None:
    group = module.packed(1, 72, 8, True, 2, ON_DEVICE)
    assert module.packed(1, 72, 8, True, 3, ON_DEVICE) == group
    assert module.packed(10**7, 72, 8, True, 3, ON_DEVICE) == 4 * group


def test_more_lanes_add_up_a_row_where_it_is_long_or_others_would_be_idle(module: Any) -> None:
    def lanes(rows: int, row_size: int) -> int:
        block, chunk_rows, lanes = (module.packed(rows, row_size, 8, True, i, ON_DEVICE) for i in (0, 3, 4))
        assert lanes * chunk_rows > block // 2  # no threads for twice as many
        return lanes

    assert lanes(10**6, 72) == 2  # nine vectors
    assert lanes(1, 72) == 8  # a quarter of the rows for as many threads
    assert lanes(10**6, 1032) == 32
