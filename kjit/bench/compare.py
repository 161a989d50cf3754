"""Is it slower than it was? A report is held against an earlier one, with the noise of both taken into account.

Noise only ever makes a measurement slower, so that the distance from the fastest sample to the median is what noise did
to the median. A slow-down counts when it is larger than what is allowed plus that distance in both runs. Only the first
provider of a benchmark is judged: the others are what it is compared with, and theirs to mend.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.bench.sweep import Measurement, Report, describe
from kjit.benchmark import BenchTime
from kjit.errors import UsageError


@dataclass(frozen=True)
class Comparison:
    """One measurement, then and now.

    Args:
        change: 0.1 is ten percent slower.
        noise: how much of a change noise can explain.
        regressed: slower by more than was allowed and noise can explain.
    """

    where: str
    before: BenchTime
    now: BenchTime
    change: float
    noise: float
    regressed: bool


@dataclass(frozen=True)
class Baseline:
    """An earlier report, as `kjit bench --json` wrote it."""

    path: Path
    hardware: Mapping[str, str]
    times: Mapping[tuple[object, ...], BenchTime]


def read_baseline(path: Path) -> Baseline:
    """Read what `kjit bench --json` wrote.

    Raises:
        UsageError: the file is missing, or is something else.
    """
    hint = "write one with: kjit bench --json > baseline.json"
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"the baseline {path} does not exist.", hint=hint) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"the baseline {path} is not JSON: {error}.", hint=hint) from None
    try:
        hardware = {str(device["device"]): str(device["name"]) for device in document["hardware"]}
        times = {
            (m["file"], m["benchmark"], m["provider"], *sorted(m["args"].items())): BenchTime(
                float(m["median_us"]), float(m["min_us"]), float(m["max_us"])
            )
            for m in document["measurements"]
            if m["median_us"] is not None
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"the baseline {path} was not written by kjit bench.", hint=hint) from None
    return Baseline(path, hardware, times)


def compare(report: Report, baseline: Baseline, max_regression: float) -> list[Comparison]:
    """Hold each judged measurement of `report` against the same one in `baseline`.

    Args:
        max_regression: how much slower is allowed: 0.05 for five percent.

    Raises:
        UsageError: they have nothing in common, or are from different hardware.
    """
    for device in report.hardware:
        then = baseline.hardware.get(device.device, device.name)
        if then != device.name:
            raise UsageError(
                f"the baseline {baseline.path} was measured on '{then}', this is '{device.name}'.",
                hint="times of different hardware say nothing about the code: measure a baseline here",
            )
    found = [
        _compare(m, m.time, baseline.times[m.key], max_regression)
        for m in report.measurements
        if m.time is not None and m.key in baseline.times and _is_judged(m)
    ]
    if not found:
        raise UsageError(
            f"the baseline {baseline.path} has none of these measurements.",
            hint="compare the same ops with the same sizes: --quick with --quick",
        )
    return found


def _is_judged(measurement: Measurement) -> bool:
    return measurement.provider == str(measurement.sweep.providers[0])


def _compare(measurement: Measurement, now: BenchTime, before: BenchTime, allowed: float) -> Comparison:
    change = now.median / before.median - 1
    noise = _spread(before) + _spread(now)
    where = f"{measurement.sweep.name} ({describe(measurement.args, measurement.provider)})"
    return Comparison(where, before, now, change, noise, regressed=change > allowed + noise)


def _spread(time: BenchTime) -> float:
    return (time.median - time.min) / time.median


def to_json(comparisons: list[Comparison]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [
        {
            "where": c.where,
            "before_us": c.before.median,
            "now_us": c.now.median,
            "change": c.change,
            "noise": c.noise,
            "regressed": c.regressed,
        }
        for c in comparisons
    ]
