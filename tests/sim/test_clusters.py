"""Clusters in the simulator: each planted mistake is reported, with the checks or without, and sizes are as on an H200.

What works is in tests/gpu/test_cluster.py, for GPUs too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi
from exported import place_of

SOURCE = Path(__file__).parent / "clusters_cases.cuh"

# The name of a case and what its report says, besides the place of the mistake where the case has one.
MISTAKES = {
    "in_vain": [
        "no thread of block (6, 0, 0) can go on:",
        "threads 0 to 39 wait for the cluster",
        "thread 40 waits at __syncthreads",
    ],
    "in_vain_alone": ["threads 4 to 63 wait for the cluster", "thread 3 waits at __syncthreads"],
    "arrives_twice": ["a thread arrives twice at the cluster's barrier, and has not waited in between"],
    "waits_without_arrival": ["a thread waits for its cluster, and has not arrived at the barrier"],
    "not_shared": ["which is mapped to another block, is not in shared memory"],
    "no_such_rank": ["block 4 of a cluster of 4 is requested"],
}
FOUND_BY_CHECKS = {
    "not_begun": ["reads 4 bytes of the shared memory of block 1 of its cluster, which may not have started"],
    "has_ended": ["reads 4 bytes of the shared memory of block 1 of its cluster, which has ended"],
    "past_static": ["writes 4 bytes, just past the end of __shared__ ", "(260 bytes)", "thread (63, 0, 0)"],
    "past_dynamic": [
        "just past the end of the 256 bytes of dynamic shared memory of block 2 of its cluster",
        "thread (63, 0, 0)",
    ],
    "unwritten": ["reads 4 bytes of uninitialised shared memory: byte 28", "thread (7, 0, 0)"],
    "race": ["has a race", "of __shared__ tile (256 bytes)"],
}
EXPORTS = [
    (f"{name}{suffix}", f"{name}<{is_right}>")
    for name in (*MISTAKES, *FOUND_BY_CHECKS)
    for suffix, is_right in (("", "false"), ("_right", "true"))
]


@pytest.fixture(scope="module", params=[False, True], ids=["sim", "sim-check"])
def module(load_simulated: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    return load_simulated("clusters_cases", EXPORTS, check=request.param)


@pytest.fixture
def checks(request: pytest.FixtureRequest) -> bool:
    return "sim-check" in request.node.name


def gpu() -> tvm_ffi.Device:
    return tvm_ffi.device("cuda:0")


def report_of(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(RuntimeError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_reported(module: Any, checks: bool, case: str) -> None:
    for _ in range(2):  # nothing is left of a launch that has failed
        report = report_of(module[case], gpu())
        for words in MISTAKES[case]:
            assert words in report
        expected = place_of(SOURCE, f"MISTAKE: {case}")
        assert not checks or expected is None or expected in report
    module[f"{case}_right"](gpu())


@pytest.mark.parametrize("case", FOUND_BY_CHECKS)
@pytest.mark.parametrize("seed", ["0", "1"])
def test_what_a_block_does_to_another_is_checked(
    module: Any, checks: bool, case: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_SIM_SEED", seed)
    module[f"{case}_right"](gpu())
    if not checks:
        return
    report = report_of(module[case], gpu())
    for words in FOUND_BY_CHECKS[case]:
        assert words in report
    expected, earlier = place_of(SOURCE, f"MISTAKE: {case}"), place_of(SOURCE, f"EARLIER: {case}")
    assert expected is not None
    assert expected in report
    assert earlier is None or earlier in report


@pytest.mark.parametrize(("grid", "cluster", "large"), [(16, 8, False), (32, 16, True), (9, 9, True), (3, 1, False)])
def test_a_cluster_may_be_so_large(module: Any, grid: int, cluster: int, large: bool) -> None:
    module.sizes(gpu(), grid, cluster, large)


@pytest.mark.parametrize(
    ("grid", "cluster", "large", "error"),
    [
        (16, 16, False, "cluster misconfiguration"),
        (17, 17, True, "cluster misconfiguration"),
        (9, 2, False, "invalid configuration argument"),
    ],
)
def test_other_clusters_are_an_error_of_the_launch(
    module: Any, grid: int, cluster: int, large: bool, error: str
) -> None:
    assert error in report_of(module.sizes, gpu(), grid, cluster, large)


def test_the_runtime_knows_how_many_clusters_there_are(module: Any) -> None:
    assert [module.largest_cluster(large) for large in (False, True)] == [8, 16]
    assert module.clusters_at_a_time(4, 1024) == 132 * 2 // 4


def test_a_grid_of_clusters_synchronises(module: Any) -> None:
    counts = torch.zeros(2, dtype=torch.int32)
    module.grid_of_clusters(counts)
    assert counts.tolist() == [3 * 12, 0]


@pytest.mark.parametrize("threads", ["4", "64"])
def test_a_cluster_that_fails_ends_the_launch(module: Any, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM_THREADS", threads)
    for _ in range(10):
        assert "kernel fail_in_one calls __trap(), at " in report_of(module.one_of_many, gpu())
