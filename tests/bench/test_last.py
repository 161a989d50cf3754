"""The last time of an op's benchmark is kept in the project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kjit.bench import last
from kjit.bench.sweep import Report
from kjit.project import Project


def test_the_last_point_of_the_first_provider_is_kept(project: Project, run: Callable[..., Report]) -> None:
    assert last.find_last(project, "scale") is None
    last.keep(run(), project)
    found = last.find_last(project, "scale")
    assert found is not None
    assert (found["us"], found["share"], found["share_of"]) == (4.0, 0.5, "copy bandwidth")
    assert found["point"] == "scale: device=cpu, dtype=float32, n=2000, kjit"
    assert datetime.fromisoformat(found["when"]).tzinfo is not None
    assert last.find_last(project, "add") is None


def test_a_damaged_file_is_none(project: Project, run: Callable[..., Report]) -> None:
    last.keep(run(), project)
    file = project.root / ".kjit" / "bench" / "scale.json"
    for text in ("{", "[1]"):
        file.write_text(text)
        assert last.find_last(project, "scale") is None
