from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.bench.plot import require_matplotlib, write_plots
from kjit.bench.sweep import Report
from kjit.errors import KjitError

Run = Callable[..., Report]


def test_without_matplotlib_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(KjitError, match="plots need matplotlib") as error:
        require_matplotlib()
    assert error.value.hint == "pip install 'kjit[bench]'"


def test_every_sweep_is_a_picture(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = write_plots(run(), tmp_path / "plots")
    assert path.name == "scale.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_sweeps_of_one_name_get_a_number(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = run(("    triton.testing.Benchmark(", "    [triton.testing.Benchmark("), ("    )\n)", "    )] * 2\n)"))
    assert [path.name for path in write_plots(report, tmp_path)] == ["scale.png", "scale-2.png"]


def test_sizes_that_are_not_numbers_are_put_side_by_side(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = run(
        ("[1000, 2000]", "['small', 'large']"),
        ("n / 1000", "len(n)"),
        ("100 * n", "100"),
        ('"scale"', '"a/b c"'),
    )
    assert [path.name for path in write_plots(report, tmp_path)] == ["a_b_c.png"]
