"""kjit.profiling: points of benchmarks, reports of Nsight Compute, traces of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kjit.bench.counters import describe_launch
from kjit.bench.sweep import Sweep, plain
from kjit.benchmark import called_only, run_benchmark
from kjit.errors import KjitError
from kjit.profiling import (
    choose_point,
    find_point,
    parse_raw,
    profile,
    read_trace,
)
from kjit.project import read_project

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"

# The form of `ncu --page raw --csv --print-units base`: names, units, a line for each launch.
RAW = f"""==PROF== Connected to process 42
"ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","{DRAM}","{COMPUTE}","{LONG}"
"","","","","","ns","%","%","inst"
"0","42","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","12,345","92.5","20.1","31.0"
"1","42","fill(float *)","(32, 1, 1)","(1, 1, 1)","1,000","n/a","1.5","2.5"
"""  # noqa: E501


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


def test_a_trace_is_summarised_by_kernels_and_without_a_gpu_by_operators() -> None:
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
