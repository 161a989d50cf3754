"""Profiling: one call of an op's benchmark under Nsight Compute, and a summary of what limits it.

The benchmark runs as in `kjit bench`, with the inputs of one of its points, but calls the op twice: once to warm up,
and once under the profiler (`--profile-from-start off`). The summary uses the decisive counters: whether memory or
compute is near its peak, what warps wait for, and signs of common mistakes (uncoalesced loads, bank conflicts, spills).

Users often have no permission to read counters (`ERR_NVGPUCTRPERM`). Then the launch is taken from PyTorch's profiler,
and time and bandwidth from the benchmark.
"""

from __future__ import annotations

import csv
import importlib.util
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

from kjit.bench.sweep import Sweep, describe, plain
from kjit.engine.diagnostics.symbols import function_name, short_names
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.errors import KjitError, UsageError
from kjit.project import PYTHON_C, Project

FORBIDDEN = "ERR_NVGPUCTRPERM"

_START = (
    f"{PYTHON_C} import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); from kjit.profiling import main; main()"
)
_STALLS = "smsp__average_warps_issue_stalled_"
# Counters that may be in no section of the full set.
_METRICS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "smsp__sass_data_bytes_mem_global_op_ld.sum",
    "smsp__sass_data_bytes_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_sector_hit_rate.pct",
    "dram__bytes.sum.per_second",
    "dram__bytes.sum.peak_sustained",
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "smsp__cycles_elapsed.avg.per_second",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
)
_DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_SECTOR = 32  # bytes
_NEAR = 60.0  # percent of a peak from which it counts as the limit
_WASTED = 50.0  # percent of used bytes below which loads count as uncoalesced
_CONFLICTS = 0.25  # of the wavefronts of shared memory, from which conflicts are reported


class NotPermittedError(KjitError):
    """This user has no permission to read counters."""


@dataclass(frozen=True)
class Launch:
    """A profiled kernel: its name and its counters, in base units."""

    kernel: str
    grid: str
    block: str
    metrics: Mapping[str, float]

    def get(self, *names: str) -> float | None:
        """The first available of these counters."""
        return next((self.metrics[name] for name in names if name in self.metrics), None)


@dataclass(frozen=True)
class Roofline:
    """The position of a launch below the roofline of fp32 arithmetic, without operations of other dtypes and of tensor
    cores.

    Args:
        gbps, tflops: the achieved DRAM bandwidth and fp32 operations.
        peak_gbps, peak_tflops: the peaks of the GPU at the clocks of that launch.
    """

    gbps: float
    tflops: float
    peak_gbps: float
    peak_tflops: float

    @property
    def intensity(self) -> float:
        """fp32 operations per byte of DRAM traffic."""
        return 1e3 * self.tflops / self.gbps

    @property
    def roof(self) -> float:
        """The most TFLOP/s that memory and compute allow at this intensity."""
        return min(self.intensity * self.peak_gbps / 1e3, self.peak_tflops)


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
    for options in (["--set", "full", "--metrics", ",".join(_METRICS)], ["--set", "full"]):
        done = subprocess.run(
            [*base, *options, *program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        said = f"{done.stdout}\n{done.stderr}"
        if FORBIDDEN in said:
            raise NotPermittedError(
                "this user may not read the GPU's counters (ERR_NVGPUCTRPERM).",
                hint="https://developer.nvidia.com/ERR_NVGPUCTRPERM says how an administrator permits it",
            )
        if done.returncode == 0 and report.is_file():
            return read_report(report)
        if "metric" not in said.lower():
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


def verdict(launch: Launch) -> str:
    """The limit of a kernel, as a sentence, and mistakes visible in its counters."""
    dram = launch.get(*_DRAM) or 0.0
    memory = launch.get("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed") or dram
    compute = launch.get("sm__throughput.avg.pct_of_peak_sustained_elapsed") or 0.0
    mistakes = mistakes_of(launch)
    if dram >= _NEAR and dram >= compute:
        limit = f"memory-bound: {dram:.0f}% of DRAM peak"
    elif memory >= _NEAR and memory >= compute:
        limit = f"bound by the caches: {memory:.0f}% of what L1, L2 or shared memory can do, {dram:.0f}% of DRAM peak"
    elif compute >= _NEAR:
        limit = f"compute-bound: {compute:.0f}% of what the SMs can issue"
    else:
        stall = stalls(launch)
        waits = f", warps wait most for {stall[0][0]}" if stall else ""
        limit = f"latency-bound: {memory:.0f}% of memory's peak, {compute:.0f}% of compute{waits}"
    return "; ".join([limit, *mistakes])


def mistakes_of(launch: Launch) -> list[str]:
    """Uncoalesced loads and stores, bank conflicts, spills, each with a number."""
    found = []
    for kind, word in (("ld", "loads"), ("st", "stores")):
        used = coalesced(launch, kind)
        if used is not None and used < _WASTED:
            found.append(f"uncoalesced {word}: {used:.0f}% of the bytes that are moved are used")
    for kind, word in (("ld", "loads"), ("st", "stores")):
        conflicts = launch.get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum")
        waves = launch.get(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum")
        if conflicts and waves and conflicts / waves >= _CONFLICTS:
            found.append(f"bank conflicts: {conflicts / waves:.0%} of what shared {word} take is conflicts")
    local = sum(launch.get(f"l1tex__t_requests_pipe_lsu_mem_local_op_{kind}.sum") or 0.0 for kind in ("ld", "st"))
    if local:
        found.append(f"spills or arrays in local memory: {local:,.0f} accesses of warps")
    return found


def coalesced(launch: Launch, kind: str) -> float | None:
    """The used percentage of the bytes moved by global loads (`ld`) or stores (`st`)."""
    sectors = launch.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum")
    used = launch.get(f"smsp__sass_data_bytes_mem_global_op_{kind}.sum")
    if not sectors or used is None:
        return None
    return 100 * used / (sectors * _SECTOR)


def roofline(launch: Launch) -> Roofline | None:
    """The roofline of a launch; None without fp32 arithmetic, DRAM traffic, or the counters."""
    per_cycle = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    adds, multiplies, both = (launch.get(per_cycle.format(name)) for name in ("fadd", "fmul", "ffma"))
    clock, quarter_clock = (launch.get(f"{unit}__cycles_elapsed.avg.per_second") for unit in ("sm", "smsp"))
    moved, most_moved = (launch.get(f"dram__bytes.sum.{kind}") for kind in ("per_second", "peak_sustained"))
    memory_clock = launch.get("dram__cycles_elapsed.avg.per_second")
    most = launch.get("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained")
    if not (clock and quarter_clock and moved and most_moved and memory_clock and most):
        return None
    operations = (adds or 0.0) + (multiplies or 0.0) + 2 * (both or 0.0)
    if not operations:
        return None
    return Roofline(
        gbps=moved / 1e9,
        tflops=operations * quarter_clock / 1e12,
        peak_gbps=most_moved * memory_clock / 1e9,
        peak_tflops=2 * most * clock / 1e12,
    )


def draw_roofline(title: str, launches: Sequence[Launch], path: Path) -> bool:
    """Draw the launches below the roofline of the GPU.

    Returns: Whether a plot was written: matplotlib is installed, and a launch has fp32 arithmetic.
    """
    from kjit.bench import plot

    if importlib.util.find_spec("matplotlib") is None:
        return False
    found = [(launch.kernel, place) for launch in launches if (place := roofline(launch)) is not None]
    if not found:
        return False
    points: dict[str, list[tuple[float, float]]] = {}
    for kernel, place in found:
        points.setdefault(kernel, []).append((place.intensity, place.tflops))
    peak = found[0][1]
    plot.draw_roofline(title, points, (peak.peak_gbps, "DRAM"), (peak.peak_tflops, "fp32"), path)
    return True


def stalls(launch: Launch) -> list[tuple[str, float]]:
    """Stall reasons, with the stalled warps per issued instruction, largest first."""
    pattern = re.compile(rf"{_STALLS}(\w+?)(?:_per_issue_active)?\.ratio$")
    found = [(match[1], value) for name, value in launch.metrics.items() if (match := pattern.match(name))]
    named = {_STALL_NAMES.get(name, name.replace("_", " ")): value for name, value in found if name != "selected"}
    return sorted(named.items(), key=lambda each: -each[1])


_STALL_NAMES = {
    "long_scoreboard": "global memory (long scoreboard)",
    "short_scoreboard": "shared memory (short scoreboard)",
    "barrier": "barriers",
    "lg_throttle": "the queue of global memory (LG throttle)",
    "mio_throttle": "the queue of shared memory (MIO throttle)",
    "math_pipe_throttle": "a busy math pipe",
    "wait": "fixed latencies",
    "membar": "memory barriers",
    "drain": "stores at the end",
    "no_instruction": "instructions",
    "imc_miss": "constants",
    "not_selected": "another warp that was chosen",
    "branch_resolving": "branches",
    "sleeping": "sleep",
}


def describe_launch(launch: Launch) -> list[str]:
    """A summary of a launch in a dozen lines, the verdict first."""
    get = launch.get

    def percent(*names: str) -> str:
        value = get(*names)
        return "?" if value is None else f"{value:.0f}%"

    time = get("gpu__time_duration.sum")
    dram = percent(*_DRAM)
    memory = percent("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
    compute = percent("sm__throughput.avg.pct_of_peak_sustained_elapsed")
    active = percent("sm__warps_active.avg.pct_of_peak_sustained_active")
    possible = percent("sm__maximum_warps_per_active_cycle_pct")
    duration = "?" if time is None else f"{time / 1e3:.1f}"
    lines = [
        f"{launch.kernel}: {duration} us, grid {launch.grid}, blocks of {launch.block}",
        f"  {verdict(launch)}",
        f"  peak: DRAM {dram}, memory as a whole {memory}, SMs {compute}",
        *_roofline_line(launch),
        f"  issue slots busy: {percent('smsp__issue_active.avg.pct_of_peak_sustained_active')}",
        f"  hits: L1 {percent('l1tex__t_sector_hit_rate.pct')}, L2 {percent('lts__t_sector_hit_rate.pct')}",
        f"  occupancy: {active} of {possible}{_limited_by(launch)}",
    ]
    moved = [
        f"{word} {used:.0f}%"
        for kind, word in (("ld", "loads"), ("st", "stores"))
        if (used := coalesced(launch, kind)) is not None
    ]
    if moved:
        lines.append(f"  of the bytes that are moved are used: {', '.join(moved)}")
    conflicts = [
        f"{value:,.0f} of {word}"
        for kind, word in (("ld", "loads"), ("st", "stores"))
        if (value := get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum"))
    ]
    if conflicts:
        lines.append(f"  bank conflicts: {', '.join(conflicts)}")
    waits = stalls(launch)[:3]
    if waits:
        waiting = ", ".join(f"{name} {value:.1f}" for name, value in waits)
        lines.append(f"  warps that wait, for each instruction that is issued: {waiting}")
    return lines


def _roofline_line(launch: Launch) -> list[str]:
    place = roofline(launch)
    if place is None:
        return []
    reached = f"{place.tflops:.3g} TFLOP/s of {place.roof:.3g} that memory and compute allow there"
    return [f"  roofline: {place.intensity:.3g} fp32 operations a byte of DRAM, {reached}"]


def _limited_by(launch: Launch) -> str:
    limits = {
        "registers": launch.get("launch__occupancy_limit_registers"),
        "shared memory": launch.get("launch__occupancy_limit_shared_mem"),
        "the size of a block": launch.get("launch__occupancy_limit_warps"),
        "blocks of an SM": launch.get("launch__occupancy_limit_blocks"),
    }
    known = {name: value for name, value in limits.items() if value is not None}
    possible = launch.get("sm__maximum_warps_per_active_cycle_pct")
    if not known or (possible is not None and possible >= 100):
        return ""
    name = min(known, key=lambda each: known[each])
    registers = launch.get("launch__registers_per_thread")
    more = f" ({registers:.0f} a thread)" if name == "registers" and registers is not None else ""
    return f", limited by {name}{more}"


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
