from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kjit.bench.compare import compare, explain, find_interval, read_baseline
from kjit.bench.repeat import RUNS
from kjit.bench.report import to_json
from kjit.bench.sweep import Report
from kjit.errors import UsageError

Run = Callable[..., Report]


STEADY = [1.00, 1.01, 0.99, 1.02, 1.00]
"""Possible measurements of the same code by five processes, in units of the true time."""


def sampled(report: Report, **samples: list[float]) -> Report:
    """A report with samples for its providers, as factors of the time that it has."""
    report.measurements = [
        replace(m, runs=tuple(m.time.median * factor for factor in samples.get(m.provider, STEADY)))
        for m in report.measurements
        if m.time is not None
    ]
    return report


@pytest.fixture
def baseline(run: Run, tmp_path: Path) -> Path:
    """A report of `kjit bench --json` with times around 2 us and 4 us, from five processes."""
    return write(tmp_path, sampled(run()))


def write(folder: Path, report: Report) -> Path:
    path = folder / "baseline.json"
    path.write_text(json.dumps(to_json(report)))
    return path


def times(factor: float) -> list[float]:
    return [factor * each for each in STEADY]


def verdicts(report: Report, baseline: Path, allowed: float = 0.05) -> list[str]:
    return [c.verdict for c in compare(report, read_baseline(baseline), allowed)]


def test_samples_that_are_past_the_limit_are_a_regression(run: Run, baseline: Path) -> None:
    found = compare(sampled(run(), kjit=times(1.3)), read_baseline(baseline), 0.05)
    assert [(c.verdict, c.regressed) for c in found] == [("slower", True)] * 2
    assert found[0].change == pytest.approx(0.3, abs=0.01)
    assert found[0].interval is not None
    assert 0.25 < found[0].interval.low < 0.3 < found[0].interval.high < 0.35
    assert verdicts(sampled(run(), kjit=times(1.3)), baseline, 0.2) == ["slower", "slower"]


@pytest.mark.parametrize(("factor", "allowed"), [(1.0, 0.05), (1.3, 0.4), (0.5, 0.0)])
def test_what_is_not_slower_than_allowed_is_no_regression(
    run: Run, baseline: Path, factor: float, allowed: float
) -> None:
    found = compare(sampled(run(), kjit=times(factor)), read_baseline(baseline), allowed)
    assert [c.verdict for c in found] == ["ok", "ok"]
    assert [c.change for c in found] == pytest.approx([factor - 1] * 2)


def test_a_slow_down_that_may_be_within_the_limit_is_no_regression(run: Run, baseline: Path) -> None:
    found = compare(sampled(run(), kjit=[1.3, 1.01, 1.31, 1.02, 1.29]), read_baseline(baseline), 0.05)
    assert {(c.verdict, c.regressed) for c in found} == {("unclear", False)}
    assert found[0].change > 0.05


def test_one_sample_is_too_few_for_a_verdict_on_either_side(run: Run, baseline: Path, tmp_path: Path) -> None:
    slow = sampled(run(), kjit=[3.07])
    assert verdicts(slow, baseline) == ["too few samples"] * 2
    alone = write(tmp_path, sampled(run(), kjit=[1.0]))
    found = compare(sampled(run(), kjit=times(3.07)), read_baseline(alone), 0.05)
    assert {(c.verdict, c.interval, c.regressed) for c in found} == {("too few samples", None, None)}
    assert explain(found) == (
        "2 of 2 have too few samples to judge: 1 then, 5 now, and 5 are needed on both sides (--runs 5).",
    )


def test_a_slow_down_that_the_control_shares_is_held_for_the_machines(run: Run, baseline: Path) -> None:
    found = compare(sampled(run(), kjit=times(2.0), torch=times(2.1)), read_baseline(baseline), 0.05)
    assert {(c.verdict, c.regressed) for c in found} == {("slower, as its control", None)}
    (sentence,) = explain(found)
    assert sentence.startswith("2 of 2 are slower, and not surely more so than PyTorch in the same processes: ")


@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_of_unchanged_code_about_one_measurement_in_a_hundred_is_past_the_interval(spread: float) -> None:
    chance = random.Random(1)

    def samples() -> list[float]:
        return [math.exp(chance.gauss(0, spread)) for _ in range(RUNS)]

    intervals = [interval for _ in range(1500) if (interval := find_interval(samples(), samples())) is not None]
    assert len(intervals) == 1500
    assert sum(interval.low > 0 for interval in intervals) < 30
    assert sum(interval.high < 0 for interval in intervals) < 30


def test_what_the_op_is_compared_with_is_not_judged(run: Run, baseline: Path) -> None:
    found = compare(sampled(run(), torch=times(10)), read_baseline(baseline), 0.05)
    assert not any(c.regressed for c in found)
    assert all("kjit" in c.where for c in found)


def test_a_baseline_of_something_else_is_refused(run: Run, baseline: Path) -> None:
    with pytest.raises(UsageError, match="has none of these measurements"):
        compare(run(('"scale"', '"other"')), read_baseline(baseline), 0.05)


def test_a_baseline_of_other_hardware_is_refused(run: Run, baseline: Path) -> None:
    document = json.loads(baseline.read_text())
    document["hardware"][0]["name"] = "another CPU"
    baseline.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="was measured on 'another CPU'"):
        compare(run(), read_baseline(baseline), 0.05)


_ZERO = {"file": "b.py", "benchmark": "b", "provider": "kjit", "args": {}, "median_us": 0}


@pytest.mark.parametrize(
    "document",
    [
        "{",
        [],
        {"hardware": [], "measurements": [{}]},
        {"hardware": [], "measurements": [{**_ZERO, "runs_us": [0]}]},
        {"hardware": [], "measurements": [{**_ZERO, "median_us": 1, "runs_us": ["x"]}]},
    ],
)
def test_a_baseline_of_another_form_is_refused(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(UsageError, match="was not written by `kjit bench --json`"):
        read_baseline(path)
