"""Tests of pattern elementwise that apply to the GPU and to the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from each_pattern import Check
from guarded import Guarded

MIXES = {
    "Mix<fp32_t, fp32_t, fp32_t>": (torch.float32, torch.float32, torch.float32),
    "Mix<bf16_t, double, int8_t>": (torch.bfloat16, torch.float64, torch.int8),
    "Mix<uint8_t, fp16_t, int64_t>": (torch.uint8, torch.float16, torch.int64),
    "Mix<fp16_t, fp8_e4m3_t, bf16_t>": (torch.float16, torch.float8_e4m3fn, torch.bfloat16),
    "Mix<double, int32_t, fp8_e5m2_t>": (torch.float64, torch.int32, torch.float8_e5m2),
}
"""The ops of elementwise_cases.h that are called with five tensors, and the dtypes of three."""

NEGATED = {"Negate<fp32_t>": torch.float32, "Negate<bf16_t>": torch.bfloat16, "Negate<int8_t>": torch.int8}

HALVES = {
    "Halves<fp32_t, fp32_t>": (torch.float32, torch.float32),
    "Halves<bf16_t, int8_t>": (torch.bfloat16, torch.int8),
}
"""The ops that are called with the halves of rows, and the dtypes of these and of the others."""

EXPORTS = [
    *((f"halves_{number}", f"{symbol}::run") for number, symbol in enumerate(HALVES)),
    *((f"mix_{number}", f"{symbol}::run") for number, symbol in enumerate(MIXES)),
    *((f"negate_{number}", f"{symbol}::run") for number, symbol in enumerate(NEGATED)),
]

# Around the ends of vectors, of what a block has, and of what the CPU does at once; past what one of its threads does.
SIZES = [0, 1, 2, 7, 8, 15, 17, 33, 127, 129, 511, 1025, 2049, 5001, 40_003]

OFFSETS = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (3, 3, 3, 3, 3), (16, 8, 4, 16, 32), (0, 1, 0, 0, 0), (0, 0, 0, 0, 1)]
"""Elements before the first of each tensor: aligned together from the start on, from some element on, or never."""


def check_mix(module: Any, number: int, size: int, offsets: tuple[int, ...], device: str, *, absent: bool) -> None:
    """Results are exact, and nothing beside them is touched."""
    first, second, third = list(MIXES.values())[number]
    a, b, c, d, e = (
        Guarded(dtype, size, offset=offset, device=device)
        for dtype, offset in zip((first, second, third, first, torch.bool), offsets, strict=True)
    )
    others = torch.zeros(size, device=device) if absent else b.tensor.float()
    expected = (c.tensor.float() + others, a.tensor.float() * 3 + 1, a.tensor.float() < others)
    before = a.tensor.clone(), b.tensor.clone()
    getattr(module, f"mix_{number}")(a.tensor, None if absent else b.tensor, c.tensor, d.tensor, e.tensor, 3.0, True)
    for result, right in zip((c, d, e), expected, strict=True):
        assert torch.equal(result.tensor.float(), right.float())
    for tensor, held in zip((a, b), before, strict=True):
        assert torch.equal(tensor.tensor.float(), held.float())
    assert all(tensor.is_intact() for tensor in (a, b, c, d, e))


def check_negate(module: Any, number: int, size: int, offset: int, device: str) -> None:
    """A tensor that is changed in place, by math that is a template."""
    x = Guarded(list(NEGATED.values())[number], size, offset=offset, device=device)
    expected = -x.tensor
    getattr(module, f"negate_{number}")(x.tensor)
    assert torch.equal(x.tensor, expected)
    assert x.is_intact()


SHAPES = [(0, 8), (3, 0), (1, 1), (3, 7), (5, 8), (7, 32), (129, 33), (33, 512), (2, 4097), (1, 40_064)]
"""Rows and their lengths: none, shorter and longer than a vector, more than one thread of the CPU does."""


def check_halves(
    module: Any, number: int, shape: tuple[int, int], offset: int, gap: int, device: str, *, absent: bool
) -> None:
    """Each half of a row is read at its own place, and nothing between rows with gaps is touched."""
    dtype, other_dtype = list(HALVES.values())[number]
    rows, size = shape
    x = Guarded(dtype, rows * 2 * size, offset=offset, device=device)
    other = Guarded(other_dtype, rows * size, offset=offset, device=device)
    kept = Guarded(other_dtype, rows * (size + gap), offset=offset, device=device)
    out = Guarded(dtype, rows * size, offset=offset, device=device)
    left, right = x.tensor.view(rows, 2 * size).float().chunk(2, -1) if size else (x.tensor.view(rows, 0).float(),) * 2
    added = torch.zeros(shape, device=device) if absent else other.tensor.view(shape).float()
    strided = kept.tensor.view(rows, size + gap)[:, :size] if rows and size + gap else kept.tensor.view(shape)
    between = kept.tensor.view(rows, size + gap)[:, size:].clone() if gap and rows else None
    expected = (strided.float() + left).to(other_dtype), (left - right + added).to(dtype)
    arguments = x.tensor.view(rows, 2 * size), None if absent else other.tensor.view(shape), strided
    getattr(module, f"halves_{number}")(*arguments, out.tensor.view(shape))
    assert torch.equal(strided.float(), expected[0].float())
    assert torch.equal(out.tensor.view(shape).float(), expected[1].float())
    if between is not None:
        assert torch.equal(kept.tensor.view(rows, size + gap)[:, size:], between)
    assert all(tensor.is_intact() for tensor in (x, other, kept, out))


def checks() -> Iterator[tuple[str, Check]]:
    """Each check of the ops, with a name."""
    for number, offsets, absent in product(range(len(MIXES)), OFFSETS, (False, True)):

        def mixes(module: Any, device: str, case: Any = (number, offsets, absent)) -> None:
            for size in SIZES:
                check_mix(module, case[0], size, case[1], device, absent=case[2])

        yield f"mix-{number}-{offsets}-{absent}", mixes
    for number, offset in product(range(len(NEGATED)), (0, 1, 7)):

        def negates(module: Any, device: str, case: Any = (number, offset)) -> None:
            for size in SIZES:
                check_negate(module, case[0], size, case[1], device)

        yield f"in_place-{number}-{offset}", negates
    for number, (offset, gap), absent in product(range(len(HALVES)), [(0, 0), (0, 32), (0, 3), (1, 0)], (False, True)):

        def halves(module: Any, device: str, case: Any = (number, offset, gap, absent)) -> None:
            for shape in SHAPES:
                check_halves(module, case[0], shape, *case[1:3], device, absent=case[3])

        yield f"halves-{number}-{offset}-{gap}-{absent}", halves
