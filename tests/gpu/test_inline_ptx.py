"""Inline PTX has the same results in the simulator as on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from machine import DEVICE

CASES = "ptx_cases"
EDGES = [(0, 0), (1, 31), (0xFFFFFFFF, 1), (0x80000000, 0xFFFFFFFF), (0x7FFFFFFF, 0x80000000), (0x12345678, 39)]


def words(pairs: list[list[int]] | list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.int64).to(torch.uint32).to(DEVICE)


def signed(word: int) -> int:
    return word - (word >> 31 << 32)


def integers_of(a: int, b: int) -> list[int]:
    """The results of the kernel, computed with Python's integers."""
    by = b % 40
    shifted = a >> (b % 31)
    field = a >> 5 & 0x1FF
    return [
        *(a + b, signed(a) * signed(b) >> 32, min(signed(a), signed(b)), signed(a) >> by, a << by if by < 32 else 0),
        *(a * b + 7, (a * b + 1) >> 32, field - (field >> 8 << 9), b & ~0xFFF0 | (a & 0xFFF) << 4, a.bit_count()),
        *(32 - shifted.bit_length(), 100 if a < b else 201, (a & 0xFFFF) << 16 | b & 0xFFFF, a >> 16, b - a, 55),
    ]


def test_integers(module: Any) -> None:
    pairs = EDGES + torch.randint(0, 1 << 32, (100, 2)).tolist()
    out = torch.zeros(len(pairs), 16, dtype=torch.int32, device=DEVICE)
    module.run_integers(out.view(torch.uint32), words(pairs))
    for (a, b), got in zip(pairs, out.tolist(), strict=True):
        assert [word & 0xFFFFFFFF for word in got] == [word & 0xFFFFFFFF for word in integers_of(a, b)], (a, b)


def test_floating_point_values(module: Any) -> None:
    x = torch.rand(100, 2, device=DEVICE) * 20 + 0.1
    x[:4, 0] = torch.tensor([0.5, 1.5, 2.5, 3.5])
    out = torch.empty(100, 8, device=DEVICE)
    module.run_reals(out, x)
    a, b = x.double().unbind(1)
    bits = x[:, 0].view(torch.int32)
    tf32 = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    expected = torch.stack([a * b + 3, a.max(b), a / b, 2**a, a.half(), a.round(), 1 / b, tf32], 1).float()
    torch.testing.assert_close(out, expected)
    exact = [1, 4, 5, 7]
    assert torch.equal(out[:, exact], expected[:, exact])


def test_pairs_of_halves(module: Any) -> None:
    halves = torch.randn(100, 4, device=DEVICE).half()
    halves[0] = torch.tensor([65504.0, 2.0**-24, 65504.0, 2.0**-24])
    out = torch.zeros(100, 4, dtype=torch.int32, device=DEVICE)
    module.run_halves(out.view(torch.uint32), halves.view(torch.int32).view(torch.uint32))
    a, b = halves.double().view(100, 2, 2).unbind(1)
    got = out.view(torch.float16).view(100, 4, 2)
    for place, expected in enumerate((a + b, a * b, a * b + a)):
        assert torch.equal(got[:, place], expected.half())
    a, b = halves.view(torch.bfloat16).double().view(100, 2, 2).unbind(1)
    finite = (a * b + a).abs() < 3e38
    assert torch.equal(out.view(torch.bfloat16).view(100, 4, 2)[:, 3][finite], (a * b + a).bfloat16()[finite])


def test_threads_exchange(module: Any) -> None:
    out = torch.zeros(64, 8, dtype=torch.int32, device=DEVICE)
    word = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    module.run_together(out.view(torch.uint32), word.view(torch.uint32))
    thread = torch.arange(64, dtype=torch.int32, device=DEVICE)
    got = out.unbind(1)
    assert torch.equal(got[0], 3 * (63 - thread))
    assert torch.equal(got[1], 4 * thread)
    assert torch.equal(got[2], torch.where(thread % 32 < 29, thread + 3, 77))
    assert torch.equal(got[3], thread ^ 5)
    assert [ballot & 0xFFFFFFFF for ballot in got[4].tolist()] == [0] * 32 + [0xFFFFFE00] * 32
    assert torch.equal(got[5], (thread % 32 == 0).int())
    assert set(got[6].tolist()) <= set(range(64))
    assert torch.equal(got[7], torch.full_like(thread, 2016))
    assert word.tolist() == [2016, 63]
