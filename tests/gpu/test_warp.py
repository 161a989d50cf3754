"""kjit/warp.cuh and kjit/tile.cuh on a GPU, or in the simulator.

Sums are of small integers, so that every order gives the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from machine import CAPABILITY, DEVICE
from parts import InParts

Array = npt.NDArray[Any]

# Element types in C++, and how many of which type of numpy they are made of. numpy has no bfloat16: see `narrowed`.
TYPES: dict[str, tuple[type, int]] = {
    "int8_t": (np.int8, 1),
    "uint8_t": (np.uint8, 1),
    "int16_t": (np.int16, 1),
    "uint16_t": (np.uint16, 1),
    "int32_t": (np.int32, 1),
    "uint32_t": (np.uint32, 1),
    "int64_t": (np.int64, 1),
    "uint64_t": (np.uint64, 1),
    "fp32_t": (np.float32, 1),
    "double": (np.float64, 1),
    "fp16_t": (np.float16, 1),
    "bf16_t": (np.float32, 1),
    "fp32x2_t": (np.float32, 2),
    "fp16x2_t": (np.float16, 2),
    "bf16x2_t": (np.float32, 2),
}
EVERY_NIGHT = ["uint8_t", "int16_t", "uint16_t", "uint32_t", "uint64_t", "double", "fp32x2_t", "fp16x2_t"]
"""Types that are reduced as others of their kind or size are."""
SCANNED = ["int32_t", "uint8_t", "int64_t", "fp32_t", "bf16x2_t"]
SENT = ["int8_t", "int32_t", "double", "bf16_t", "fp32x2_t"]
MASKED = ["int32_t", "fp32_t"]

SCANS = [
    *((32, 1, 32), (16, 1, 16), (8, 1, 8), (4, 1, 4), (2, 1, 2), (1, 1, 1), (32, 4, 32), (32, 1, 8)),
    *((32, 2, 16), (8, 2, 8), (32, 32, 1), (32, 16, 1), (8, 8, 1), (32, 32, 4), (32, 16, 2), (16, 4, 4)),
]
SIZES = [
    *(1, 2, 3, 4, 5, 8, 12, 16, 24, 31, 32, 33, 48, 64, 100, 127, 128, 129, 160, 192, 256, 257, 320, 384, 500, 511),
    *(512, 513, 576, 1024),
]
PATTERNS = {"MAX_GMEM": None, "RAW_1B": 1, "RAW_32B": 32, "WARP_UNIFORM_16B": -16}

OPS: list[np.ufunc] = [np.add, np.fmax, np.fmin]

EXPORTS = [
    *((f"reduce_{name}", f"reduce<{name}>") for name in TYPES),
    *((f"scan_{name}", f"scan<{name}>") for name in SCANNED),
    *((f"broadcast_{name}", f"broadcast<{name}>") for name in SENT),
    *((f"masked_{name}", f"masked<{name}>") for name in MASKED),
    *((f"copy_{name}", f"copy<LoadStorePattern::{name}>") for name in PATTERNS),
]


@pytest.fixture(scope="module")
def module(load_cuda: Callable[..., Any]) -> Any:
    return InParts(partial(load_cuda, "warp_cases"), EXPORTS, [f"reduce_{name}" for name in EVERY_NIGHT])


def narrowed(x: Array, name: str) -> Array:
    """The values as the elements that C++ has: bfloat16 is the upper half of a float."""
    if not name.startswith("bf16"):
        return x
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)


def widened(x: Array, name: str) -> Array:
    if not name.startswith("bf16"):
        return x
    return (x.astype(np.uint32) << 16).view(np.float32)


def run(export: Callable[..., Any], name: str, x: Array, times: int, *args: int) -> Array:
    """The result of `export` for `x`: `times` arrays of its shape, passed as bytes to support every type of C++."""
    elements = narrowed(x, name)
    source = torch.from_numpy(elements.reshape(-1).view(np.uint8).copy()).to(DEVICE)
    out = torch.zeros(times * source.numel(), dtype=torch.uint8, device=DEVICE)
    export(out, source, *args)
    return widened(out.cpu().numpy().view(elements.dtype).reshape(times, *x.shape), name)


def warps_of(name: str) -> Array:
    """[warps, 32, elements]: numbers of both signs, all negative ones, NaN among numbers and alone, infinities."""
    dtype, elements = TYPES[name]
    rng = np.random.default_rng(0)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, size=(5, 32, elements), dtype=dtype, endpoint=True)
        x[1] = rng.integers(max(-7, info.min), 7, size=(32, elements)).astype(dtype)
        if info.min < 0:
            x[2] = rng.integers(info.min, -1, size=(32, elements), dtype=dtype, endpoint=True)
        x[3], x[4, 7] = info.max, info.min
        return x
    x = rng.integers(-4, 5, size=(6, 32, elements)).astype(dtype)
    x[1] = rng.integers(-4, 0, size=(32, elements))
    x[2, rng.random((32, elements)) < 0.4] = np.nan
    x[3] = np.nan
    x[4] = -np.inf
    x[5, 3], x[5, 20] = np.inf, -np.inf
    return x


def combined(op: np.ufunc, x: Array, members: list[list[int]]) -> Array:
    """[warps, 32, elements]: for each lane, `op` over the lanes that `members` has for it."""
    with np.errstate(invalid="ignore"):
        return np.stack([op.reduce(x[:, lanes], axis=1, dtype=x.dtype) for lanes in members], axis=1)


def is_tested(name: str, start: int, finish: int) -> bool:
    return name in ("int32_t", "fp32_t") or finish == 1 or (start, finish) in [(32, 4), (1, 32), (4, 16)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in EVERY_NIGHT else ()) for name in TYPES]
)
def test_every_group_of_lanes_is_reduced_in_both_directions(module: Any, name: str) -> None:
    x = warps_of(name)
    found = run(module[f"reduce_{name}"], name, x, 3 * 36, len(x)).reshape(3, 6, 6, *x.shape)
    for op, results in zip(OPS, found, strict=True):
        for start, finish in itertools.product(range(6), repeat=2):
            if is_tested(name, 1 << start, 1 << finish):
                low, high = sorted((1 << start, 1 << finish))
                free = high - low  # the bits in which the lanes of a group differ
                members = [[other for other in range(32) if (lane ^ other) & ~free == 0] for lane in range(32)]
                expected = combined(op, x, members)
                what = f"{op.__name__} <{1 << start}, {1 << finish}>"
                np.testing.assert_array_equal(results[start, finish], expected, err_msg=what)


def test_without_template_arguments_it_is_the_whole_warp(module: Any) -> None:
    x = warps_of("fp32_t")[:2]
    found = run(module.named, "fp32_t", x, 7, len(x))
    for op, reduced, scanned in zip(OPS, found[:3], found[3:6], strict=True):
        np.testing.assert_array_equal(reduced, combined(op, x, [list(range(32))] * 32))
        np.testing.assert_array_equal(scanned, combined(op, x, [list(range(lane + 1)) for lane in range(32)]))
    np.testing.assert_array_equal(found[6], np.broadcast_to(x[:, 5:6], x.shape))


@pytest.mark.parametrize("name", MASKED)
def test_lanes_outside_the_mask_are_not_needed(module: Any, name: str) -> None:
    x: Array = np.arange(48, dtype=TYPES[name][0]) ** 2 % 97 - 40
    found = run(module[f"masked_{name}"], name, x, 4)
    groups = x.reshape(6, 8)
    np.testing.assert_array_equal(found[0], groups.sum(axis=1).repeat(8))
    np.testing.assert_array_equal(found[1], groups.cumsum(axis=1).reshape(-1))
    np.testing.assert_array_equal(found[2], groups[:, 3].repeat(8))
    np.testing.assert_array_equal(found[3], np.concatenate([x[:16], x[16:32].max().repeat(16), x[32:]]))


def scanned_lanes(lane: int, width: int, start: int, finish: int) -> Iterator[int]:
    """The lanes whose values a scan has combined in lane `lane`, as the header describes it."""
    segment, place = lane - lane % width, lane % width
    if start < finish:
        for i in range(finish // start):
            if place - i * start >= 0:
                yield segment + place - i * start
    elif place >= start or start == finish:
        yield lane
    else:
        yield from range(lane, segment + start, finish)


@pytest.mark.parametrize("name", SCANNED)
def test_scans_cover_the_lanes_that_they_promise(module: Any, name: str) -> None:
    x = warps_of(name)
    found = run(module[f"scan_{name}"], name, x, 3 * len(SCANS), len(x)).reshape(3, len(SCANS), *x.shape)
    for op, results in zip(OPS, found, strict=True):
        for scan, result in zip(SCANS, results, strict=True):
            expected = combined(op, x, [list(scanned_lanes(lane, *scan)) for lane in range(32)])
            np.testing.assert_array_equal(result, expected, err_msg=f"{op.__name__} {scan}")


@pytest.mark.parametrize("name", SENT)
def test_each_segment_gets_the_value_of_its_own_lane(module: Any, name: str) -> None:
    x = warps_of(name)
    found = run(module[f"broadcast_{name}"], name, x, 63, len(x))
    lanes = np.arange(32)
    for width in (1, 2, 4, 8, 16, 32):
        for source in range(width):
            expected = x[:, lanes - lanes % width + source]
            np.testing.assert_array_equal(found[width - 1 + source], expected, err_msg=f"<{width}>({source})")


def test_one_lane_is_elected(module: Any) -> None:
    out = torch.zeros(3, 2, 2, 16, dtype=torch.int32, device=DEVICE)
    module.elect(out)
    whole, upper, halves = out.cpu()
    assert whole.sum(dim=(1, 2)).tolist() == [1, 1]
    assert upper.sum(dim=2).tolist() == [[0, 1], [0, 1]]
    assert halves.sum(dim=2).tolist() == [[1, 1], [1, 1]]
    assert torch.equal(upper[:, 1], halves[:, 1])


def vector_bytes(size: int, most: int | None) -> int:
    """As the header defines it: positive numbers cap, negative ones also leave no lane without work where they can."""
    if most is None:
        return math.gcd(size, 32 if CAPABILITY >= (10, 0) else 16)
    if most > 0:
        return math.gcd(size, most)
    return math.gcd(size // 32, -most) if size % 128 == 0 else math.gcd(size, 4)


@pytest.mark.parametrize("hint", [0, 1, 2], ids=["plain", "streaming_load", "streaming_store"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_byte_is_copied_and_none_beside_it(module: Any, pattern: str, hint: int) -> None:
    export = module[f"copy_{pattern}"]
    rows, guard = 6, 0xA5
    generator = torch.Generator().manual_seed(0)
    for size in SIZES:
        vec = vector_bytes(size, PATTERNS[pattern])
        nothing = torch.zeros(0, dtype=torch.uint8, device=DEVICE)
        assert export(size, nothing, nothing, 0, 0, 0) == vec, size
        # The first row begins at the worst alignment that is allowed, and the same is between the rows.
        stride = size + vec
        source = torch.randint(0, 256, (vec + rows * stride,), generator=generator, dtype=torch.uint8).to(DEVICE)
        out = torch.full_like(source, guard)
        export(size, out[vec:], source[vec:], rows, stride, hint)
        expected = torch.full_like(source, guard)
        expected[vec:].view(rows, stride)[:, :size] = source[vec:].view(rows, stride)[:, :size]
        assert torch.equal(out, expected), size


def test_the_default_vectors_are_the_widest(module: Any) -> None:
    source = torch.arange(576, device=DEVICE).to(torch.uint8)
    out = torch.zeros_like(source)
    module.copy_576(out, source)
    assert torch.equal(out, source)


@pytest.mark.parametrize("current", [0, 1, 3, 2**30 + 5, -2])
def test_indices_are_counted_in_64_bits(module: Any, current: int) -> None:
    x, y = 48, 2
    out = torch.zeros(6, y, x, dtype=torch.int64, device=DEVICE)
    module.tile_indices(out, current, x, y)
    threads = torch.arange(x * y).view(y, x)
    column = torch.arange(x).expand(y, x)
    expected = [
        torch.full((y, x), current),
        threads % 32 + 32 * current,
        column % 8 + 8 * current,
        column + x * current,
        column + 40 * current,
        torch.full((y, x), 7 + (2**32 - 1) * current),
    ]
    for found, right in zip(out.cpu(), expected, strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 777])
def test_a_block_walks_through_an_array_to_its_end(module: Any, count: int) -> None:
    source = torch.randn(count * 4, device=DEVICE)
    out = torch.full((count * 4 + 4,), -5.0, device=DEVICE)
    rounds = torch.zeros(100, dtype=torch.int32, device=DEVICE)
    module.tile_copy(out, source, rounds, count)
    assert torch.equal(out[:-4], source)
    assert out[-4:].tolist() == [-5.0] * 4
    assert rounds.tolist() == [len(range(thread, count, 100)) for thread in range(100)]
