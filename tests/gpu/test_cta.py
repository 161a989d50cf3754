"""kjit/cta.cuh, kjit/atomic.cuh and kjit/mbarrier.cuh on a GPU, or in the simulator."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
import torch
from machine import CAPABILITY, DEVICE

# C++ types of the values and of the shared memory, and torch's: a type of more bits is as good as another one.
TYPES: dict[str, tuple[str, torch.dtype, torch.dtype]] = {
    "float": ("float, float", torch.float32, torch.float32),
    "double": ("double, double", torch.float64, torch.float64),
    "int": ("int, int", torch.int32, torch.int32),
    "int64": ("int64_t, int64_t", torch.int64, torch.int64),
    "uint8": ("uint8_t, uint8_t", torch.uint8, torch.uint8),
    "half": ("fp16_t, fp16_t", torch.float16, torch.float16),
    "bfloat16": ("bf16_t, bf16_t", torch.bfloat16, torch.bfloat16),
    "half_in_float": ("fp16_t, float", torch.float16, torch.float32),
}
OPS = ["SUM", "MAX", "MIN"]
FIXED = [1, 32, 33, 96, 256, 1000, 1024]
SHAPES = [
    *((1, 1, 1), (31, 1, 1), (32, 1, 1), (33, 1, 1), (64, 1, 1), (100, 1, 1), (1000, 1, 1), (1024, 1, 1)),
    *((8, 5, 1), (33, 3, 1), (16, 16, 1), (5, 5, 5), (2, 3, 64)),
]
PAIRS = {"fp16x2_t": torch.float16, "bf16x2_t": torch.bfloat16, "fp32x2_t": torch.float32}

CASES = "cta_cases"
EXPORTS = [
    *(
        (f"{op}_{name}", f"reduce<ReductionOp::{op}, {cpp}>")
        for op, (name, (cpp, _, _)) in itertools.product(OPS, TYPES.items())
    ),
    *(
        (f"{op}_{threads}_threads", f"reduce<ReductionOp::{op}, float, float, {threads}>")
        for op, threads in itertools.product(OPS, FIXED)
    ),
    *((f"pairs_{name}", f"reduce_pairs<{name}>") for name in PAIRS),
    ("update_float", "update<float>"),
    ("update_double", "update<double>"),
    ("contend_float", "contend<float>"),
    ("contend_double", "contend<double>"),
    ("event_16_bits", "event<16>"),
    ("event_4_bits", "event<4>"),
]


def values(op: str, dtype: torch.dtype, rounds: int, blocks: int, threads: int) -> torch.Tensor:
    """[rounds, blocks, threads]. Sums are small integers, few of them not 0 for the narrow types: exact in any order.

    Extremes are all negative in the first block, where the type has negative numbers.
    """
    generator = torch.Generator().manual_seed(threads)
    shape = (rounds, blocks, threads)
    if op == "SUM":
        x = torch.randint(-4, 5, shape, generator=generator)
        x[..., 30:] *= torch.rand((rounds, blocks, max(threads - 30, 0)), generator=generator) < 25 / threads
        return x.to(dtype)
    if dtype == torch.uint8:
        return torch.randint(1, 200, shape, generator=generator).to(dtype)
    x = torch.randint(-100, 101, shape, generator=generator)
    x[:, 0] = -x[:, 0].abs() - 1
    return x.to(dtype)


def expected(op: str, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Over the last dimension, as `dtype`."""
    wide = x.to(torch.float64 if x.is_floating_point() else torch.int64)
    reduced = wide.sum(-1) if op == "SUM" else wide.amax(-1) if op == "MAX" else wide.amin(-1)
    return reduced.to(dtype)


def check_reduction(export: Any, op: str, dtype: torch.dtype, result: torch.dtype, shape: tuple[int, int, int]) -> None:
    blocks, threads = 3, shape[0] * shape[1] * shape[2]
    x = values(op, dtype, 2, blocks, threads)
    out = torch.zeros(5, blocks, threads, dtype=result, device=DEVICE)
    export(out, x.to(DEVICE), blocks, *shape)
    returned, from_memory, again, overwritten, untouched = out.cpu()
    first, second = (expected(op, values, result)[:, None].expand(-1, threads) for values in x)
    assert torch.equal(returned, first), "what the call returned"
    assert torch.equal(from_memory, first), "smem[0] right after the call"
    assert torch.equal(again, second), "a second call with the same memory"
    assert torch.equal(overwritten, (torch.arange(threads) // 32).to(result).expand(blocks, -1)), "memory in other use"
    assert untouched.eq(1).all(), "the elements beside the memory"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("op", OPS)
def test_every_thread_gets_the_result_whatever_the_block(module: Any, op: str, shape: tuple[int, int, int]) -> None:
    for name, (_, dtype, result) in TYPES.items():
        check_reduction(module[f"{op}_{name}"], op, dtype, result, shape)


@pytest.mark.parametrize("threads", FIXED)
@pytest.mark.parametrize("op", OPS)
def test_a_size_that_is_known_changes_nothing(module: Any, op: str, threads: int) -> None:
    export = module[f"{op}_{threads}_threads"]
    check_reduction(export, op, torch.float32, torch.float32, (threads, 1, 1))
    if threads % 8 == 0:
        check_reduction(export, op, torch.float32, torch.float32, (8, threads // 8, 1))


def both(module: Any, op: str, name: str, x: torch.Tensor) -> torch.Tensor:
    """The result of one block of `x.numel()` threads, which is the same in all of them."""
    out = torch.zeros(5, x.numel(), dtype=TYPES[name][2], device=DEVICE)
    module[f"{op}_{name}"](out, torch.stack([x, x]).to(DEVICE), 1, x.numel(), 1, 1)
    returned = out[0].cpu()
    assert returned.eq(returned[0]).all() or returned.isnan().all()
    return returned[0]


@pytest.mark.parametrize("name", ["float", "double", "half", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 32, 100, 1024])
def test_extremes_ignore_nan_unless_all_are_nan(module: Any, name: str, threads: int) -> None:
    nan, inf = float("nan"), float("inf")
    some = torch.full((threads,), nan, dtype=TYPES[name][1])
    for op, infinity in (("MAX", -inf), ("MIN", inf)):
        assert both(module, op, name, some).isnan()
        one = some.clone()
        one[threads // 2] = -3.0
        assert both(module, op, name, one) == -3.0
        assert both(module, op, name, torch.full_like(some, infinity)) == infinity


def test_float_sums_are_as_exact_as_a_tree_of_additions(module: Any) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    found = both(module, "SUM", "float", x).double()
    # Two levels of at most five additions each, every one off by half an ulp of at most the sum of all sizes.
    bound = 10 * 2.0**-24 * x.double().abs().sum()
    assert (found - x.double().sum()).abs() <= bound


def test_half_values_are_summed_in_the_type_of_the_memory(module: Any) -> None:
    x = torch.full((1024,), 1024.0, dtype=torch.float16)
    assert both(module, "SUM", "half", x) == float("inf")
    assert both(module, "SUM", "half_in_float", x) == 2.0**20


@pytest.mark.parametrize("threads", [20, 32, 256, 1024])
def test_a_least_maximum_may_be_given(module: Any, threads: int) -> None:
    x = -torch.rand(threads, device=DEVICE) - 1
    out = torch.zeros(threads, device=DEVICE)
    for least, right in ((0.0, 0.0), (-0.5, -0.5), (float("-inf"), x.max().item())):
        module.max_from(out, x, least)
        assert out.eq(right).all()
    module.max_from(out, torch.full_like(x, float("nan")), -2.0)
    assert out.eq(-2.0).all()


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("threads", [32, 70, 256])
def test_pairs_are_reduced_element_by_element(module: Any, name: str, threads: int) -> None:
    x = torch.randint(-2, 3, (threads, 2), generator=torch.Generator().manual_seed(1))
    x[20:] *= torch.arange(20, threads)[:, None] % 11 == 0
    x -= torch.tensor([0, 3]) * (torch.arange(threads)[:, None] < 8)
    source = x.to(PAIRS[name]).to(DEVICE)
    out = torch.zeros(2, threads, 2, dtype=PAIRS[name], device=DEVICE)
    module[f"pairs_{name}"](out, source, threads)
    assert torch.equal(out[0].cpu().long(), x.sum(0).expand(threads, 2))
    assert torch.equal(out[1].cpu().long(), x.amax(0).expand(threads, 2))


FLOATS = {"float": ("<f", "<i", torch.float32, torch.int32), "double": ("<d", "<q", torch.float64, torch.int64)}
# Bits of NaN with and without a sign, which Python's own literals do not tell apart.
NANS = {"float": [0x7FC00000, 0xFFC00001], "double": [0x7FF8000000000000, 0xFFF8000000000001]}


def special_bits(name: str) -> list[int]:
    """Numbers of every kind, as signed integers with the same bits; the two NaN are the last."""
    pattern, integer, dtype, _ = FLOATS[name]
    info = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, info.tiny, -info.tiny, info.tiny / 4, -info.tiny / 4]
    numbers += [info.max, -info.max, float("inf"), float("-inf")]
    bits = [struct.unpack(integer, struct.pack(pattern, number))[0] for number in numbers]
    return bits + [struct.unpack(integer, struct.pack(integer.upper(), nan))[0] for nan in NANS[name]]


def total_order(bits: int, name: str) -> int:
    """A number that rises as IEEE 754's total order does: with a sign, larger bits are smaller numbers."""
    lowest = -(2**31) if name == "float" else -(2**63)
    return bits if bits >= 0 else lowest - 1 - bits


@pytest.mark.parametrize("larger", [True, False], ids=["max", "min"])
@pytest.mark.parametrize("name", FLOATS)
def test_an_update_orders_numbers_by_their_bits_and_ignores_nan(module: Any, name: str, larger: bool) -> None:
    _, _, dtype, integer = FLOATS[name]
    bits = special_bits(name)
    pairs = list(itertools.product(bits, bits))
    before = torch.tensor([a for a, _ in pairs], dtype=integer, device=DEVICE)
    new = torch.tensor([b for _, b in pairs], dtype=integer, device=DEVICE)
    memory, old = before.clone(), torch.zeros_like(before)
    module[f"update_{name}"](memory.view(dtype), new.view(dtype), old.view(dtype), larger)
    assert torch.equal(old, before)
    better = max if larger else min
    for (a, b), found in zip(pairs, memory.tolist(), strict=True):
        right = a if b in bits[-2:] else better(a, b, key=lambda x: total_order(x, name))
        assert found == right, f"{a:#x} and {b:#x}"


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("case", ["mixed", "negative", "positive", "with_nan"])
def test_the_extremes_of_many_blocks_are_found(module: Any, name: str, case: str) -> None:
    dtype = FLOATS[name][2]
    x = torch.randn(256 * 500, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if case in ("negative", "positive"):
        x = x.abs() if case == "positive" else -x.abs()
    numbers = x
    if case == "with_nan":
        x = x.clone()
        x[::3] = float("nan")
        numbers = x[~x.isnan()]
    inf = float("inf")
    extremes = torch.tensor([-inf, inf, -inf, inf], dtype=dtype, device=DEVICE)
    module[f"contend_{name}"](extremes, x.to(DEVICE), -inf, inf)
    right = [numbers.max().item(), numbers.min().item()]
    assert extremes.tolist() == [*right, *right]


def test_words_are_changed_by_single_instructions(module: Any) -> None:
    word = torch.tensor([0], dtype=torch.int32, device=DEVICE)
    seen = torch.full((5,), -1, dtype=torch.int32, device=DEVICE)
    module.words(word, seen)
    assert seen.tolist() == [0, 5, 13, 13, 1000]
    assert word.item() == 1000


@pytest.mark.parametrize(
    ("bits", "consumers", "single"), [(16, 1, True), (16, 1, False), (16, 20, False), (4, 9, False)]
)
def test_those_that_wait_see_what_was_written_before(module: Any, bits: int, consumers: int, single: bool) -> None:
    producers = 40
    word = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    for base in (0, 10**6, 5):
        data = torch.zeros(producers * 256, dtype=torch.int64, device=DEVICE)
        sums = torch.zeros(consumers, dtype=torch.int64, device=DEVICE)
        module[f"event_{bits}_bits"](word, data, sums, producers, single, base)
        assert sums.tolist() == [sum(range(base, base + producers * 256))] * consumers
        assert word.item() == 0, "an event is as new once all have been let go"


def test_arrivals_are_counted(module: Any) -> None:
    word = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    seen = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    module.handle(word, seen)
    assert seen.item() == 4


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 5, 64])
def test_a_pipeline_over_two_buffers_loses_nothing(module: Any, rounds: int, relaxed: bool) -> None:
    buffers = torch.zeros(2, 32, dtype=torch.int32, device=DEVICE)
    sums = torch.zeros(3, 32, dtype=torch.int32, device=DEVICE)
    module.pipeline(buffers, sums, rounds, relaxed)
    right = sum(round_ * 100 for round_ in range(rounds)) + rounds * torch.arange(32)
    assert torch.equal(sums.cpu().long(), right.expand(3, -1))


def test_a_phase_ends_when_the_expected_bytes_have_come(module: Any) -> None:
    if CAPABILITY < (9, 0):
        pytest.skip("counting bytes needs compute capability 9.0")
    out = torch.full((4,), -1, dtype=torch.int32, device=DEVICE)
    module.bytes(out)
    assert out.tolist() == [0, 0, 1, 8]
