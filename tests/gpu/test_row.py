"""kjit/row.cuh on a GPU, or in the simulator. Sums are of small integers, so that every order gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, properties

import kjit

CASES = Path(__file__).parent / "row_cases.cuh"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kjit.load_jit(
        "row_cases",
        cuda_files=[CASES],
        cuda_wrappers=[
            *((name, name) for name in ("reduce_rows", "move", "through_shared_memory")),
            *((f"unaligned_{name}", f"unaligned<{name}_t>") for name in ("int8", "int16", "int32", "int64")),
        ],
        build_directory=tmp_path_factory.mktemp("row"),
    )


@pytest.mark.parametrize(
    ("rows", "columns", "parts", "max_block", "threads"),
    [
        (1000, 1, 4, 1024, 1),
        (1001, 3, 4, 1024, 2),
        (130, 64, 4, 1024, 32),  # of short rows, a thread has at most two
        (2000, 65, 4, 1024, 32),
        (600, 128, 4, 1024, 32),
        (600, 129, 4, 1024, 64),
        (7, 129, 4, 1024, 160),  # of few rows, too: of such that are not long, one
        (7, 1000, 4, 1024, 512),
        (5, 1000, 2, 1024, 512),
        (3, 1000, 1, 1024, 1024),
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


def test_vectors_are_read_with_any_hint_and_absent_ones_are_zero(module: Any) -> None:
    x = torch.arange(1, 9, dtype=torch.int32, device=DEVICE)
    aligned, streamed = torch.empty_like(x[:4]), torch.empty_like(x[:4])
    absent = torch.ones_like(x)
    module.move(x, aligned, streamed, absent)
    assert aligned.tolist() == [5, 6, 7, 8]
    assert streamed.tolist() == [5, 6, 7, 8]
    assert absent.tolist() == [0] * 8


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_a_vector_may_start_anywhere(module: Any, dtype: torch.dtype, offset: int) -> None:
    per_vector = 16 // dtype.itemsize
    x = torch.arange(offset + 5 * per_vector + 1, device=DEVICE).to(dtype)[offset:]
    out = torch.empty(len(x) - per_vector + 1, per_vector, dtype=dtype, device=DEVICE)
    getattr(module, f"unaligned_{str(dtype).removeprefix('torch.')}")(x, out)
    assert torch.equal(out, x.unfold(0, per_vector, 1))


@pytest.mark.parametrize(("chunks", "kept"), [(1, 0), (2, 1), (5, 4)])
def test_shared_memory_keeps_all_but_the_last_chunk(module: Any, chunks: int, kept: int) -> None:
    x = torch.arange(chunks * 128 * 2 * 4, dtype=torch.int32, device=DEVICE)
    out = torch.zeros_like(x)
    assert module.through_shared_memory(x, out) == kept
    part = kept * 128 * 2 * 4
    assert torch.equal(out[:part], x[:part])


def test_shared_memory_keeps_what_there_is_room_for(module: Any) -> None:
    x = torch.arange(100 * 128 * 2 * 4, dtype=torch.int32, device=DEVICE)
    out = torch.zeros_like(x)
    kept = module.through_shared_memory(x, out)
    chunk = 128 * 2 * 16
    room = properties().shared_memory_per_block_optin
    assert room - 2048 - chunk < kept * chunk <= room - 2048
    part = kept * 128 * 2 * 4
    assert torch.equal(out[:part], x[:part])
    assert not out[part:].any()
