"""kjit/detail/row_cut.cuh on a GPU, or in the simulator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE

import kjit

CASES = Path(__file__).parent / "row_cut_cases.cuh"
# Vectors of 16, 16, 8, 4 and 2 bytes: what is copied without registers, and what is not.
KINDS = {"int16_8": (torch.int16, 8), "int32_4": (torch.int32, 4), "int64_1": (torch.int64, 1)}
KINDS |= {"int8_8": (torch.int8, 8), "int8_4": (torch.int8, 4), "int8_2": (torch.int8, 2)}
# As many as each number of threads and of vectors has room for, and one more.
TABLES = [1, 4, 5, 13, 14, 46, 47, 62]
EXPORTS = [
    *((f"take_{name}", f"take<{name.replace('_', '_t, ')}, int64_t>") for name in KINDS),
    ("take_by_int32", "take<int32_t, 4, int32_t>"),
    *((name, name) for name in ("take_nothing", "can_cut", "divide", "cut_everywhere")),
    *((f"bytes_of_{count}", f"bytes_of_tables<{count}>") for count in TABLES),
]


@pytest.fixture(scope="module")
def module() -> Any:
    return kjit.load_jit(
        "row_cut_cases",
        cuda_files=[CASES],
        cuda_wrappers=EXPORTS,
    )


def _numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-50, 50, shape, dtype=dtype, device=DEVICE)


def _shifted(tensor: torch.Tensor, by: int) -> torch.Tensor:
    """A copy that begins `by` elements behind the start of its memory, and ends with it."""
    memory = torch.empty(tensor.numel() + by, dtype=tensor.dtype, device=DEVICE)
    view = memory[by:].view(tensor.shape)
    view.copy_(tensor)
    return view


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "table_size", "vectors"), [(1, 1, 4), (7, 3, 5), (100, 40, 4), (90, 7, 33), (3, 2, 700)]
)
def test_rows_are_taken_wherever_they_lie(module: Any, kind: str, rows: int, table_size: int, vectors: int) -> None:
    dtype, vec = KINDS[kind]
    for extra in {0, 1, vec // 2, vec - 1}:
        size = vectors * vec + extra
        column = _numbers(size, dtype=dtype)
        index = torch.randint(0, table_size, (rows,), device=DEVICE)
        for offset in {0, 1, vec - 1}:
            table = _shifted(_numbers(table_size, size, dtype=dtype), offset)
            head = (vec - offset) % vec
            out = _shifted(torch.zeros(rows, size, dtype=dtype), offset)
            visits = torch.zeros(rows, size, dtype=dtype, device=DEVICE)
            getattr(module, f"take_{kind}")(table, index, column, out, visits, head)
            assert torch.equal(out, table[index] + column)
            assert visits.eq(1).all()


def test_an_absent_column_and_rows_that_the_table_does_not_have_are_zeros(module: Any) -> None:
    table = _numbers(9, 37, dtype=torch.int16)
    index = torch.tensor([8, -1, 0, 9, 2**40, 3, -(2**63)], device=DEVICE)
    out, visits = (torch.zeros(7, 37, dtype=torch.int16, device=DEVICE) for _ in range(2))
    module.take_int16_8(table, index, None, out, visits, 0)
    inside = (index >= 0) & (index < 9)
    assert torch.equal(out, table[index.clamp(0, 8)] * inside[:, None])
    assert visits.eq(1).all()


def test_of_an_empty_table_and_of_none_all_is_zeros(module: Any) -> None:
    column = _numbers(37, dtype=torch.int32)
    index = torch.arange(-1, 5, device=DEVICE)
    out, visits = (torch.zeros(6, 37, dtype=torch.int32, device=DEVICE) for _ in range(2))
    module.take_int32_4(torch.empty(0, 37, dtype=torch.int32, device=DEVICE), index, column, out, visits, 0)
    assert torch.equal(out, column.expand(6, 37))
    module.take_nothing(index, column, out, visits)
    assert torch.equal(out, column.expand(6, 37))
    assert visits.eq(2).all()


def test_an_index_may_be_of_int32(module: Any) -> None:
    table, index = _numbers(50, 130, dtype=torch.int32), torch.randint(0, 50, (77,), dtype=torch.int32, device=DEVICE)
    out, visits = (torch.zeros(77, 130, dtype=torch.int32, device=DEVICE) for _ in range(2))
    module.take_by_int32(table, index, None, out, visits, 0)
    assert torch.equal(out, table[index.long()])
    assert visits.eq(1).all()


def test_of_no_rows_there_is_nothing_to_do(module: Any) -> None:
    out, visits = (torch.zeros(1, 37, dtype=torch.int32, device=DEVICE) for _ in range(2))
    index = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    module.take_int32_4(_numbers(5, 37, dtype=torch.int32), index, None, out, visits, 3)
    assert not out.any()
    assert not visits.any()


@pytest.mark.parametrize(
    ("row_size", "vec", "head", "can"),
    [
        (32, 8, 0, True),
        (31, 8, 0, False),
        (33, 8, 7, True),
        (33, 8, -1, False),
        (2**30 - 1, 8, 0, True),
        (2**30, 8, 0, False),
    ],
)
def test_rows_of_four_vectors_and_more_can_be_cut(module: Any, row_size: int, vec: int, head: int, can: bool) -> None:
    assert module.can_cut(row_size, vec, head) is can


def test_a_vector_is_cut_out_of_two_wherever_it_begins(module: Any) -> None:
    pieces = _numbers(16, dtype=torch.int16)
    out = torch.zeros(8, 8, dtype=torch.int16, device=DEVICE)
    module.cut_everywhere(out, pieces)
    assert torch.equal(out, pieces.unfold(0, 8, 1)[:8])


@pytest.mark.parametrize("tables", TABLES)
def test_shared_memory_has_room_for_all_tables_of_an_op(module: Any, tables: int) -> None:
    assert 0 < module[f"bytes_of_{tables}"]() <= 48 * 1024  # what a kernel has without asking for more


def test_a_division_is_exact(module: Any) -> None:
    numbers = random.Random(0)
    for divisor in [1, 2, 3, 7, 641, 65_537, 2**29 + 1, 2**30 - 1, 2**30]:
        edges = [n * divisor + d for n in (0, 1, 2, (2**31 - 2) // divisor) for d in (-1, 0, 1)]
        asked = [n for n in edges if 0 <= n < 2**31] + [numbers.randrange(2**31) for _ in range(100)]
        quotients = torch.zeros(len(asked), dtype=torch.int64, device=DEVICE)
        module.divide(quotients, torch.tensor(asked, device=DEVICE), divisor)
        assert quotients.tolist() == [n // divisor for n in asked]
