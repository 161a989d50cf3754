"""kjit/row.cuh on a GPU, or in the simulator. Sums are of small integers, so that every order gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, properties, synchronize

import kjit

CASES = Path(__file__).parent / "row_cases.cuh"
COLUMNS = [
    *(("int8", size) for size in (1, 2, 4, 8, 16)),
    *(("int16", size) for size in (2, 4, 8)),
    *(("int32", size) for size in (1, 2, 4)),
    *(("int64", size) for size in (1, 2)),
]
"""Types and elements of a vector: from one element to 16 bytes."""
PUT = [("int32", 4), ("int32", 2), ("int8", 4), ("int64", 2)]
EXPORTS = [
    *(
        (name, name)
        for name in (
            *("reduce_rows", "move", "columns", "fetch", "fetched", "ahead", "blocks_per_sm", "room_for_columns"),
            *("through_shared_memory", "async_columns", "worth_fetching", "threads_of_row", "part"),
        )
    ),
    *((f"column_{name}_{size}", f"column<{name}_t, {size}>") for name, size in COLUMNS),
    *(
        (f"{what}_{name}_{size}", f"{what}<{name}_t, {size}>")
        for what in ("put_columns", "in_turn")
        for name, size in PUT
    ),
    ("worth_sharing", "host::row::worth_sharing"),
    ("fewer_threads", "host::row::fewer_threads"),
    ("threads_to_hold", "host::row::threads_to_hold"),
    ("largest_block", "host::row::largest_block"),
    ("late_columns", "host::row::late_columns"),
    ("fetched_parts", "host::row::fetched_parts"),
]


def has_clusters() -> bool:
    return bool(properties().major >= 9)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kjit.load_jit(
        "row_cases",
        cuda_files=[CASES],
        cuda_wrappers=EXPORTS,
        build_directory=tmp_path_factory.mktemp("row"),
    )


def reduce(module: Any, x: torch.Tensor, parts: int, max_block: int, max_cluster: int) -> tuple[int, int]:
    """Checks sums and maxima of the rows; how many threads and blocks share a row."""
    rows = len(x)
    sums, peaks = torch.empty(rows, device=DEVICE), torch.empty(rows, device=DEVICE)
    counts = torch.empty(rows, dtype=torch.int64, device=DEVICE)
    shape = torch.zeros(2, dtype=torch.int32)
    module.reduce_rows(x, sums, peaks, counts, shape, parts, max_block, max_cluster)
    assert torch.equal(sums, x.sum(-1))
    assert torch.equal(peaks, x.amax(-1))
    threads, blocks = shape.tolist()
    assert bool((counts == threads).all())
    return threads, blocks


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
    assert reduce(module, x, parts, max_block, 1) == (threads, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "parts", "max_block", "max_cluster", "threads", "blocks"),
    [
        (300, 512, 4, 128, 8, 128, 1),
        (300, 513, 4, 128, 8, 192, 2),
        (300, 1024, 4, 128, 8, 256, 2),
        (300, 1025, 4, 128, 8, 384, 4),
        (300, 4096, 4, 128, 8, 1024, 8),
        (300, 4097, 4, 128, 8, 128, 1),  # more than a cluster can hold
        (300, 1025, 4, 128, 2, 128, 1),
        (20, 20000, 8, 1024, 8, 2560, 4),
        (9, 16384, 8, 1024, 8, 4096, 4),  # of few rows, a thread has fewer
        (8, 16384, 8, 1024, 8, 8192, 8),
        (1, 9000, 8, 1024, 8, 4608, 8),
        (8, 2048, 8, 1024, 8, 1024, 8),  # few rows are shared, too
        (8, 2047, 8, 1024, 8, 1024, 4),
        (8, 1024, 8, 1024, 8, 512, 4),
        (8, 1023, 8, 1024, 8, 512, 1),
        (32, 1024, 8, 1024, 8, 512, 2),
        (33, 1024, 8, 1024, 8, 512, 1),
        (8, 2048, 8, 1024, 2, 1024, 2),
    ],
)
def test_a_cluster_of_blocks_shares_a_row_that_one_cannot_hold_and_few_long_ones(
    module: Any, rows: int, columns: int, parts: int, max_block: int, max_cluster: int, threads: int, blocks: int
) -> None:
    x = torch.randint(-50, 50, (rows, columns), device=DEVICE).float()
    alone = min(max_block, threads)
    assert reduce(module, x, parts, max_block, max_cluster) == ((threads, blocks) if has_clusters() else (alone, 1))


@pytest.mark.parametrize(
    ("rows", "vectors", "is_worth_it"),
    [(0, 1024, True), (1, 1023, False), (32, 1024, True), (33, 1024, False), (33, 10**6, False), (2**62, 1024, False)],
)
def test_few_long_rows_are_worth_sharing_where_there_are_clusters(
    module: Any, rows: int, vectors: int, is_worth_it: bool
) -> None:
    assert module.worth_sharing(rows, vectors) is (is_worth_it and has_clusters())


@pytest.mark.parametrize(
    ("vectors", "parts", "threads"),
    [(1, 2, 1), (8, 3, 4), (9, 3, 4), (9, 6, 4), (12, 6, 4), (13, 6, 8), (32, 6, 8), (49, 6, 16), (129, 6, 32)],
)
def test_a_thread_has_three_vectors_where_fewer_than_a_line_could_share_a_row(
    module: Any, vectors: int, parts: int, threads: int
) -> None:
    assert module.threads_of_row(vectors, parts, 8) == threads
    if vectors > 8:
        assert module.threads_of_row(vectors, parts, 4) == max(4, 1 << (-(-vectors // parts) - 1).bit_length())


@pytest.mark.parametrize(
    ("vectors", "parts", "threads"), [(1, 4, 1), (5, 4, 2), (128, 4, 32), (129, 4, 64), (257, 4, 96), (262, 6, 64)]
)
def test_lanes_of_a_warp_or_whole_warps_hold_a_row(module: Any, vectors: int, parts: int, threads: int) -> None:
    assert module.threads_to_hold(vectors, parts) == threads


@pytest.mark.parametrize(("parts", "more"), [(4, 6), (2, 3)])
def test_a_thread_has_more_vectors_where_much_would_be_idle(module: Any, parts: int, more: int) -> None:
    for vectors in range(1, 4 * 32 * parts):
        threads = module.threads_to_hold(vectors, parts)
        fewer = module.threads_to_hold(vectors, more) < threads
        assert module.fewer_threads(vectors, parts, more) is (fewer and vectors < 0.75 * parts * threads)
    assert module.fewer_threads(33 * parts, parts, more)  # 32 lanes instead of two warps
    assert not module.fewer_threads(48 * parts, parts, more)


@pytest.mark.parametrize(
    ("vectors", "parts", "aligned", "threads"),
    [
        (1, 4, False, 256),
        (2048, 4, False, 256),
        (2049, 4, False, 512),
        (16384, 4, False, 512),
        (16385, 4, False, 1024),
        (2048, 4, True, 1024),
        (2049, 4, True, 512),
        (2560, 4, True, 1024),  # 640 threads, and all have as many vectors
        (2559, 4, True, 512),
        (3072, 4, True, 512),
        (3073, 4, True, 1024),
        (4097, 4, True, 512),
        (4096 + 2048 + 1, 4, True, 1024),
        (4 * 3072, 4, True, 512),
        (8 * 3072, 4, True, 1024),  # there is no larger cluster
        (2**50, 8, True, 1024),
    ],
)
def test_blocks_are_smaller_where_the_largest_would_not_fill_an_sm_and_where_rows_are_not_aligned(
    module: Any, vectors: int, parts: int, aligned: bool, threads: int
) -> None:
    assert module.largest_block(vectors, parts, aligned) == (threads if has_clusters() else 1024)


def test_of_a_vector_at_a_rows_end_only_what_the_row_has_is_read(module: Any) -> None:
    row = list(range(1, 8))
    x, out = torch.tensor(row, dtype=torch.int32, device=DEVICE), torch.empty(4, dtype=torch.int32, device=DEVICE)
    for index in range(-4, 8):
        module.part(x, out, index, 7)
        assert out.tolist() == [row[i] if 0 <= i < 7 else 0 for i in range(index, index + 4)]
        module.part(None, out, index, 7)
        assert out.tolist() == [0] * 4


def test_vectors_are_read_with_any_hint_and_absent_ones_are_zero(module: Any) -> None:
    x = torch.arange(1, 9, dtype=torch.int32, device=DEVICE)
    aligned, streamed = torch.empty_like(x[:4]), torch.empty_like(x[:4])
    absent = torch.ones_like(x)
    module.move(x, aligned, streamed, absent)
    assert aligned.tolist() == [5, 6, 7, 8]
    assert streamed.tolist() == [5, 6, 7, 8]
    assert absent.tolist() == [0] * 8


@pytest.mark.parametrize(
    ("nbytes", "staying"), [(0, 4), (512, 2), (512, 4), (1536, 0), (1536, 2), (2048, 4), (65536, 0), (65536, 2)]
)
def test_what_was_fetched_is_read_like_the_rest_of_its_row(module: Any, nbytes: int, staying: int) -> None:
    x = torch.arange(1024, dtype=torch.int32, device=DEVICE)
    read, optional = torch.zeros_like(x), torch.zeros_like(x)
    module.fetched(x, read, optional, nbytes, staying)
    assert torch.equal(read, x)
    assert torch.equal(optional, x)


@pytest.mark.parametrize("offset", [None, 0, 1])
@pytest.mark.parametrize(("name", "size"), PUT)
def test_columns_wait_in_shared_memory_up_to_their_end(module: Any, name: str, size: int, offset: int | None) -> None:
    """`offset`: where a column begins that may lie anywhere."""
    dtype = getattr(torch, name)
    step, end = 32 * size, 70 * size
    x = torch.arange(3 * step + 1, device=DEVICE).to(dtype)[offset or 0 :]
    out = torch.full((6 * step,), 7, dtype=dtype, device=DEVICE)
    getattr(module, f"put_columns_{name}_{size}")(x, out, end, offset is None)
    assert torch.equal(out[:end], x[:end])
    assert bool((out[end : 3 * step] == 7).all())
    assert not out[3 * step :].any()


@pytest.mark.parametrize("offset", [None, 0, 1])
@pytest.mark.parametrize(("name", "size"), PUT)
def test_vectors_of_a_column_are_read_in_turn_up_to_its_end(
    module: Any, name: str, size: int, offset: int | None
) -> None:
    dtype = getattr(torch, name)
    step, end = 32 * size, 135 * size
    x = torch.arange(5 * step + 1, device=DEVICE).to(dtype)[offset or 0 :]
    out, zeros = (torch.full((5 * step,), 7, dtype=dtype, device=DEVICE) for _ in range(2))
    getattr(module, f"in_turn_{name}_{size}")(x, out, zeros, end, offset is None)
    assert torch.equal(out[:end], x[:end])
    assert not zeros[:end].any()
    assert bool((out[end:] == 7).all())
    assert bool((zeros[end:] == 7).all())


def test_columns_come_meanwhile_from_compute_capability_8_on(module: Any) -> None:
    assert module.async_columns() is (properties().major >= 8)


def test_fewer_columns_come_meanwhile_where_they_are_not_aligned_and_blocks_have_less_memory(module: Any) -> None:
    found = [module.late_columns(4, aligned) for aligned in (True, False)]
    if properties().major < 8:
        assert found == [0, 0]
    else:
        assert found == [4, 4 if 9 <= properties().major < 12 else 2]


def test_columns_have_room_beside_the_second_half_of_what_a_thread_holds(module: Any) -> None:
    x = torch.empty(1, device=DEVICE)
    assert [module.room_for_columns(x, vectors) for vectors in (128, 256, 257, 512)] == [0, 0, *[3 * 128 * 16] * 2]


def test_vectors_of_a_column_are_read_together_up_to_its_end(module: Any) -> None:
    x = torch.arange(36, dtype=torch.int32, device=DEVICE)
    out = torch.empty(4, 4, dtype=torch.int32, device=DEVICE)
    module.columns(x, out)
    assert out.tolist() == [[4, 5, 6, 7], [16, 17, 18, 19], [28, 29, 30, 31], [-1] * 4]


@pytest.mark.parametrize(("name", "size"), COLUMNS)
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_a_vector_of_a_column_may_start_anywhere(module: Any, name: str, size: int, offset: int) -> None:
    dtype = getattr(torch, name)
    x = torch.arange(offset + 101, device=DEVICE).to(dtype)[offset:]
    vectors = len(x) - 2 * (size - 1)  # behind the last one there are `size - 1` elements more
    cut, whole = torch.zeros(vectors, size, dtype=dtype, device=DEVICE), torch.zeros(vectors, size, dtype=dtype)
    whole = whole.to(DEVICE)
    getattr(module, f"column_{name}_{size}")(x, cut, whole)
    expected = x.unfold(0, size, 1)[:vectors]
    assert torch.equal(cut, expected)
    starts = x.data_ptr() + dtype.itemsize * torch.arange(vectors, device=DEVICE)
    aligned = starts % (dtype.itemsize * size) == 0
    assert bool(aligned.any())
    assert torch.equal(whole[aligned], expected[aligned])


def test_what_is_fetched_ahead_may_end_with_the_tensor_or_be_absent(module: Any) -> None:
    x = torch.arange(2 * 1001, dtype=torch.int32, device=DEVICE).view(2, 1001)
    out = torch.zeros(1001, dtype=torch.int32, device=DEVICE)
    module.fetch(x, out)
    synchronize()
    assert torch.equal(out, x[0])


class TestAhead:
    """Rows of 512 vectors get a block of 128 threads, those of 4,096 and more one of 1,024."""

    @pytest.fixture
    def at_a_time(self, module: Any) -> int:
        blocks: int = module.blocks_per_sm(False, 128)
        return properties().multi_processor_count * blocks

    def ahead(self, module: Any, rows: int, vectors: int, *, roomy: bool = False, kept: int = 0) -> int:
        rows_ahead: int = module.ahead(torch.empty(1, device=DEVICE), roomy, rows, vectors, 1, kept, True, False)
        return rows_ahead

    def fetched(self, module: Any, rows: int, vectors: int, *, inputs: int = 1, stays: bool = False) -> int:
        fetched: int = module.ahead(torch.empty(1, device=DEVICE), False, rows, vectors, inputs, 0, stays, True)
        return fetched

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
        lengths = (64, 128, 384, 385, 512)
        assert [length for length in lengths if module.worth_fetching(100_000, length)] == [385, 512]

    def test_rows_that_registers_cannot_hold_are_fetched_ahead_in_a_short_run_only(self, module: Any) -> None:
        sms = properties().multi_processor_count
        at_a_time = sms * module.blocks_per_sm(False, 1024)
        assert self.ahead(module, 1000 * at_a_time, 8192) == at_a_time
        assert self.ahead(module, 8 * sms, 16384, kept=1) == sms
        assert self.ahead(module, 8 * sms + 1, 16384, kept=1) == 8 * sms + 1

    def test_more_is_fetched_where_many_rows_follow_each_other(self, module: Any) -> None:
        at_a_time = properties().multi_processor_count * module.blocks_per_sm(False, 1024)
        assert self.fetched(module, 8 * at_a_time, 8192) == 65536
        assert self.fetched(module, 8 * at_a_time + 1, 8192) == 2 * 65536
        assert self.fetched(module, 8 * at_a_time, 8192, inputs=2) == 32768
        assert self.fetched(module, 7, 8192) == 0

    def test_what_stays_in_the_cache_until_it_is_read_is_not_more_of_a_long_run(self, module: Any) -> None:
        at_a_time = properties().multi_processor_count * module.blocks_per_sm(False, 1024)
        in_a_long_run = 65536 if has_clusters() else 2 * 65536
        assert self.fetched(module, 8 * at_a_time + 1, 8192, stays=True) == in_a_long_run

    @pytest.mark.parametrize("inputs", [1, 2])
    def test_a_block_that_has_little_more_of_a_row_fetches_all_of_it(self, module: Any, inputs: int) -> None:
        at_a_time = properties().multi_processor_count * module.blocks_per_sm(False, 1024)
        assert self.fetched(module, 8 * at_a_time, 5120 // inputs, inputs=inputs, stays=True) == 81920 // inputs
        assert self.fetched(module, 8 * at_a_time, 8192 // inputs, inputs=inputs, stays=True) == 65536 // inputs

    def test_each_warp_fetches_whole_vectors_of_all_its_lanes(self, module: Any) -> None:
        assert self.fetched(module, 100_000, 513) == 5 * 4 * 512  # five warps, four times

    @pytest.mark.parametrize(("inputs", "parts"), [(1, 4), (2, 2), (3, 2), (4, 1), (9, 1)])
    def test_how_many_vectors_of_each_thread_it_is_can_be_known_ahead(
        self, module: Any, inputs: int, parts: int
    ) -> None:
        assert module.fetched_parts(8, inputs) == parts
        assert module.fetched_parts(1, inputs) == 1
        one_of_each_thread = 1024 * 16
        at_a_time = properties().multi_processor_count * module.blocks_per_sm(False, 1024)
        assert self.fetched(module, 8 * at_a_time, 4096, inputs=inputs) == parts * one_of_each_thread

    def test_no_more_is_fetched_than_a_row_has(self, module: Any) -> None:
        assert self.fetched(module, 100_000, 512) == 512 * 16


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
