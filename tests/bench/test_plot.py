from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.bench.plot import write_plots
from kjit.bench.sweep import Report

Run = Callable[..., Report]


@pytest.mark.parametrize(
    ("changes", "pictures"),
    [
        ([("def bytes_moved", "def _")], ["scale.png"]),
        ([], ["scale.png", "scale-bandwidth.png"]),
    ],
)
def test_a_sweep_has_as_many_pictures_as_there_are_numbers_for(
    run: Run, tmp_path: Path, changes: list[tuple[str, str]], pictures: list[str]
) -> None:
    pytest.importorskip("matplotlib")
    paths = write_plots(run(*changes), tmp_path / "plots")
    assert [path.name for path in paths] == pictures
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_sizes_that_are_not_numbers_are_put_side_by_side(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = run(
        ("[1000, 2000]", "['small', 'large']"),
        ("n / 1000", "len(n)"),
        ("100 * n", "100"),
        ('"scale"', '"a/b c"'),
    )
    assert [path.name for path in write_plots(report, tmp_path)] == ["a_b_c.png", "a_b_c-bandwidth.png"]
