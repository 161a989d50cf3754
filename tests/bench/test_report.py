from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.bench.report import (
    describe,
    describe_failures,
    grids,
    number,
    to_json,
    to_text,
    write_csv,
)
from kjit.bench.sweep import Failure, Report

Run = Callable[..., Report]


def test_a_table_has_a_row_a_measurement(run: Run) -> None:
    (grid,) = grids(run())
    assert grid.title == "scale (device=cpu, dtype=float32)"
    assert grid.header == ("n", "provider", "time (us)", "GB/s", "share", "vs PyTorch")
    assert grid.rows[0] == ("1,000", "mine", "2", "50", "50% of copy", "2.00x")
    assert len(grid.rows) == 4


def test_more_than_the_memory_can_do_is_explained(run: Run) -> None:
    (grid,) = grids(run(("100 * n", "1000 * n")))
    assert grid.rows[0][4] == "500% of copy"
    assert "stayed in the cache" in grid.notes[0]


def test_a_busy_machine_is_mentioned(run: Run) -> None:
    (grid,) = grids(run(("median * 0.98", "median * (0.6 if n == 2000 else 0.98)")))
    (note,) = grid.notes
    assert note.startswith("In 2 of 4 the median is far above the fastest sample: something else may be running here")


def test_the_report_begins_with_the_hardware_and_ends_with_what_failed(run: Run) -> None:
    shown = describe(run(("    median =", "    assert n < 2000, '[bold]x[/]'\n    median =")))
    assert "no published peak known; a copy reaches 100 GB/s" in shown.splitlines()[0]
    assert "failed: AssertionError: [bold]x[/] (line 14), 2 times:" in shown
    assert shown.endswith("\n  bench_scale.py: scale (device=cpu, dtype=float32, n=2000, torch)")


def test_markdown_is_a_table_that_github_shows(run: Run) -> None:
    tables = grids(run(('["mine"', '["m|ne"')))
    assert to_text(tables, markdown=True).splitlines()[:5] == [
        "### scale (device=cpu, dtype=float32)",
        "",
        "| n     | provider | time (us) | GB/s |       share | vs PyTorch |",
        "| ----- | -------- | --------: | ---: | ----------: | ---------: |",
        r"| 1,000 | m\|ne    |         2 |   50 | 50% of copy |      2.00x |",
    ]
    assert to_text(tables).splitlines()[3] == "  1,000  m|ne              2    50  50% of copy       2.00x"


def test_json_has_every_number(run: Run) -> None:
    document = json.loads(json.dumps(to_json(run())))
    first = document["measurements"][0]
    assert first["args"] == {"device": "cpu", "dtype": "float32", "n": 1000}
    assert (first["provider"], first["median_us"], first["min_us"], first["max_us"]) == ("kjit", 2.0, 1.96, 2.2)
    assert (first["bytes"], first["gbps"], first["share"], first["share_of"]) == (100_000, 50.0, 0.5, "copy bandwidth")
    assert document["hardware"][0]["copy_gbps"] == 100.0


def test_what_fails_for_one_reason_is_said_once_with_the_first_of_its_places() -> None:
    alone = Failure("bench_add.py: add (n=8, kjit)", "AssertionError: no")
    alike = [Failure(f"bench_scale.py: scale (n={n}, kjit)", "there is no GPU.") for n in range(6)]
    first, second = describe_failures([*alike[:3], alone, *alike[3:]])
    assert first.splitlines() == [
        "there is no GPU, 6 times:",
        "  bench_scale.py: scale (n=0, kjit)",
        "  bench_scale.py: scale (n=1, kjit)",
        "  bench_scale.py: scale (n=2, kjit)",
        "  bench_scale.py: scale (n=3, kjit)",
        "  and 2 more",
    ]
    assert second == "bench_add.py: add (n=8, kjit): AssertionError: no"


def test_csv_has_a_column_an_argument(run: Run, tmp_path: Path) -> None:
    write_csv(run(), tmp_path / "report.csv")
    with (tmp_path / "report.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 4
    assert (rows[0]["benchmark"], rows[0]["n"], rows[0]["device"], rows[0]["median_us"]) == (
        "scale",
        "1000",
        "cpu",
        "2.0",
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1,234")]
)
def test_a_number_has_the_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text
