"""kjit.profiling: points of benchmarks, reports of Nsight Compute, traces of PyTorch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kjit.bench.sweep import Sweep
from kjit.benchmark import mode, run_benchmark
from kjit.errors import KjitError
from kjit.profiling import Launch, choose_point, profile, read_details, read_trace
from kjit.project import read_project

# The form of `ncu --page details --csv`, with fewer columns: a line for each metric, and for each rule.
DETAILS = """==PROF== Connected to process 42
"ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
"0","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","Duration","us","1,012.5","","",""
"0","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","Cache Configuration","","CacheNone","","",""
"0","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","","","","SOLBottleneck","INF","Memory is
busy."
"0","void <unnamed>::copy_kernel<float>(const T1 *, T1 *, long)","(256, 1, 1)","(4096, 1, 1)","","","","Cache","INF","All is well."
"1","fill(float *)","(32, 1, 1)","(1, 1, 1)","Duration","us","2","","",""
"1","fill(float *)","(32, 1, 1)","(1, 1, 1)","","","","Uncoalesced","OPT","Look at this."
"""  # noqa: E501


def test_a_report_has_the_launches_with_what_nsight_compute_says() -> None:
    assert read_details(DETAILS) == [
        Launch("copy_kernel<float>", "(4096, 1, 1)", "(256, 1, 1)", {"Duration (us)": 1012.5}, ["Memory is busy."]),
        Launch("fill", "(1, 1, 1)", "(32, 1, 1)", {"Duration (us)": 2.0}, ["Look at this."]),
    ]
    assert read_details("==ERROR== nothing was profiled") == []


def test_a_trace_is_summarised_by_kernels_and_without_a_gpu_by_operators() -> None:
    def event(category: str, name: str, microseconds: float, **args: object) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "dur": microseconds, "args": args}

    operators = [event("cpu_op", "aten::add", 5.0), event("cpu_op", "aten::add", 7.0)]
    name = "void (anonymous namespace)::copy<float>(float const*, float*)"
    kernels = [event("kernel", name, 3.0, grid=[2, 1, 1]), event("kernel", "fill(float*)", 9.0)]
    assert read_trace({"traceEvents": operators}) == [{"name": "aten::add", "us": 6.0, "calls": 2}]
    assert read_trace({"traceEvents": [*operators, *kernels]}) == [
        {"name": "fill", "us": 9.0, "calls": 1},
        {"name": "copy<float>", "us": 3.0, "calls": 1, "grid": [2, 1, 1]},
    ]


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


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: no rows' >&2; echo '==ERROR== it did'",
            "the benchmark failed under Nsight Compute: ValueError: no rows",
        ),
        ("echo '==ERROR== no GPU is left'; echo more", "Nsight Compute failed: no GPU is left"),
        ("true", "Nsight Compute failed: it printed nothing"),
        ("echo '==ERROR== ERR_NVGPUCTRPERM - no'", "this user may not read the GPU's counters (ERR_NVGPUCTRPERM)."),
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
        profile(read_project(tmp_path / "pyproject.toml"), tmp_path / "b.py", None, tmp_path / "report")
    assert error.value.message == expected


def test_for_a_profiler_a_benchmark_is_called_and_not_measured() -> None:
    calls: list[str] = []

    def record(name: str) -> torch.Tensor:
        calls.append(name)
        return torch.zeros(1)

    with mode(calls=2):
        time = run_benchmark([lambda: record("first"), lambda: record("last")], device="cpu")
    assert calls == ["first", "last", "first"]
    assert math.isnan(time.median)
