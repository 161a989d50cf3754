"""kjit.bench.outputs: the comparison of providers' results, and its report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kjit import benchmark
from kjit.bench.outputs import compare
from kjit.bench.report import grids, to_json
from kjit.bench.sweep import Report

Run = Callable[..., Report]
nan = math.nan


@pytest.mark.parametrize(
    ("result", "reference", "matches", "difference"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-6]), True, 4.8e-7),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), False, 0.2),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.02], dtype=torch.bfloat16), True, 0.0078),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False, 1 / 3),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True, 0.0),
        (torch.tensor([nan, 2.0]), torch.tensor([nan, 2.0]), True, 0.0),
        (torch.tensor([nan, 2.0]), torch.tensor([1.0, 2.0]), False, math.inf),
        (torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.inf]), True, 0.0),
        (torch.tensor([1.0]), torch.tensor([0.0]), False, math.inf),
        (torch.zeros(2), torch.zeros(2, 1), False, math.inf),
        (torch.zeros(0), torch.zeros(0), True, 0.0),
        ((torch.ones(2), torch.ones(3)), [torch.ones(2), 2 * torch.ones(3)], False, 0.5),
    ],
)
def test_results_match_but_for_rounding(result: Any, reference: Any, matches: bool, difference: float) -> None:
    found = compare(result, reference)
    assert found is not None
    assert found.matches is matches
    assert found.difference == pytest.approx(difference, rel=0.02)


def test_nothing_is_compared_where_nothing_is_returned() -> None:
    assert compare(None, torch.ones(2)) is None
    assert compare(torch.ones(2), ()) is None


def test_new_memory_is_poisoned_for_who_is_judged() -> None:
    keeper = benchmark.Kept(poisons=True)
    with benchmark.mode(kept=keeper):
        benchmark.run_benchmark(lambda: torch.empty(1000), device="cpu")
    (result,) = keeper.results
    assert isinstance(result, torch.Tensor)
    assert bool(result.isnan().all())
    assert not torch.are_deterministic_algorithms_enabled()


RETURNS = (
    "    median =",
    "    x = torch.randn(100)\n    run_benchmark({RESULT}, device='cpu')\n    median =",
)


def with_results(run: Run, ours: str) -> Report:
    code = f"(lambda: {ours}) if provider == 'kjit' else lambda: 2 * x"
    return run(
        ("import triton", "import torch, triton\nfrom kjit.benchmark import run_benchmark"),
        (RETURNS[0], RETURNS[1].replace("{RESULT}", code)),
    )


def test_what_matches_is_a_note_and_all_get_the_same_random_numbers(run: Run) -> None:
    report = with_results(run, "x + x")
    (grid,) = grids(report)
    assert "results" not in grid.header
    assert "All results match PyTorch's." in grid.notes
    assert [each["match"] for each in to_json(report)["measurements"]] == [True, None, True, None]


@pytest.mark.parametrize(("ours", "told"), [("2.2 * x", "differ by 0.1"), ("torch.empty(100)", "differ")])
def test_a_mismatch_is_reported_beside_its_time(run: Run, ours: str, told: str) -> None:
    report = with_results(run, ours)
    (grid,) = grids(report)
    column = grid.header.index("results")
    assert [row[column] for row in grid.rows] == [told, "", told, ""]
    assert any("a wrong kernel's time says little" in note for note in grid.notes)
    assert to_json(report)["measurements"][0]["match"] is False
