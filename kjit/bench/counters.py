"""The limit of a profiled kernel, and mistakes in it, from its counters.

The summary has the decisive counters: whether memory or compute is near its peak, what warps wait for, and signs of
common mistakes (uncoalesced loads, bank conflicts, spills). Nsight Compute collects them (kjit/profiling.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_STALLS = "smsp__average_warps_issue_stalled_"
METRICS = (
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
)
"""The counters used here that may be in no section of Nsight Compute's full set."""

_DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_SECTOR = 32  # bytes
_NEAR = 60.0  # percent of a peak from which it counts as the limit
_WASTED = 50.0  # percent of used bytes below which loads count as uncoalesced
_CONFLICTS = 0.25  # of the wavefronts of shared memory, from which conflicts are reported


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
