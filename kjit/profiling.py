"""Profiling: one call of an op's benchmark under Nsight Compute, or under PyTorch's profiler.

The benchmark runs as in `kjit bench`, with the inputs of one of its points, but calls the op twice: once to warm up,
and once under the profiler (`--profile-from-start off`). bench/counters.py summarises the counters.

Users often have no permission to read counters (`ERR_NVGPUCTRPERM`). Then the launch is taken from PyTorch's profiler,
and time and bandwidth from the benchmark.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.bench.counters import METRICS, Launch
from kjit.bench.sweep import Sweep, describe, plain
from kjit.engine.diagnostics.symbols import function_name, short_names
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.errors import KjitError, UsageError
from kjit.project import PYTHON_C, Project

FORBIDDEN = "ERR_NVGPUCTRPERM"

_START = (
    f"{PYTHON_C} import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); from kjit.profiling import main; main()"
)


class NotPermittedError(KjitError):
    """This user has no permission to read counters."""


@dataclass(frozen=True)
class Point:
    """One point of a benchmark: function, arguments, provider."""

    sweep: Sweep
    args: Mapping[str, Any]
    provider: object

    @property
    def label(self) -> str:
        return f"{self.sweep.name}: {describe(plain(self.args), str(self.provider))}"


def choose_point(sweeps: Sequence[Sweep], text: str | None = None) -> Point:
    """The last point of the first sweep, usually the largest; with `text`, the last with all its words.

    Args:
        text: `size=4096 dtype=float16`.

    Raises:
        UsageError: there is no such point.
    """
    points = [Point(sweep, args, sweep.providers[0]) for sweep in sweeps for args in sweep.arguments()]
    if not points:
        raise UsageError("the benchmark has no points.")
    if text is None:
        return [point for point in points if point.sweep is points[0].sweep][-1]
    words = re.split(r"[\s,]+(?=\w+=)", text.strip(" ,"))
    known = [[f"{name}={value}" for name, value in plain(point.args).items()] for point in points]
    found = [point for point, has in zip(points, known, strict=True) if set(has).issuperset(words)]
    if not found:
        names = list(dict.fromkeys(each for has in known for each in has))
        raise UsageError(f"the benchmark has no point with {text}.", hint=f"there is {', '.join(names[:12])}")
    return found[-1]


def find_point(sweeps: Sequence[Sweep], name: str, args: Mapping[str, Any]) -> Point:
    """The point of the sweep `name` with these arguments, in their `plain` form."""
    sweep = next(sweep for sweep in sweeps if sweep.name == name)
    return next(Point(sweep, each, sweep.providers[0]) for each in sweep.arguments() if plain(each) == args)


def profile(project: Project, file: Path, point: Point, report: Path) -> list[Launch]:
    """Profile one call under Nsight Compute; the full report is written to `report`.

    Raises:
        NotPermittedError: counters are not permitted.
        ToolchainError: Nsight Compute is not installed.
        KjitError: it failed.
    """
    ncu = str(find_tool("ncu"))
    request = {
        "pyproject": str(project.root / "pyproject.toml"),
        "file": str(file),
        "sweep": point.sweep.name,
        "args": plain(point.args),
    }
    base = [
        ncu,
        "--profile-from-start",
        "off",
        "--target-processes",
        "application-only",
        "--force-overwrite",
        "-o",
        str(report),
    ]
    program = [sys.executable, "-c", _START, json.dumps(request)]
    for options in (["--set", "full", "--metrics", ",".join(METRICS)], ["--set", "full"]):
        done = subprocess.run(
            [*base, *options, *program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        output = f"{done.stdout}\n{done.stderr}"
        if FORBIDDEN in output:
            raise NotPermittedError(
                "this user may not read the GPU's counters (ERR_NVGPUCTRPERM).",
                hint="https://developer.nvidia.com/ERR_NVGPUCTRPERM describes how an administrator permits it",
            )
        if done.returncode == 0 and report.is_file():
            return read_report(report)
        if "metric" not in output.lower():
            break
    raise KjitError(_why_it_failed(done.stdout, done.stderr))


def _why_it_failed(stdout: str, stderr: str) -> str:
    """A sentence: the benchmark's own exception where there is one, else the last error of Nsight Compute."""
    if "Traceback (most recent call last)" in stderr:
        return f"the benchmark failed under Nsight Compute: {stderr.strip().splitlines()[-1]}"
    lines = f"{stdout}\n{stderr}".strip().splitlines()
    errors = [line.replace("==ERROR==", "").strip() for line in lines if "==ERROR==" in line] or lines
    return f"Nsight Compute failed: {errors[-1] if errors else 'it printed nothing'}"


def read_report(report: Path) -> list[Launch]:
    """The launches in a report of Nsight Compute.

    Raises:
        KjitError: no kernel was launched, or it cannot be read.
    """
    command = [str(find_tool("ncu")), "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    launches = parse_raw(done.stdout)
    if not launches:
        raise KjitError(f"there is no kernel in '{report}'.", hint="does the benchmark call the op on a GPU?")
    return launches


def parse_raw(text: str) -> list[Launch]:
    """The output of `ncu --page raw --csv`: a line of names, one of units, one per launch."""
    start = text.find('"ID"')
    rows = list(csv.reader(io.StringIO(text[start:]))) if start >= 0 else []
    if len(rows) < 3:
        return []
    header, _, *values = rows
    launches = []
    for row in values:
        cells = dict(zip(header, row, strict=False))
        metrics = {name: number for name, cell in cells.items() if (number := _number(cell)) is not None}
        name = function_name(re.sub(r"<unnamed>::|\(anonymous namespace\)::", "", cells.get("Kernel Name", "")))
        launches.append(
            Launch(short_names([name])[0], cells.get("Grid Size", ""), cells.get("Block Size", ""), metrics)
        )
    return launches


def _number(cell: str) -> float | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def trace(point: Point, path: Path, calls: int = 5) -> list[tuple[str, float, int, Mapping[str, Any]]]:
    """Run the point under PyTorch's profiler and write a trace that Perfetto opens.

    Returns: The kernels, or on the CPU PyTorch's operators: name, microseconds per call, number of calls, launch
        configuration.

    Raises:
        KjitError: it is a benchmark of a GPU, and there is none; or it does not call `run_benchmark`.
    """
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    from kjit.benchmark import called_only

    if str(point.args.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
        raise KjitError("this benchmark needs an NVIDIA GPU, and PyTorch sees none here.")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with called_only(1):
        _call(point)  # builds and imports of the first call are not part of the trace
    profilers: list[torch_profile] = []

    def started() -> torch_profile:
        profilers.append(torch_profile(activities=activities, record_shapes=True))
        return profilers[-1]

    with called_only(calls, around=started), warnings.catch_warnings():
        # Irrelevant: there are no events of earlier cycles.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        _call(point)
    if not profilers:
        raise KjitError(
            "the benchmark measures by itself, so there is no call to look at.",
            hint="end it with: return kjit.benchmark.run_benchmark(function, device=device)",
        )
    profilers[-1].export_chrome_trace(str(path))
    return read_trace(json.loads(path.read_text("utf-8")))


def read_trace(document: Mapping[str, Any]) -> list[tuple[str, float, int, Mapping[str, Any]]]:
    """The kernels of a trace, longest first; PyTorch's operators if there are none."""
    events = [each for each in document.get("traceEvents", ()) if each.get("ph") == "X"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    chosen = kernels or [each for each in events if each.get("cat") == "cpu_op"]
    found: dict[str, tuple[float, int, Mapping[str, Any]]] = {}
    for each in chosen:
        name = str(each["name"])
        if kernels:
            name = short_names([function_name(re.sub(r"\(anonymous namespace\)::", "", name))])[0]
        total, count, args = found.get(name, (0.0, 0, each.get("args", {})))
        found[name] = (total + float(each.get("dur", 0.0)), count + 1, args)
    rows = [(name, total / count, count, args) for name, (total, count, args) in found.items()]
    return sorted(rows, key=lambda row: -row[1] * row[2])


def _call(point: Point) -> None:
    point.sweep.function(**point.args, **{point.sweep.line_arg: point.provider})


def main() -> None:
    """Call a point of a benchmark, with the profiler on during the second call; the main function for ncu."""
    import torch

    from kjit.bench.collect import load_sweeps
    from kjit.benchmark import called_only
    from kjit.project import read_project

    request = json.loads(sys.argv[1])
    project = read_project(Path(request["pyproject"]))
    sweeps, _ = load_sweeps(project, [Path(request["file"])])
    point = find_point(sweeps, request["sweep"], request["args"])
    with called_only(1):
        _call(point)
    with called_only(1, around=torch.cuda.profiler.profile):
        _call(point)
