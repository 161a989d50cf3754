"""kjit/cpu_rows.h: rows that an index chooses, side by side."""

from __future__ import annotations

import ctypes
import mmap
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kjit

HERE = Path(__file__).parent
LINE = 64  # bytes
STAGED, HELD = 128, 640  # elements of a part, and of a run of several rows
NEAR = 2**20  # bytes of a table, at most
ROW_SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257]
LONG_SIZES = [*range(511, 514), 640, 700, 1500]
TYPES = {torch.uint8: torch.int64, torch.int16: torch.int64, torch.int32: torch.int32, torch.int64: torch.int32}


@pytest.fixture(scope="module")
def module(load_cpp: Callable[[str], Any]) -> Any:
    return load_cpp("cpu_rows_cases")


def guarded(values: torch.Tensor) -> torch.Tensor:
    """A copy behind which there is no memory: to read there ends the process."""
    pages = -(-values.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    behind = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages * mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(behind), mmap.PAGESIZE, 0) == 0
    whole = torch.frombuffer(memory, dtype=torch.uint8)[: pages * mmap.PAGESIZE]
    return whole[len(whole) - values.nbytes :].view(values.dtype).view(values.shape).copy_(values)


def shifted(rows: int, row_size: int, dtype: torch.dtype, offset: int) -> torch.Tensor:
    """A tensor that begins `offset` elements behind a line of the caches."""
    size = dtype.itemsize
    memory = torch.zeros(rows * row_size * size + 2 * LINE, dtype=torch.uint8)
    begin = -memory.data_ptr() % LINE + offset * size
    return memory[begin : begin + rows * row_size * size].view(dtype).view(rows, row_size)


def is_short(row_bytes: int, is_near: bool, streams: bool) -> bool:
    """Whether rows are laid side by side."""
    if streams:
        return row_bytes < 768
    return row_bytes < (512 if is_near else 256 if row_bytes % LINE else 128)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize("offset", [0, 3])
def test_runs_cover_the_rows_and_those_of_several_end_with_whole_parts(
    dtype: torch.dtype, streams: bool, is_near: bool, offset: int, module: Any
) -> None:
    name = str(dtype).removeprefix("torch.")
    line = LINE // dtype.itemsize
    for row_size in ROW_SIZES + LONG_SIZES:
        rows = max(3, 2000 // row_size)
        out = shifted(rows, row_size, dtype, offset)
        for first, last in ((0, rows), (1, rows - 1), (rows, rows)):
            found = torch.zeros(3000, 4, dtype=torch.int64)
            table_size = NEAR // (row_size * dtype.itemsize) + (0 if is_near else 1)
            count = getattr(module, f"runs_{name}")(out, first, last, table_size, streams, found)
            runs = found[:count].tolist()
            packs = is_short(row_size * dtype.itemsize, is_near, streams) and row_size <= HELD - STAGED
            begins = [begin for begin, _, _, _ in runs]
            assert begins == [first * row_size, *(end for _, end, _, _ in runs[:-1])] if runs else first == last
            assert sum(abs(count) for _, _, _, count in runs) == last - first
            assert all((count > 0) == packs for _, _, _, count in runs)
            for begin, end, head, _ in runs:
                assert 0 <= head <= end - begin
                aligned = (begin + head + offset) % line == 0
                assert aligned or head == end - begin or not (packs or streams)
            if packs:
                assert all(end - begin <= HELD for begin, end, _, _ in runs)
                assert all((end - begin - head) % STAGED == 0 for begin, end, head, _ in runs[:-1])
                assert all(head == 0 for _, _, head, _ in runs[1:])
            else:
                assert all(end - begin == row_size for begin, end, _, _ in runs)
            if runs:
                assert runs[-1][1] == last * row_size


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("offset", [0, 3])
def test_parts_of_short_rows_are_whole_but_for_the_first_and_those_at_the_end(
    dtype: torch.dtype, offset: int, module: Any
) -> None:
    name = str(dtype).removeprefix("torch.")
    for row_size in (1, 7, 31, 32, 63):
        rows = 3000 // row_size
        out = shifted(rows, row_size, dtype, offset)
        sizes = torch.zeros(3000, dtype=torch.int64)
        parts = sizes[: getattr(module, f"parts_{name}")(out, 1, rows, False, sizes)].tolist()
        head = -(row_size + offset) % (LINE // dtype.itemsize)
        whole, left = divmod((rows - 1) * row_size - head, STAGED)
        known = [STAGED] * whole + [32] * (left // 32)
        assert parts == [*([-head] if head else []), *known, *([-(left % 32)] if left % 32 else [])]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("streams", [False, True])
def test_each_row_is_the_one_that_its_number_says(dtype: torch.dtype, streams: bool, module: Any) -> None:
    index_dtype = TYPES[dtype]
    take = getattr(module, f"take_{dtype}_{index_dtype}".replace("torch.", ""))
    for row_size in ROW_SIZES + LONG_SIZES:
        rows, table_size = max(9, 1500 // row_size), 11
        src = guarded(torch.randint(0, 100, (table_size, row_size), dtype=dtype))
        index = torch.randint(0, table_size, (rows,), dtype=index_dtype)
        index[0], index[rows // 2], index[-1] = -1, table_size, table_size - 1  # two that the table does not have
        numbers = torch.randint(0, 50, (rows,), dtype=dtype)
        column = torch.randint(0, 50, (row_size,), dtype=dtype)
        chosen = torch.where(((index >= 0) & (index < table_size))[:, None], src[index.clamp(0, table_size - 1)], 0)
        for first, last, offset in ((0, rows, 0), (1, rows - 1, 3), (3, 4, 0)):
            for beside in ((None, None), (numbers, None), (None, column), (numbers, column)):
                out = shifted(rows, row_size, dtype, offset).fill_(7)
                take(src, guarded(index), *beside, out, first, last, streams)
                expected = torch.full_like(out, 7)
                expected[first:last] = chosen[first:last]
                if beside[0] is not None:
                    expected[first:last] += numbers[first:last, None]
                if beside[1] is not None:
                    expected[first:last] += column
                assert torch.equal(out, expected), (row_size, first, last, offset, beside)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("row_size", [1, 3, 33, 200, 700])
def test_of_a_large_table_rows_are_asked_for_ahead_and_none_behind_the_last(
    row_size: int, streams: bool, module: Any
) -> None:
    table_size = 2**21 // (8 * row_size)
    src = guarded(torch.randint(0, 100, (table_size, row_size)))
    index = torch.randint(0, table_size, (mmap.PAGESIZE // 4,), dtype=torch.int32)
    index[5], index[9], index[-1] = -(2**31), 2**31 - 1, table_size - 1
    out = torch.empty(len(index), row_size, dtype=torch.int64)
    module.take_int64_int32(src, guarded(index), None, None, out, 0, len(index), streams)
    expected = src[index.clamp(0, table_size - 1)]
    expected[5] = expected[9] = 0
    assert torch.equal(out, expected)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_rows_without_elements_are_none(rows: int, module: Any) -> None:
    out = torch.empty(rows, 0, dtype=torch.int64)
    index = torch.zeros(rows, dtype=torch.int32)
    found = torch.full((8, 4), 5, dtype=torch.int64)
    assert module.runs_int64(out, 0, rows, 3, False, found) == 0
    module.take_int64_int32(torch.empty(3, 0, dtype=torch.int64), index, None, None, out, 0, rows, False)
    assert (found == 5).all()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are looked for by their x86 names")
def test_the_compiler_has_not_left_out_what_asks_for_rows_ahead(tmp_path: Path) -> None:
    kjit.load_jit("cpu_rows_cases", cpp_files=[HERE / "cpu_rows_cases.cpp"], build_directory=tmp_path)
    (library,) = tmp_path.rglob("*.so")
    code = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    assert "prefetcht0" in code  # for tables that are larger than a near cache
    assert "prefetcht1" in code  # for those whose results go past the caches
