"""Clusters of blocks on a GPU, or in the simulator: kjit/cluster.cuh, and cooperative groups beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from machine import CAPABILITY, DEVICE, many

THREADS = 64


@pytest.fixture(scope="module")
def module(load_cuda: Callable[..., Any]) -> Any:
    if CAPABILITY < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    return load_cuda("cluster_cases")


@pytest.fixture(params=["0", "1"], ids=["in-order", "seed-1"])
def _order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which the simulator runs threads."""
    monkeypatch.setenv("KJIT_SIM_SEED", request.param)


def expected_places(x: int, y: int, z: int) -> list[list[int]]:
    return [
        [rank, i % x, j % y, k % z, x * y * z, x * y * z * THREADS, rank * THREADS]
        for k in range(2)
        for j in range(2)
        for i in range(4)
        for rank in [i % x + x * (j % y) + x * y * (k % z)]
    ]


@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2), (4, 2, 1), (4, 1, 2), (1, 1, 1)])
def test_blocks_know_their_place_in_the_cluster(module: Any, cluster: tuple[int, int, int]) -> None:
    out = torch.full((16, 7), -1, dtype=torch.int32, device=DEVICE)
    module.places(out, *cluster)
    assert out.tolist() == expected_places(*cluster)


def test_a_block_that_is_launched_without_a_cluster_is_one_alone(module: Any) -> None:
    out = torch.full((16, 7), -1, dtype=torch.int32, device=DEVICE)
    module.places_alone(out)
    assert out.tolist() == expected_places(1, 1, 1)


@pytest.mark.usefixtures("_order")
@pytest.mark.parametrize("blocks", [1, 2, 3, 8])
def test_blocks_read_the_shared_memory_of_others(module: Any, blocks: int) -> None:
    clusters = many(100)
    x = torch.arange(clusters * blocks * THREADS, dtype=torch.int32, device=DEVICE)
    expected = x.view(clusters, blocks, THREADS).roll(-4, 1)
    module.rotate(x, blocks)
    assert torch.equal(x.view_as(expected), expected)


@pytest.mark.usefixtures("_order")
@pytest.mark.parametrize("blocks", [1, 2, 5, 8])
def test_the_barrier_is_passed_when_all_threads_have_arrived_or_ended(module: Any, blocks: int) -> None:
    clusters, rounds = 3, 4
    counts = torch.zeros(clusters, dtype=torch.int32, device=DEVICE)
    module.arrivals(counts, blocks, rounds)
    threads = (blocks + 1) // 2 * THREADS + blocks // 2 * 32
    assert counts.tolist() == [rounds * threads] * clusters


@pytest.mark.parametrize("blocks", [1, 4, 8])
def test_blocks_update_the_shared_memory_of_others(module: Any, blocks: int) -> None:
    values = torch.randint(0, blocks * THREADS, (many(100_000),), dtype=torch.int32, device=DEVICE)
    out = torch.zeros(blocks * THREADS, dtype=torch.int32, device=DEVICE)
    module.histogram(out, values)
    assert torch.equal(out.long(), torch.bincount(values, minlength=blocks * THREADS))


@pytest.mark.usefixtures("_order")
@pytest.mark.parametrize("blocks", [2, 8])
@pytest.mark.parametrize("turns", [1, 2, 7])
def test_blocks_tell_each_other_values(module: Any, blocks: int, turns: int) -> None:
    out = torch.zeros(blocks * THREADS, dtype=torch.int32, device=DEVICE)
    module.tell(out, turns)
    ranks = sum(range(blocks))
    assert out.tolist() == [sum(101 * ranks + blocks * turn for turn in range(turns))] * len(out)
