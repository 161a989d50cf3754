"""The simulator's core: the model of threads, CUDA's features beside kjit's headers, reports of mistakes."""

from __future__ import annotations

import math
import operator
import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi

from kjit.engine.toolchain.compilers import find_cxx
from kjit.testing import simulated

HERE = Path(__file__).parent

FUSED = {"fp16_t": torch.float16, "bf16_t": torch.bfloat16}
EXPORTS = [
    *((f"reverse_{threads}", f"reverse<{threads}>") for threads in (1, 33, 256, 1024)),
    *((f"fused_{name}", f"fused<{name}>") for name in FUSED),
]


@pytest.fixture(scope="module")
def module(load_simulated: Callable[..., Any]) -> Iterator[Any]:
    with simulated():
        yield load_simulated("core_cases", EXPORTS)


def gpu() -> tvm_ffi.Device:
    return tvm_ffi.device("cuda:0")


@pytest.fixture(params=[0, 1, 2], ids=["in-order", "seed-1", "seed-2"])
def _order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which threads run."""
    monkeypatch.setenv("KJIT_SIM_SEED", str(request.param))


in_any_order = pytest.mark.usefixtures("_order")


def test_functions_of_the_device_alone_see_an_architecture(module: Any) -> None:
    out = torch.zeros(9, dtype=torch.int32)
    module.sides(out)
    lines = (HERE / "core_cases.cuh").read_text().splitlines()
    numbers = [number for number, line in enumerate(lines, 1) if "__LINE__" in line]
    assert out.tolist() == [1, 1, 80, 900, 1, numbers[0], 2, 2, numbers[1]]


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1, 1), (5, 1, 1, 1024, 1, 1), (3, 4, 2, 8, 4, 2), (70000, 1, 1, 3, 1, 1)]
)
@in_any_order
def test_every_thread_of_the_grid_runs_once_with_its_indices(module: Any, sizes: tuple[int, ...]) -> None:
    blocks, threads = math.prod(sizes[:3]), math.prod(sizes[3:])
    out = torch.zeros(blocks, threads, dtype=torch.int32)
    module.indices(out, *sizes)
    assert torch.equal(out, 1000 * torch.arange(blocks)[:, None].int() + torch.arange(threads).int())


@in_any_order
@pytest.mark.parametrize("threads", [1, 33, 256, 1024])
@pytest.mark.parametrize("rounds", [1, 11])
def test_barriers_order_shared_memory(module: Any, threads: int, rounds: int) -> None:
    values = torch.arange(20 * threads, dtype=torch.int32)
    expected = values.view(20, threads).flip(1).flatten() if rounds % 2 else values.clone()
    module[f"reverse_{threads}"](values, rounds)
    assert torch.equal(values, expected)


@in_any_order
@pytest.mark.parametrize("active", [1, 40, 64])
def test_barriers_count_the_threads_that_have_not_ended(module: Any, active: int) -> None:
    predicates = (torch.arange(64) % 3 == 0).int()
    out = torch.full((3, 64), -1, dtype=torch.int32)
    module.votes(out, predicates, active)
    there = predicates[:active]
    expected = torch.tensor([there.sum(), there.all(), there.any()], dtype=torch.int32)
    assert torch.equal(out[:, :active], expected[:, None].expand(3, active))
    assert bool((out[:, active:] == -1).all())


def mask_of(chosen: torch.Tensor) -> int:
    """The lanes as a mask, in a signed integer."""
    bits = sum(1 << lane for lane, here in enumerate(chosen.tolist()) if here)
    return bits - (1 << 32) if bits >= 1 << 31 else bits


@in_any_order
def test_lanes_of_a_warp_exchange_values(module: Any) -> None:
    x = (torch.arange(32) * 7 % 31).int()
    out = torch.zeros(14, 32, dtype=torch.int32)
    module.warp(out, x)
    lane = torch.arange(32)
    inside = lane % 16
    other = lane ^ 12
    expected = [
        x[5].expand(32),
        x[lane // 8 * 8 + (lane + 1) % 8],
        x[torch.where(inside >= 3, lane - 3, lane)],
        x[torch.where(inside + 3 < 16, lane + 3, lane)],
        x[torch.where(other <= lane // 8 * 8 + 7, other, lane)],
        torch.full((32,), mask_of(x % 2 == 1)),
        torch.full((32,), int((x == 7).any())),
        torch.ones(32),
        torch.tensor([mask_of(x % 3 == v % 3) for v in x.tolist()]),
        torch.zeros(32),
        x.sum().expand(32),
        (-x).min().expand(32),
        torch.full((32,), reduce(operator.xor, x.tolist())),
        torch.full((32,), -1),
    ]
    for row, (got, want) in enumerate(zip(out, expected, strict=True)):
        assert got.tolist() == [int(v) for v in want], f"row {row}"


@in_any_order
def test_the_active_mask_is_of_the_lanes_at_the_same_place(module: Any) -> None:
    out = torch.zeros(32, dtype=torch.int32)
    module.active(out.view(torch.uint32))
    assert out.tolist() == [0x55555555, 7] * 16


@in_any_order
def test_tiles_reduce(module: Any) -> None:
    out = torch.zeros(72, dtype=torch.int32)
    module.tiles(out)
    ranks = torch.arange(72).view(-1, 8)
    assert torch.equal(out.view(-1, 8), (1000 * ranks.sum(1) + ranks.amax(1)).int()[:, None].expand(-1, 8))


def test_groups_are_partitioned(module: Any) -> None:
    out = torch.zeros(32, 6, dtype=torch.int32)
    module.partitions(out)
    for lane, got in enumerate(out.tolist()):
        labeled = range(lane % 3, 32, 3)
        first = lane // 5 * 5
        assert got == [
            *(len(labeled), lane // 3, sum(range(lane % 3, lane + 1, 3)), sum(range(lane % 2, lane, 2))),
            *(min(5, 32 - first), -first),
        ]


@in_any_order
def test_a_grid_synchronises(module: Any) -> None:
    blocks, rounds = 12, 5
    out, parts = torch.zeros(blocks * 64, dtype=torch.int32), torch.zeros(blocks, dtype=torch.int32)
    module.grid(out, parts, rounds)
    assert set(out.tolist()) == {rounds * blocks * (blocks - 1) // 2 + blocks * rounds * (rounds - 1) // 2}


@in_any_order
def test_atomic_operations_lose_nothing(module: Any) -> None:
    n = 20_000
    counts, total = torch.zeros(10, dtype=torch.int32), torch.zeros(1)
    guarded = torch.zeros(1, dtype=torch.int64)
    module.histogram(counts, total, guarded, n)
    i = torch.arange(n)
    assert torch.equal(counts, torch.zeros(10).scatter_add(0, i % 10, (i % 4 + 1).float()).int())
    assert total.item() == n / 2
    assert guarded.item() == n * (n - 1) // 2


@in_any_order
@pytest.mark.parametrize("how", range(3))
def test_a_thread_that_waits_for_a_later_one_lets_it_run(module: Any, how: int) -> None:
    flags = torch.zeros(201, dtype=torch.int32)
    module.flags(flags, how)
    assert flags.tolist() == [1] * 200 + [0]


def test_integer_intrinsics(module: Any) -> None:
    out = torch.zeros(12, dtype=torch.int64)
    a, b = 0x00F0_0000, -5
    module.integers(out, a, b)
    dot = 1 * -1 + 2 * 2 + 3 * 3 + 4 * 4 + 10
    assert out.tolist() == [
        *(8, 21, 4, 1 << 31, 0x88663311, 0xFFFFFFFD, a * b >> 32),
        *(0x28, dot, 2 + 10 * 3 - 100 * 7, 2**31 - 1, a * 1000 + b),
    ]


def test_inline_ptx_names_operands_and_asks_which_lane_it_is_in(module: Any) -> None:
    out = torch.zeros(32, 3, dtype=torch.int32)
    module.ptx(out.view(torch.uint32))
    assert (out.long() & 0xFFFFFFFF).tolist() == [[(1 << lane) - 1, 0xF0AA + lane, 7] for lane in range(32)]


def test_mathematical_functions(module: Any) -> None:
    out = torch.zeros(8, dtype=torch.float64)
    x = 0.75
    module.reals(out, x)
    up, near, third, root, cdf, inverse, sine, clamped = out.tolist()
    assert (up, near) == (1 + 2.0**-23, 1.0)
    assert third == math.floor(2**25 / 3) / 2**25
    assert root == pytest.approx(x**-0.5, rel=2.0**-23)
    assert cdf == pytest.approx(0.5 * math.erfc(-x / math.sqrt(2)), rel=1e-15)
    assert inverse == pytest.approx(x, rel=1e-14)
    assert sine == pytest.approx(math.sin(math.pi * x), rel=1e-15)
    assert clamped == 1.0


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_product_and_sum_is_rounded_once(module: Any, name: str) -> None:
    dtype = FUSED[name]
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.randn(1024, generator=generator).to(dtype) for _ in range(3))
    # Just past the middle of two neighbours: rounding twice would go down.
    digits = 10 if name == "fp16_t" else 7
    a[0], b[0], c[0] = 1.0, 2.0 ** -(digits + 1), 1.0
    a[1], b[1], c[1] = 2.0**-10, 2.0**-10, 1.0 + 2.0**-digits
    out = torch.zeros_like(a)
    module[f"fused_{name}"](out, a, b, c)
    exact = a.double() * b.double() + c.double()  # 53 bits hold products and sums of such numbers exactly
    assert torch.equal(out, exact.to(dtype))


def test_threads_that_wait_for_different_things_are_listed_apart(module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"no thread of block \(\d, 0, 0\) can go on:") as caught:
        module.barrier_for_some(gpu(), 40)
    assert "threads 0 to 39 wait at __syncthreads" in str(caught.value)
    assert "threads 40 to 63 wait in __syncwarp(0xffffffff)" in str(caught.value)
    assert "lane 0 of the mask never arrives" in str(caught.value)
    module.barrier_for_some(gpu(), 64)


def test_a_lane_outside_its_own_mask_is_an_error(module: Any) -> None:
    message = r"__shfl_sync with the mask 0x000000ff is called by lane 9, which is not in it .*thread \(9, 0, 0\)"
    with pytest.raises(RuntimeError, match=message):
        module.foreign_mask(gpu())


def test_lanes_that_meet_in_different_operations_are_an_error(module: Any) -> None:
    with pytest.raises(
        RuntimeError, match=r"calls __ballot_sync\(0xffffffff\) while lane 0 of its warp waits in __shfl"
    ):
        module.different(gpu())


@pytest.mark.parametrize("how", ["trap", "trap_with_brackets"])
def test_a_trap_ends_the_launch_and_names_its_thread(module: Any, how: str) -> None:
    arguments = [gpu()] if how == "trap" else []
    place = r"at \S+core_cases\.cuh:\d+ \(block \(2, 0, 0\), thread \(5, 0, 0\)\)"
    with pytest.raises(RuntimeError, match=rf"kernel trap_kernel calls __trap\(\), {place}"):
        module[how](*arguments)


def test_an_assertion_that_fails_is_an_exception(module: Any) -> None:
    module.check(gpu(), 32)
    with pytest.raises(
        RuntimeError, match=r"core_cases\.cuh:\d+: .*assertion .*too many threads.* failed .*thread \(20"
    ):
        module.check(gpu(), 20)


@pytest.mark.parametrize("export", ["move_four", "move_vector"])
@pytest.mark.parametrize(("to", "since"), [(0, 1), (0, 2), (1, 0), (2, 2)])
def test_a_vector_at_an_address_that_is_none_of_its_own_is_an_error(
    module: Any, export: str, to: int, since: int
) -> None:
    room = torch.arange(36.0)
    out = torch.zeros(36)
    module[export](out[:32], room[:32])
    assert torch.equal(out[:16], room[:16])
    if find_cxx().family == "clang":  # which does not check copies of a whole class
        message = rf"kernel {export}_kernel uses a vector at a misaligned address, or .* \(block"
    else:
        message = r"\w+\.cuh:\d+: a thread \w+ '.*' at the misaligned address 0x.*not a multiple of 16 \(block"
    with pytest.raises(RuntimeError, match=message):
        module[export](out[to : to + 32], room[since : since + 32])


def test_a_grid_of_which_a_block_ends_without_synchronising_is_an_error(module: Any) -> None:
    with pytest.raises(RuntimeError, match="another block has ended without doing so"):
        module.half_a_grid(gpu())


def test_after_a_failed_launch_the_next_one_works(module: Any) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError):
            module.trap(gpu())
        test_barriers_order_shared_memory(module, 256, 11)


def test_a_child_process_launches_too(module: Any) -> None:
    values = torch.arange(256 * 200, dtype=torch.int32)
    module.reverse_256(values, 2)  # more than one OS thread is at work by now
    child = os.fork()
    if child == 0:
        module.reverse_256(values, 1)
        os._exit(0 if values[0].item() == 255 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_launch_without_memory_for_stacks_is_an_error(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM_THREADS", "1")
    values = torch.arange(1024, dtype=torch.int32)
    child = os.fork()
    if child == 0:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), -1))
        try:
            module.reverse_1024(values, 1)
        except RuntimeError as error:
            os._exit(0 if "no memory for the stack of another thread" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_launch_leaves_few_mappings_of_memory(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have some 65,000, and a test suite loads many modules."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    monkeypatch.setenv("KJIT_SIM_THREADS", "16")
    before = mappings()
    values = torch.arange(64 * 1024, dtype=torch.int32)
    module.reverse_1024(values, 11)  # every thread waits on a stack of its own
    assert torch.equal(values, torch.arange(64 * 1024, dtype=torch.int32).view(64, 1024).flip(1).flatten())
    assert mappings() - before < 16 * 16


def test_os_threads_end_when_there_is_nothing_to_do(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module has some, and a process may have no more than a few thousand."""

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    monkeypatch.setenv("KJIT_SIM_THREADS", "8")
    values = torch.arange(256 * 200, dtype=torch.int32)
    for _ in range(2):  # and others start when there is something again
        module.reverse_256(values, 2)
        began, busy = time.monotonic(), threads()
        assert busy >= 8
        while threads() > busy - 7 and time.monotonic() - began < 60:
            time.sleep(0.1)
        assert threads() <= busy - 7
    assert torch.equal(values, torch.arange(256 * 200, dtype=torch.int32))
