from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kjit.bench.compare import compare, read_baseline
from kjit.bench.report import to_json
from kjit.bench.sweep import Report
from kjit.errors import UsageError

Run = Callable[..., Report]


@pytest.fixture
def baseline(run: Run, tmp_path: Path) -> Path:
    """What `kjit bench --json` writes for times of 2 us, 4 us and a noise of 2%."""
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(to_json(run())))
    return path


def _times(kjit: float) -> tuple[str, str]:
    return ('"kjit": 2.0', f'"kjit": {kjit}')


def test_the_same_times_are_no_regression(run: Run, baseline: Path) -> None:
    assert [c.regressed for c in compare(run(), read_baseline(baseline), 0.0)] == [False, False]


def test_a_slow_down_past_limit_and_noise_is_a_regression(run: Run, baseline: Path) -> None:
    found = compare(run(_times(2.3)), read_baseline(baseline), 0.05)
    assert [c.regressed for c in found] == [True, True]
    assert found[0].change == pytest.approx(0.15)


def test_a_slow_down_within_the_limit_is_allowed(run: Run, baseline: Path) -> None:
    assert not any(c.regressed for c in compare(run(_times(2.3)), read_baseline(baseline), 0.2))


def test_a_slow_down_that_noise_explains_is_allowed(run: Run, baseline: Path) -> None:
    found = compare(run(_times(2.16)), read_baseline(baseline), 0.05)
    assert found[0].change > 0.05
    assert found[0].noise == pytest.approx(0.04)
    assert not found[0].regressed


def test_what_the_op_is_compared_with_is_not_judged(run: Run, baseline: Path) -> None:
    found = compare(run(('"torch": 4.0', '"torch": 40.0')), read_baseline(baseline), 0.05)
    assert not any(c.regressed for c in found)
    assert all("kjit" in c.where for c in found)


def test_a_faster_run_is_no_regression(run: Run, baseline: Path) -> None:
    assert [c.change for c in compare(run(_times(1.0)), read_baseline(baseline), 0.0)] == pytest.approx([-0.5, -0.5])


def test_a_size_that_the_baseline_lacks_is_left_out(run: Run, baseline: Path) -> None:
    found = compare(run(("[1000, 2000]", "[2000, 3000]")), read_baseline(baseline), 0.05)
    assert [c.where for c in found] == ["scale (device=cpu, dtype=float32, n=2000, kjit)"]


def test_a_baseline_of_something_else_is_refused(run: Run, baseline: Path) -> None:
    with pytest.raises(UsageError, match="has none of these measurements"):
        compare(run(('"scale"', '"other"')), read_baseline(baseline), 0.05)


def test_a_baseline_of_other_hardware_is_refused(run: Run, baseline: Path) -> None:
    document = json.loads(baseline.read_text())
    document["hardware"][0]["name"] = "another CPU"
    baseline.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="was measured on 'another CPU'"):
        compare(run(), read_baseline(baseline), 0.05)


def test_a_failed_measurement_of_the_baseline_is_left_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(to_json(run(("    median =", "    assert n != 1000\n    median =")))))
    assert len(compare(run(), read_baseline(path), 0.05)) == 1


def test_a_missing_baseline_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json does not exist") as error:
        read_baseline(tmp_path / "none.json")
    assert error.value.hint == "write one with: kjit bench --json > baseline.json"


@pytest.mark.parametrize("text", ["", "{", "\x00"])
def test_a_baseline_that_is_not_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not JSON"):
        read_baseline(path)


@pytest.mark.parametrize("document", [[], {}, {"hardware": [], "measurements": [{}]}, {"hardware": 3}, "x"])
def test_a_baseline_of_another_form_is_refused(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="was not written by kjit bench"):
        read_baseline(path)
