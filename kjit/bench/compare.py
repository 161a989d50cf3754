"""Comparison of a report with an earlier one, with a verdict only if the samples support it.

A sample is the time in one process (`kjit.bench.repeat`). All pairs of a current and an earlier sample give an interval
for the true ratio, for any distribution of the times; it is a regression if the whole interval is beyond the allowed
slowdown. With too few samples there is no such interval, and no verdict.

The machine itself may have become slower. So the provider that a benchmark compares with (PyTorch) is the control: it
is measured in the same processes, and a regression must also show in the times relative to the control's.

Only the first provider of a benchmark is judged; the others are for comparison.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import truediv
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kjit.bench.repeat import RUNS
from kjit.bench.sweep import Measurement, Report, describe, identify
from kjit.errors import UsageError

CONFIDENCE = 0.98
"""The confidence of an interval: one true change in a hundred is below it, and one above."""

Verdict = Literal["ok", "unclear", "slower", "slower, as its control", "too few samples"]
"""Unclear: the interval includes allowed and excessive changes."""


class Interval(NamedTuple):
    """Lower and upper bound of a change; 0.1 is ten percent slower."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One measurement, before and now.

    Args:
        before, now: medians of the samples, in microseconds.
        samples: the number of samples, before and now.
        change: 0.1 is ten percent slower.
        interval: the confidence interval of the change; None with too few samples.
        verdict: whether it is slower by more than the allowed change.
        control: the label of the provider that is assumed to be unchanged; empty if there is none.
    """

    where: str
    before: float
    now: float
    samples: tuple[int, int]
    change: float
    interval: Interval | None
    verdict: Verdict
    control: str

    @property
    def regressed(self) -> bool | None:
        """Whether there is a regression; None without a verdict."""
        return {"ok": False, "unclear": False, "slower": True}.get(self.verdict)

    @property
    def direction(self) -> str:
        """The direction of the change, without a limit: `faster`, `slower`, `level` (neither is certain), or the reason
        why it is unknown."""
        if self.interval is None:
            return "too few samples"
        if self.verdict == "slower, as its control":
            return self.verdict
        if self.interval.high < 0:
            return "faster"
        return "slower" if self.interval.low > 0 else "level"


@dataclass(frozen=True)
class Baseline:
    """An earlier report of `kjit bench --json`.

    Args:
        hardware: names by device.
        samples: times in microseconds by `Measurement.key`.
    """

    path: Path
    hardware: Mapping[str, str]
    samples: Mapping[tuple[object, ...], tuple[float, ...]]


def read_baseline(path: Path) -> Baseline:
    """Read a report of `kjit bench --json`.

    Raises:
        UsageError: the file is missing, or is something else.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        hardware = {str(device["device"]): str(device["name"]) for device in document["hardware"]}
        samples = {
            (m["file"], m["benchmark"], m["provider"], *sorted(m["args"].items())): tuple(map(float, m["runs_us"]))
            for m in document["measurements"]
            if m["median_us"] is not None
        }
        if not all(times and all(0 < time < math.inf for time in times) for times in samples.values()):
            raise ValueError
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        reason = "was not written by `kjit bench --json`"
    else:
        return Baseline(path, hardware, samples)
    raise UsageError(f"the baseline {path} {reason}.", hint="write one with: kjit bench --json > baseline.json")


def compare(report: Report, baseline: Baseline, max_regression: float) -> list[Comparison]:
    """Compare each judged measurement of `report` with the same one in `baseline`.

    Args:
        max_regression: the allowed slowdown: 0.05 for five percent.

    Raises:
        UsageError: they have nothing in common, or are from different hardware.
    """
    for device in report.hardware:
        then = baseline.hardware.get(device.device, device.name)
        if then != device.name:
            raise UsageError(
                f"the baseline {baseline.path} was measured on '{then}', this is '{device.name}'.",
                hint="times on different hardware cannot be compared: measure a baseline here",
            )
    now = {m.key: m.runs for m in report.measurements if m.time is not None}
    found = [
        _compare(m, now, baseline.samples, max_regression)
        for m in report.measurements
        if m.key in now and m.key in baseline.samples and m.provider == str(m.sweep.providers[0])
    ]
    if not found:
        raise UsageError(
            f"the baseline {baseline.path} has none of these measurements.",
            hint="compare the same ops with the same sizes: --quick with --quick",
        )
    return found


_Samples = Mapping[tuple[object, ...], tuple[float, ...]]


def _compare(measurement: Measurement, now: _Samples, before: _Samples, allowed: float) -> Comparison:
    key, sweep = measurement.key, measurement.sweep
    interval = find_interval(before[key], now[key])
    has_control = sweep.baseline is not None and sweep.baseline != measurement.provider
    control = identify(sweep, sweep.baseline or "", measurement.args) if has_control else ()
    verdict: Verdict = "ok"
    if interval is None:
        verdict = "too few samples"
    elif interval.low <= allowed < interval.high:
        verdict = "unclear"
    elif interval.low > allowed:
        verdict = "slower"
        if control in now and control in before:
            # Relative to the control's times in the same processes.
            then, today = (list(map(truediv, each[key], each[control])) for each in (before, now))
            relative = find_interval(then, today)
            if relative is None or relative.low <= allowed:
                verdict = "slower, as its control"
    return Comparison(
        where=f"{sweep.name} ({describe(measurement.args, measurement.provider)})",
        before=statistics.median(before[key]),
        now=statistics.median(now[key]),
        samples=(len(before[key]), len(now[key])),
        change=statistics.median(_ratios(before[key], now[key])) - 1,
        interval=interval,
        verdict=verdict,
        control=sweep.label_of(sweep.baseline) if has_control else "",
    )


def _ratios(before: Sequence[float], now: Sequence[float]) -> list[float]:
    return sorted(late / early for early in before for late in now)


def find_interval(before: Sequence[float], now: Sequence[float]) -> Interval | None:
    """The confidence interval of the change (`CONFIDENCE`); None with too few samples.

    It ends at two order statistics of the ratios of all pairs. Source: Hollander, Wolfe, Chicken, "Nonparametric
    Statistical Methods", 3rd edition, section 4.3 (confidence interval based on the rank sum, Moses).
    """
    if not before or not now:
        return None
    counts = _rank_sums(len(before), len(now))
    tail = (1 - CONFIDENCE) / 2 * sum(counts)
    outside = 0
    while sum(counts[: outside + 1]) <= tail:
        outside += 1
    if outside == 0:
        return None
    ratios = _ratios(before, now)
    return Interval(ratios[outside - 1] - 1, ratios[-outside] - 1)


def _rank_sums(left: int, right: int) -> list[int]:
    """The number of orders of the samples in which the left one is larger in 0, 1, 2, ... of the pairs."""
    counts = [1] + [0] * (left * right)
    # The coefficients of a Gaussian binomial: multiply by (1 - q^(left + k)), divide by (1 - q^k).
    for k in range(1, right + 1):
        for at in range(left * right, left + k - 1, -1):
            counts[at] -= counts[at - left - k]
        for at in range(k, left * right + 1):
            counts[at] += counts[at - k]
    return counts


def explain(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The reasons why some have no verdict, in sentences."""
    notes = []
    few = [c for c in comparisons if c.verdict == "too few samples"]
    if few:
        before, now = (min(c.samples[side] for c in few) for side in (0, 1))
        notes.append(
            f"{len(few)} of {len(comparisons)} have too few samples to judge: {before} then, {now} now, and {RUNS} are"
            f" needed on both sides (--runs {RUNS})."
        )
    alike = [c for c in comparisons if c.verdict == "slower, as its control"]
    if alike:
        controls = " and ".join(dict.fromkeys(c.control for c in alike))
        notes.append(
            f"{len(alike)} of {len(comparisons)} are slower, and not surely more so than {controls} in the same"
            " processes: the machine may be what became slower."
        )
    return tuple(notes)


def to_json(comparisons: list[Comparison]) -> list[dict[str, Any]]:
    """For `--json`."""
    names = {"before": "before_us", "now": "now_us"}
    return [
        {names.get(name, name): value for name, value in asdict(c).items() if name != "control"}
        | {"direction": c.direction, "regressed": c.regressed}
        for c in comparisons
    ]
