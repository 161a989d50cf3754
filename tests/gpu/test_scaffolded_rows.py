"""Ops of `kjit new --pattern rowwise`, with longer rows than those of their own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, many
from scaffolded import build

DTYPES = {"fp32_t": torch.float32, "bf16_t": torch.bfloat16}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    signature = "x: T[B, D], weight: T[D], eps: float = 1e-6 -> out: T[B, D]"
    return build(tmp_path_factory.mktemp("rows"), "long_norm", signature, pattern="rowwise", dtypes=DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "offset"),
    [
        (1, 250_000, 0),  # few rows: as many blocks for each as can share one
        (8, 16_384, 0),
        (32, 16_387, 0),
        (33, 16_384, 0),
        (many(300), 65_536, 0),  # more than the GPU works on at a time, fetched ahead
        (many(300), 65_539, 0),
        (many(300), 33_000, 0),  # blocks of half the threads, as larger ones would not fill an SM
        (33, 50_000, 0),
        (many(300), 14_001, 0),  # and of a quarter, as rows are not aligned
        (33, 20_001, 0),
        (3, 600_000, 0),  # more than a cluster can hold
        (3, 600_003, 0),
        (3, 30_001, 1),  # the tensors are never aligned at the same time
        (3, 50_001, 1),
        (3, 5_001, 1),
    ],
)
def test_long_rows_are_right(module: Any, dtype: str, rows: int, columns: int, offset: int) -> None:
    x = torch.randn(rows, columns, device=DEVICE).to(DTYPES[dtype])
    weight = torch.randn(columns, device=DEVICE).to(DTYPES[dtype])
    memory = torch.full((rows * columns + 2 * offset,), 7.0, dtype=DTYPES[dtype], device=DEVICE)
    out = memory[offset : offset + rows * columns].view(rows, columns)
    for _ in range(3):  # the later ones begin while the one before still runs
        getattr(module, dtype)(x, weight, 1e-6, out)
    scale = (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    expected = (x.double() * scale * weight.double()).to(DTYPES[dtype])
    torch.testing.assert_close(out, expected)
    assert memory[:offset].tolist() + memory[len(memory) - offset :].tolist() == [7.0] * (2 * offset)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows_of_two_tensors_are_right_in_place(tmp_path: Path, dtype: str) -> None:
    signature = "x: mut T[B, D], residual: mut T[B, D], weight: T[D], eps: float = 1e-6"
    both_norm = getattr(build(tmp_path, "both_norm", signature, pattern="rowwise", dtypes=[dtype]), dtype)
    shapes = [
        (33, 16_400),
        (many(300), 6_001),
        (33, 12_001),
        (many(300), 20_001),
        (65, 40_001),
        (65, 50_257),
        (3, 65_535),
    ]
    for rows, columns in shapes:
        x, residual = (torch.randn(rows, columns, device=DEVICE).to(DTYPES[dtype]) for _ in range(2))
        weight = torch.randn(columns, device=DEVICE).to(DTYPES[dtype])
        mean_square = (x.double() + residual.double()).square().mean(-1, keepdim=True)
        factors = (mean_square + 1e-6).rsqrt() * weight.double()
        expected = [(tensor.double() * factors).to(DTYPES[dtype]) for tensor in (x, residual)]
        both_norm(x, residual, weight, 1e-6)
        torch.testing.assert_close([x, residual], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_beside_two_columns_are_right(tmp_path: Path, dtype: str) -> None:
    """Whose threads hold more vectors of rows that are not aligned than of others."""
    signature = "x: T[B, D], weight: T[D], bias: T[D], eps: float = 1e-6 -> out: T[B, D]"
    norm = getattr(build(tmp_path, "two_columns", signature, pattern="rowwise", dtypes=[dtype]), dtype)
    for rows, columns in [(33, 67), (33, 1_001), (many(300), 6_001), (33, 6_000), (many(300), 20_001), (33, 70_001)]:
        x = torch.randn(rows, columns, device=DEVICE).to(DTYPES[dtype])
        weight, bias = (torch.randn(columns, device=DEVICE).to(DTYPES[dtype]) for _ in range(2))
        out = torch.empty_like(x)
        norm(x, weight, bias, 1e-6, out)
        scale = (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        expected = x.double() * scale * weight.double() * bias.double()
        torch.testing.assert_close(out, expected.to(DTYPES[dtype]))


def test_a_row_that_is_not_finite_leaves_those_beside_it_alone(module: Any) -> None:
    rows, columns = 4_500, 101
    x = torch.randn(rows, columns, device=DEVICE).bfloat16()
    weight = torch.randn(columns, device=DEVICE).bfloat16()
    out, spoilt = torch.empty_like(x), torch.empty_like(x)
    module.bf16_t(x, weight, 1e-6, out)
    x[7::5] = torch.inf
    module.bf16_t(x, weight, 1e-6, spoilt)
    finite = torch.ones(rows, dtype=torch.bool, device=DEVICE)
    finite[7::5] = False
    assert torch.equal(out[finite], spoilt[finite])
    assert spoilt[~finite].isnan().all()


def test_rows_are_read_as_the_kernel_ahead_has_left_them(module: Any) -> None:
    """They are asked for before that kernel has ended."""
    rows, columns = many(300), 65_536
    weight = torch.randn(columns, device=DEVICE)
    middle, out = torch.zeros(rows, columns, device=DEVICE), torch.empty(rows, columns, device=DEVICE)
    for _ in range(5):
        x = torch.randn(rows, columns, device=DEVICE)
        module.fp32_t(x, weight, 1e-6, middle)
        module.fp32_t(middle, weight, 1e-6, out)
        expected = x.double() * weight.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        scale = (expected.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        torch.testing.assert_close(out, (expected * weight.double() * scale).float())
