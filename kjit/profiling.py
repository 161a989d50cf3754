"""Profiling: one call of an op's benchmark under Nsight Compute, or under PyTorch's profiler.

The benchmark runs as in `kjit bench`, with the inputs of one of its points, but calls the op twice: once to warm up,
and once under the profiler (`--profile-from-start off`). What limits a kernel, and mistakes in it, is what the rules of
Nsight Compute say.

Users often have no permission to read counters (`ERR_NVGPUCTRPERM`). Then the launch is taken from PyTorch's profiler,
and time and bandwidth from the benchmark.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kjit.bench.sweep import Sweep, describe, plain
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.errors import KjitError, UsageError
from kjit.inspection import short_name
from kjit.project import PYTHON_C, Project

FORBIDDEN = "ERR_NVGPUCTRPERM"

_START = (
    f"{PYTHON_C} import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); from kjit.profiling import main; main()"
)


class NotPermittedError(KjitError):
    """This user has no permission to read counters."""


@dataclass(frozen=True)
class Point:
    """One point of a benchmark, for its first provider."""

    sweep: Sweep
    args: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.sweep.name}: {describe(plain(self.args), str(self.sweep.providers[0]))}"

    def call(self) -> None:
        self.sweep.function(**self.args, **{self.sweep.line_arg: self.sweep.providers[0]})


@dataclass(frozen=True)
class Launch:
    """A profiled kernel.

    Args:
        metrics: name and unit, and number: `Duration (us)`.
        advice: what the rules of Nsight Compute say about it, the most promising first.
    """

    kernel: str
    grid: str
    block: str
    metrics: dict[str, float] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)


def choose_point(sweeps: Sequence[Sweep], text: str | None = None) -> Point:
    """The last point of the first sweep, usually the largest; with `text`, the last with all its words.

    Args:
        text: `size=4096 dtype=float16`.

    Raises:
        UsageError: there is no such point.
    """
    points = [Point(sweep, args) for sweep in sweeps for args in sweep.arguments()]
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


def profile(project: Project, file: Path, text: str | None, report: Path) -> list[Launch]:
    """Profile one call under Nsight Compute; the full report is written to `report`.

    Args:
        text: which point of the benchmark in `file`, as of `choose_point`.

    Raises:
        NotPermittedError: counters are not permitted.
        ToolchainError: Nsight Compute is not installed.
        KjitError: it failed, or no kernel was launched.
    """
    ncu = str(find_tool("ncu"))
    how = "--set full --profile-from-start off --target-processes application-only --force-overwrite"
    program = [sys.executable, "-c", _START, json.dumps([str(project.root / "pyproject.toml"), str(file), text])]
    done = _run([ncu, *how.split(), "-o", str(report), *program])
    output = f"{done.stdout}\n{done.stderr}"
    if FORBIDDEN in output:
        raise NotPermittedError(
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM).",
            hint="https://developer.nvidia.com/ERR_NVGPUCTRPERM describes how an administrator permits it",
        )
    if "Traceback (most recent call last)" in done.stderr:
        raise KjitError(f"the benchmark failed under Nsight Compute: {done.stderr.strip().splitlines()[-1]}")
    if done.returncode != 0 or not report.is_file():
        lines = [line.replace("==ERROR==", "").strip() for line in output.splitlines() if "==ERROR==" in line]
        reason = lines[-1] if lines else output.strip() or "it printed nothing"
        raise KjitError(f"Nsight Compute failed: {reason}")
    launches = read_details(_run([ncu, "--import", str(report), "--page", "details", "--csv"]).stdout)
    if not launches:
        raise KjitError(f"there is no kernel in '{report}'.", hint="does the benchmark call the op on a GPU?")
    return launches


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def read_details(text: str) -> list[Launch]:
    """The launches in the output of `ncu --page details --csv`: a line for each metric, and for each rule."""
    start = text.find('"ID"')
    launches: dict[str, Launch] = {}
    advice: dict[str, list[tuple[float, str]]] = {}
    for row in csv.DictReader(io.StringIO(text[start:])) if start >= 0 else ():
        launch = launches.get(row["ID"])
        if launch is None:
            name = short_name(row["Kernel Name"])
            launch = launches[row["ID"]] = Launch(name, row["Grid Size"], row["Block Size"])
        if row["Metric Name"]:
            unit = f" ({row['Metric Unit']})" if row["Metric Unit"] else ""
            try:
                launch.metrics.setdefault(f"{row['Metric Name']}{unit}", float(row["Metric Value"].replace(",", "")))
            except ValueError:  # some are text, such as a cache configuration
                continue
        elif row["Rule Name"] == "SOLBottleneck" or row["Rule Type"] == "OPT":
            gain = math.inf if row["Rule Name"] == "SOLBottleneck" else float(row.get("Estimated Speedup") or 0)
            advice.setdefault(row["ID"], []).append((gain, " ".join(row["Rule Description"].split())))
    for number, launch in launches.items():
        launch.advice.extend(text for _, text in sorted(advice.get(number, ()), key=lambda each: -each[0]))
    return list(launches.values())


def trace(point: Point, path: Path, calls: int = 5) -> list[dict[str, Any]]:
    """Run the point under PyTorch's profiler and write a trace that Perfetto opens.

    Returns: As `read_trace`.

    Raises:
        KjitError: it is a benchmark of a GPU, and there is none; or it does not call `run_benchmark`.
    """
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    from kjit.benchmark import mode

    if str(point.args.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
        raise KjitError("this benchmark needs an NVIDIA GPU, and PyTorch sees none here.")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with mode(calls=1):
        point.call()  # builds and imports of the first call are not part of the trace
    profilers: list[torch_profile] = []

    def started() -> torch_profile:
        profilers.append(torch_profile(activities=activities, record_shapes=True))
        return profilers[-1]

    with mode(calls=calls, around=started), warnings.catch_warnings():
        # Irrelevant: there are no events of earlier cycles.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        point.call()
    if not profilers:
        raise KjitError(
            "the benchmark measures by itself, so there is no call to look at.",
            hint="end it with: return kjit.benchmark.run_benchmark(function, device=device)",
        )
    profilers[-1].export_chrome_trace(str(path))
    return read_trace(json.loads(path.read_text("utf-8")))


_KEPT = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %")


def read_trace(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kernels of a trace, longest first; PyTorch's operators if there are none.

    Returns: Name, microseconds per call (`us`), number of calls, and the configuration of the launch.
    """
    events = [each for each in document.get("traceEvents", ()) if each.get("ph") == "X"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    found: dict[str, list[dict[str, Any]]] = {}
    for each in kernels or [each for each in events if each.get("cat") == "cpu_op"]:
        found.setdefault(short_name(each["name"]) if kernels else each["name"], []).append(each)
    totals = {name: sum(each.get("dur", 0.0) for each in group) for name, group in found.items()}
    return [
        {"name": name, "us": totals[name] / len(found[name]), "calls": len(found[name])}
        | {key: value for key, value in found[name][-1].get("args", {}).items() if key in _KEPT}
        for name in sorted(totals, key=lambda name: -totals[name])
    ]


def main() -> None:
    """Call a point of a benchmark, with the profiler on during the second call; the main function for ncu."""
    import torch

    from kjit.bench.collect import load_sweeps
    from kjit.benchmark import mode
    from kjit.project import read_project

    pyproject, file, text = json.loads(sys.argv[1])
    point = choose_point(load_sweeps(read_project(Path(pyproject)), [Path(file)])[0], text)
    with mode(calls=1):
        point.call()
    with mode(calls=1, around=torch.cuda.profiler.profile):
        point.call()
