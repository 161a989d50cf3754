"""What is made of the counters of Nsight Compute, and of a trace of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kjit.bench.sweep import Sweep, plain
from kjit.benchmark import called_only, run_benchmark
from kjit.errors import KjitError, UsageError
from kjit.profiling import (
    Launch,
    choose_point,
    describe_launch,
    draw_roofline,
    find_point,
    parse_raw,
    profile,
    read_trace,
    roofline,
    verdict,
)
from kjit.project import read_project

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"

# The form of `ncu --page raw --csv --print-units base`: names, units, a line for each launch.
RAW = f"""==PROF== Connected to process 42
"ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","{DRAM}","{COMPUTE}","{LONG}"
"","","","","","ns","%","%","inst"
"0","42","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","12,345","92.5","20.1","31.0"
"1","42","fill(float *)","(32, 1, 1)","(1, 1, 1)","1,000","n/a","1.5","2.5"
"""  # noqa: E501


def launch(**metrics: float) -> Launch:
    named = {"dram": DRAM, "memory": MEMORY, "compute": COMPUTE}
    return Launch("k", "(1, 1, 1)", "(32, 1, 1)", {named.get(name, name): value for name, value in metrics.items()})


def test_a_report_has_the_launches_with_their_counters() -> None:
    first, second = parse_raw(RAW)
    assert (first.kernel, first.grid, first.block) == ("copy_kernel<float>", "(4096, 1, 1)", "(256, 1, 1)")
    assert (first.get("gpu__time_duration.sum"), first.get(DRAM)) == (12345.0, 92.5)
    assert (second.kernel, second.get(DRAM)) == ("fill", None)
    assert describe_launch(first)[:2] == [
        "copy_kernel<float>: 12.3 us, grid (4096, 1, 1), blocks of (256, 1, 1)",
        "  memory-bound: 92% of DRAM peak",
    ]
    assert parse_raw("==ERROR== nothing was profiled") == []


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


def test_occupancy_is_told_with_what_limits_it() -> None:
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


FP32 = {
    "dram__bytes.sum.per_second": 2e12,
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__cycles_elapsed.avg.per_second": 3e9,
    "sm__cycles_elapsed.avg.per_second": 1.5e9,
    "smsp__cycles_elapsed.avg.per_second": 1.5e9,
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 20_000.0,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": 100.0,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": 100.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 400.0,
}


def test_the_roofline_counts_fp32_operations_and_bytes_of_dram(tmp_path: Path) -> None:
    found = roofline(launch(**FP32))
    assert found is not None
    assert (found.gbps, found.peak_gbps, found.peak_tflops) == (2000.0, 3000.0, 60.0)
    assert found.tflops == pytest.approx(1000 * 1.5e9 / 1e12)
    assert (found.intensity, found.roof) == (pytest.approx(0.75), pytest.approx(2.25))
    line = "  roofline: 0.75 fp32 operations a byte of DRAM, 1.5 TFLOP/s of 2.25 that memory and compute allow there"
    assert line in describe_launch(launch(**FP32))
    pytest.importorskip("matplotlib")
    picture = tmp_path / "k.png"
    assert draw_roofline("k", [launch(**FP32)], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_fp32_arithmetic_there_is_no_roofline(tmp_path: Path) -> None:
    none = launch(**{name: 0.0 if "_op_f" in name else value for name, value in FP32.items()})
    assert roofline(none) is None
    assert not any("roofline" in line for line in describe_launch(none))
    assert not draw_roofline("k", [none], tmp_path / "k.png")


def test_a_trace_is_told_by_kernels_and_without_a_gpu_by_operators() -> None:
    def event(category: str, name: str, microseconds: float, **args: object) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "dur": microseconds, "args": args}

    operators = [event("cpu_op", "aten::add", 5.0), event("cpu_op", "aten::add", 7.0)]
    name = "void (anonymous namespace)::copy<float>(float const*, float*)"
    kernels = [event("kernel", name, 3.0, grid=[2, 1, 1]), event("kernel", "fill(float*)", 9.0)]
    assert read_trace({"traceEvents": operators}) == [("aten::add", 6.0, 2, {})]
    found: list[tuple[str, float, int, Mapping[str, Any]]] = read_trace({"traceEvents": [*operators, *kernels]})
    assert found == [("fill", 9.0, 1, {}), ("copy<float>", 3.0, 1, {"grid": [2, 1, 1]})]


def sweep(dtype: str) -> Sweep:
    points = ((1,), (2,))
    return Sweep("bench_x.py", "x", lambda: None, ("size",), points, "provider", ("kjit",), ("kjit",), {"dtype": dtype})


def test_the_last_point_of_the_first_table_is_chosen_or_the_one_that_is_named() -> None:
    sweeps = [sweep("float32"), sweep("float16")]
    assert choose_point(sweeps).args == {"size": 2, "dtype": "float32"}
    assert choose_point(sweeps, "size=1, dtype=float16").args == {"size": 1, "dtype": "float16"}
    with pytest.raises(UsageError, match="no point with size=3"):
        choose_point(sweeps, "size=3")


def test_a_point_is_found_whatever_is_in_its_arguments() -> None:
    ops = ["norm, 1,024 columns", "softmax, 1,024 columns"]
    points = tuple((op, rows) for op in ops for rows in (16, 2048))
    sweeps = [
        Sweep(
            "bench_x.py",
            "ops",
            lambda: None,
            ("op", "rows"),
            points,
            "provider",
            ("kjit",),
            ("kjit",),
            {"device": "cpu"},
        )
    ]
    chosen = choose_point(sweeps, "op=norm, 1,024 columns, rows=16")
    assert (chosen.args["op"], chosen.args["rows"]) == (ops[0], 16)
    assert find_point(sweeps, "ops", plain(chosen.args)) == chosen


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: no rows' >&2; echo '==ERROR== it did'",
            "the benchmark failed under Nsight Compute: ValueError: no rows",
        ),
        ("echo '==ERROR== no GPU is left'; echo more", "Nsight Compute failed: no GPU is left"),
        ("true", "Nsight Compute failed: it printed nothing"),
    ],
)
def test_the_reason_why_nothing_was_profiled_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: str
) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\n{printed}\nexit 1\n")
    ncu.chmod(0o700)
    monkeypatch.setattr("kjit.profiling.find_tool", lambda _: ncu)
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(KjitError) as error:
        profile(
            read_project(tmp_path / "pyproject.toml"),
            tmp_path / "b.py",
            choose_point([sweep("float32")]),
            tmp_path / "report",
        )
    assert str(error.value) == expected


def test_for_a_profiler_a_benchmark_is_called_and_not_measured() -> None:
    calls: list[str] = []

    def record(name: str) -> torch.Tensor:
        calls.append(name)
        return torch.zeros(1)

    with called_only(2):
        time = run_benchmark([lambda: record("first"), lambda: record("last")], device="cpu")
    assert calls == ["first", "last", "first"]
    assert math.isnan(time.median)
