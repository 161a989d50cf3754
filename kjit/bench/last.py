"""The last result of an op's benchmark, kept in the project for `kjit list`."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kjit.project import Project, keep_folder

if TYPE_CHECKING:
    from kjit.bench.sweep import Report


def keep(report: Report, project: Project) -> None:
    """Save the last results in a report, by op: the last point of the first table, for its first provider.

    Raises:
        OSError: the project's folder cannot be written to.
    """
    from kjit.bench.sweep import describe

    saved: set[str] = set()
    for sweep, measurements in report.sweeps:
        first = [m for m in measurements if m.provider == str(sweep.providers[0]) and m.time is not None]
        if sweep.file in saved or not first or (time := first[-1].time) is None:
            continue
        saved.add(sweep.file)
        last = first[-1]
        value, of = last.share or (None, None)
        document = {
            "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "device": "" if last.hardware is None else last.hardware.name,
            "point": f"{sweep.name}: {describe(last.args, last.provider)}",
            "us": time.median,
            "share": value,
            "share_of": of,
        }
        path = keep_folder(project, "bench") / f"{Path(sweep.file).stem.removeprefix('bench_')}.json"
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def find_last(project: Project, op: str) -> dict[str, Any] | None:
    """The saved result of an op; None if its benchmark never ran."""
    try:
        found = json.loads((project.root / ".kjit" / "bench" / f"{op}.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and "us" in found else None
