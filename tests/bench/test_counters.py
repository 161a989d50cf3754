"""kjit.bench.counters: the limit of a kernel, from its counters."""

from __future__ import annotations

import pytest

from kjit.bench.counters import Launch, describe_launch, verdict

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"


def launch(**metrics: float) -> Launch:
    named = {"dram": DRAM, "memory": MEMORY, "compute": COMPUTE}
    return Launch("k", "(1, 1, 1)", "(32, 1, 1)", {named.get(name, name): value for name, value in metrics.items()})


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"dram": 93.0, "compute": 20.0}, "memory-bound: 93% of DRAM peak"),
        (
            {"dram": 5.0, "memory": 90.0, "compute": 50.0},
            "bound by the caches: 90% of what L1, L2 or shared memory can do, 5% of DRAM peak",
        ),
        ({"dram": 30.0, "memory": 40.0, "compute": 80.0}, "compute-bound: 80% of what the SMs can issue"),
        (
            {"dram": 5.0, "memory": 6.0, "compute": 7.0, LONG: 9.0, WAIT: 1.0},
            "latency-bound: 6% of memory's peak, 7% of compute, warps wait most for global memory (long scoreboard)",
        ),
        (
            {
                "dram": 90.0,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3200.0,
                "smsp__sass_data_bytes_mem_global_op_ld.sum": 12800.0,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 400.0,
                "smsp__sass_data_bytes_mem_global_op_st.sum": 12800.0,
            },
            "memory-bound: 90% of DRAM peak; uncoalesced loads: 12% of the bytes that are moved are used",
        ),
        (
            {
                "compute": 70.0,
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 31.0,
                "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 32.0,
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1.0,
                "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 32.0,
                "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum": 2000.0,
            },
            (
                "compute-bound: 70% of what the SMs can issue; bank conflicts: 97% of what shared stores take is"
                " conflicts; spills or arrays in local memory: 2,000 accesses of warps"
            ),
        ),
    ],
)
def test_the_verdict_names_what_limits_and_the_mistakes(metrics: dict[str, float], expected: str) -> None:
    assert verdict(launch(**metrics)) == expected


def test_occupancy_is_reported_with_what_limits_it() -> None:
    lines = describe_launch(
        launch(
            **{
                "sm__warps_active.avg.pct_of_peak_sustained_active": 44.0,
                "sm__maximum_warps_per_active_cycle_pct": 50.0,
                "launch__occupancy_limit_registers": 4.0,
                "launch__occupancy_limit_shared_mem": 8.0,
                "launch__registers_per_thread": 64.0,
            }
        )
    )
    assert "  occupancy: 44% of 50%, limited by registers (64 a thread)" in lines


def test_where_nothing_limits_occupancy_nothing_is_named() -> None:
    metrics = {"sm__maximum_warps_per_active_cycle_pct": 100.0, "launch__occupancy_limit_warps": 16.0}
    assert "  occupancy: ? of 100%" in describe_launch(launch(**metrics))
