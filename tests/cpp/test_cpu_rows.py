"""kjit/cpu_rows.h: rows selected by an index, in parts."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
import sanitized
import torch

CASES = "cpu_rows_cases"

HERE = Path(__file__).parent
LINE = 64  # bytes
STAGED = 128  # elements of a part
WAYS = ["for_parts", "write_parts"]
ROW_SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257]
LONG_SIZES = [*range(511, 514), 640, 700, 1500]
TYPES = {torch.uint8: torch.int64, torch.int16: torch.int64, torch.int32: torch.int32, torch.int64: torch.int32}


def guarded(values: torch.Tensor) -> torch.Tensor:
    """A copy followed by unmapped memory: reading beyond its end aborts the process."""
    pages = -(-values.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    behind = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages * mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(behind), mmap.PAGESIZE, 0) == 0
    whole = torch.frombuffer(memory, dtype=torch.uint8)[: pages * mmap.PAGESIZE]
    return whole[len(whole) - values.nbytes :].view(values.dtype).view(values.shape).copy_(values)


def shifted(rows: int, row_size: int, dtype: torch.dtype, offset: int) -> torch.Tensor:
    """A tensor that begins `offset` elements after a cache line."""
    size = dtype.itemsize
    memory = torch.zeros(rows * row_size * size + 2 * LINE, dtype=torch.uint8)
    begin = -memory.data_ptr() % LINE + offset * size
    return memory[begin : begin + rows * row_size * size].view(dtype).view(rows, row_size)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("may_repeat", [False, True])
def test_each_part_of_a_row_has_a_size_that_the_compiler_knows(
    dtype: torch.dtype, may_repeat: bool, module: Any
) -> None:
    line = min(32, LINE // dtype.itemsize)
    for row_size in ROW_SIZES + LONG_SIZES:
        out = shifted(4, row_size, dtype, 0)
        found = torch.zeros(300, 2, dtype=torch.int64)
        name = f"parts_{dtype}".replace("torch.", "")
        count = getattr(module, name)(out, 1, 4, False, may_repeat, found)
        parts = found[:count].tolist()
        assert all(size in {STAGED, 32, 16, 8, 4, 2, 1} for _, size in parts)
        covered = torch.zeros(4 * row_size, dtype=torch.int64)
        for at, size in parts:
            covered[at : at + size] += 1
            assert at // row_size == (at + size - 1) // row_size, "a part of two rows"
        assert (covered[:row_size] == 0).all()
        assert (covered[row_size:] >= 1).all()
        assert (covered <= (2 if may_repeat else 1)).all()
        of_row = [size for at, size in parts if at < 2 * row_size]
        whole, left = divmod(row_size, STAGED)
        if may_repeat:
            step = min(line, 1 << (row_size.bit_length() - 1))
            assert of_row == [STAGED] * whole + [step] * -(-left // step)
        else:
            ends = [1 << bit for bit in reversed(range(line.bit_length() - 1)) if left % line & 1 << bit]
            assert of_row == [STAGED] * whole + [line] * (left // line) + ends


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("may_repeat", [False, True])
def test_parts_of_short_rows_that_stream_are_whole_but_for_the_first_and_those_at_the_end(
    dtype: torch.dtype, offset: int, may_repeat: bool, module: Any
) -> None:
    name = str(dtype).removeprefix("torch.")
    for row_size in (1, 7, 31, 33, 63):
        rows = 3000 // row_size
        out = shifted(rows, row_size, dtype, offset)
        found = torch.zeros(3000, 2, dtype=torch.int64)
        count = getattr(module, f"parts_{name}")(out, 1, rows, True, may_repeat, found)
        line = LINE // dtype.itemsize
        lines = 2 * line
        head = -(row_size + offset) % line
        whole, left = divmod((rows - 1) * row_size - head, lines)
        known = [lines] * whole + [line] * (left // line)
        sizes = [*([-head] if head else []), *known, *([-(left % line)] if left % line else [])]
        begins = [row_size + sum(abs(size) for size in sizes[:part]) for part in range(len(sizes))]
        assert found[:count].tolist() == [list(part) for part in zip(begins, sizes, strict=True)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_row_is_the_one_that_its_number_says(dtype: torch.dtype, streams: bool, way: str, module: Any) -> None:
    index_dtype = TYPES[dtype]
    take = getattr(module, f"take_{dtype}_{index_dtype}".replace("torch.", ""))
    for row_size in ROW_SIZES + LONG_SIZES:
        rows, table_size = max(9, 1500 // row_size), 11
        src = guarded(torch.randint(0, 60, (table_size, row_size), dtype=dtype))
        index = torch.randint(0, table_size, (rows,), dtype=index_dtype)
        index[0], index[rows // 2], index[-1] = -1, table_size, table_size - 1  # two are out of range
        numbers = torch.randint(0, 50, (rows,), dtype=dtype)
        column = torch.randint(0, 50, (row_size,), dtype=dtype)
        chosen = torch.where(((index >= 0) & (index < table_size))[:, None], src[index.clamp(0, table_size - 1)], 0)
        for first, last, offset in ((0, rows, 0), (1, rows - 1, 3), (3, 4, 0)):
            for beside in ((None, None), (numbers, None), (None, column), (numbers, column)):
                out = shifted(rows, row_size, dtype, offset).fill_(7)
                take(src, guarded(index), *beside, out, first, last, streams, WAYS.index(way))
                expected = torch.full_like(out, 7)
                expected[first:last] = chosen[first:last] + (7 if way == "for_parts" else 0)
                if beside[0] is not None:
                    expected[first:last] += numbers[first:last, None]
                if beside[1] is not None:
                    expected[first:last] += column
                assert torch.equal(out, expected), (row_size, first, last, offset, beside)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("only_copies", [False, True])
def test_rows_are_copied_and_those_that_stay_in_the_caches_without_a_call_of_the_work(
    dtype: torch.dtype, streams: bool, only_copies: bool, module: Any
) -> None:
    move = getattr(module, f"move_{dtype}".replace("torch.", ""))
    sizes = (8, 16, 24, 32, 40, 64, 72, 128, 136, 248, 256, 264, 320, 512, 520, 696, 1032, 3064, 3072, 3080, 20_000)
    for row_bytes in (*sizes, 1, 2, 3, 7, 13, 31, 33, 63, 65, 255, 257, 511, 513, 1000):
        if row_bytes % dtype.itemsize:
            continue
        row_size = row_bytes // dtype.itemsize
        src = guarded(torch.randint(0, 60, (5, row_size), dtype=dtype))
        index = torch.tensor([4, 5, 0, 4, -1, 2, 1])
        for first, last, offset in ((0, 7, 0), (1, 6, 3), (3, 3, 0)):
            out = shifted(7, row_size, dtype, offset).fill_(7)
            count = move(src, guarded(index), out, first, last, streams, only_copies)
            expected = torch.full_like(out, 7)
            expected[first:last] = torch.where(((index >= 0) & (index < 5))[:, None], src[index.clamp(0, 4)], 0)[
                first:last
            ]
            assert torch.equal(out, expected), (row_size, first, last, offset)
            assert (count == 0) is (first == last or (only_copies and not streams))


@pytest.mark.parametrize("row_bytes", [504, 512, 520, 2048, 3080])
def test_rows_of_a_table_that_only_a_large_cache_holds_are_copied(row_bytes: int, module: Any) -> None:
    table_size = 2**26 // row_bytes + 1
    src = torch.empty(table_size, row_bytes // 8, dtype=torch.int64)  # most of it is never touched
    index = torch.cat([torch.tensor([table_size - 1, table_size, -1, 0]), torch.randperm(table_size)[:60]])
    for at, row in enumerate(index.tolist()):
        if 0 <= row < table_size:
            src[row] = at
    out = torch.full((len(index), src.shape[1]), -1)
    assert module.move_int64(src, index, out, 0, len(index), False, True) == 0
    expected = torch.where((index >= 0) & (index < table_size), src[index.clamp(0, table_size - 1), 0], 0)
    assert torch.equal(out, expected[:, None].expand_as(out))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float", "fp16", "double"])
def test_the_compiler_sees_which_functions_only_copy(dtype: str, module: Any) -> None:
    sees = sanitized.VARIABLE not in os.environ  # not without optimisation
    assert getattr(module, f"copying_{dtype}")() == sees


def test_what_never_streams_needs_no_word_of_it(module: Any) -> None:
    src, index = torch.randint(0, 100, (7, 5)), torch.tensor([3, 6, 9, 0])
    out = torch.ones(4, 5, dtype=torch.int64)
    module.add(src, index, out)
    assert torch.equal(out, torch.stack([src[3], src[6], torch.zeros_like(src[0]), src[0]]) + 1)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row_size", [1, 3, 33, 200, 700])
def test_of_a_large_table_rows_are_prefetched_and_none_after_the_last(
    row_size: int, streams: bool, way: str, module: Any
) -> None:
    table_size = 2**21 // (8 * row_size)
    src = guarded(torch.randint(0, 100, (table_size, row_size)))
    index = torch.randint(0, table_size, (mmap.PAGESIZE // 4,), dtype=torch.int32)
    index[5], index[9], index[-1] = -(2**31), 2**31 - 1, table_size - 1
    out = torch.zeros(len(index), row_size, dtype=torch.int64)
    module.take_int64_int32(src, guarded(index), None, None, out, 0, len(index), streams, WAYS.index(way))
    expected = src[index.clamp(0, table_size - 1)]
    expected[5] = expected[9] = 0
    assert torch.equal(out, expected)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("streams", [False, True])
def test_rows_without_elements_are_none(rows: int, streams: bool, module: Any) -> None:
    out = torch.empty(rows, 0, dtype=torch.int64)
    index = torch.zeros(rows, dtype=torch.int32)
    found = torch.full((8, 2), 5, dtype=torch.int64)
    assert module.parts_int64(out, 0, rows, streams, False, found) == 0
    for way in range(len(WAYS)):
        module.take_int64_int32(torch.empty(3, 0, dtype=torch.int64), index, None, None, out, 0, rows, streams, way)
    assert (found == 5).all()
