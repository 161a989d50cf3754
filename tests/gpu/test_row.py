"""kjit/row.cuh on a GPU, or in the simulator. Sums are of small integers, so that every order gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, properties, synchronize

import kjit

CASES = Path(__file__).parent / "row_cases.cuh"
EXPORTS = [
    *(
        (name, name)
        for name in ("reduce_rows", "move", "fetch", "ahead", "fetched", "blocks_per_sm", "through_shared_memory")
    ),
    *((f"unaligned_{name}", f"unaligned<{name}_t>") for name in ("int8", "int16", "int32", "int64")),
]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kjit.load_jit(
        "row_cases",
        cuda_files=[CASES],
        cuda_wrappers=EXPORTS,
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


def test_what_is_fetched_ahead_may_end_with_the_tensor_or_be_absent(module: Any) -> None:
    x = torch.arange(2 * 1001, dtype=torch.int32, device=DEVICE).view(2, 1001)
    out = torch.zeros(1001, dtype=torch.int32, device=DEVICE)
    module.fetch(x, out)
    synchronize()
    assert torch.equal(out, x[0])


class TestAhead:
    """Rows of 512 vectors get a block of 128 threads, those of 4,096 one of 1,024."""

    @pytest.fixture
    def at_a_time(self, module: Any) -> int:
        blocks: int = module.blocks_per_sm(False, 128)
        return properties().multi_processor_count * blocks

    def ahead(
        self, module: Any, rows: int, vectors: int, *, roomy: bool = False, inputs: int = 1, kept: int = 0
    ) -> int:
        rows_ahead: int = module.ahead(torch.empty(1, device=DEVICE), roomy, rows, vectors, inputs, kept)
        return rows_ahead

    def test_it_is_as_many_rows_as_the_gpu_works_on_at_a_time(self, module: Any, at_a_time: int) -> None:
        assert self.ahead(module, 100_000, 512) == at_a_time
        assert self.ahead(module, at_a_time + 1, 512) == at_a_time

    def test_each_kernel_has_its_own_answer(self, module: Any, at_a_time: int) -> None:
        roomy = properties().multi_processor_count * module.blocks_per_sm(True, 128)
        for _ in range(2):
            assert self.ahead(module, 100_000, 512, roomy=True) == roomy
            assert self.ahead(module, 100_000, 512) == at_a_time

    def test_few_rows_have_none_ahead(self, module: Any, at_a_time: int) -> None:
        assert self.ahead(module, at_a_time, 512) == at_a_time
        assert self.ahead(module, 7, 512) == 7

    def test_short_rows_have_none_ahead(self, module: Any) -> None:
        assert self.ahead(module, 100_000, 128) == 100_000

    def test_rows_that_have_an_sm_to_themselves_are_fetched_ahead_in_a_short_run_only(self, module: Any) -> None:
        sms = properties().multi_processor_count
        at_a_time = sms * module.blocks_per_sm(False, 1024)
        assert module.fetched() == 4096 * 16  # bytes: a longer row leaves no room for another
        assert self.ahead(module, 8 * at_a_time, 4097) == at_a_time
        assert self.ahead(module, 8 * at_a_time + 1, 4097) == 8 * at_a_time + 1
        assert self.ahead(module, 8 * at_a_time + 1, 4096) == at_a_time
        assert self.ahead(module, 8 * at_a_time + 1, 4096, inputs=2) == 8 * at_a_time + 1
        assert self.ahead(module, 8 * sms, 16384, kept=1) == sms
        assert self.ahead(module, 8 * sms + 1, 16384, kept=1) == 8 * sms + 1


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
