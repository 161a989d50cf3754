"""The last result of an op's benchmark, kept in the project for `kjit list`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.project import Project, keep_folder

if TYPE_CHECKING:
    from kjit.bench.sweep import Measurement, Report


@dataclass(frozen=True)
class LastBench:
    """The last point of the first table of an op's benchmark, for its first provider.

    Args:
        when: ISO 8601, in UTC.
        device: the product name of its device.
        point: the table and the arguments: `scale: size=4096 dtype=float32, kjit`.
        us: median, in microseconds.
        share: the share of the hardware's limit, between 0 and 1; share_of: bandwidth or compute.
    """

    when: str
    device: str
    point: str
    us: float
    share: float | None
    share_of: str | None


def keep(report: Report, project: Project) -> None:
    """Save the last results in a report, by op.

    Raises:
        OSError: the project's folder cannot be written to.
    """
    from kjit.bench.collect import PREFIX

    for file in dict.fromkeys(sweep.file for sweep, _ in report.sweeps):
        measured = next(measurements for sweep, measurements in report.sweeps if sweep.file == file)
        first = [each for each in measured if each.provider == measured[0].provider and each.time is not None]
        if first:
            path = _path(keep_folder(project, "bench"), Path(file).stem.removeprefix(PREFIX))
            path.write_text(json.dumps(asdict(_of(first[-1])), indent=2) + "\n", "utf-8")


def find_last(project: Project, op: str) -> LastBench | None:
    """The saved result of an op; None if its benchmark never ran, or if another version of kjit saved it."""
    try:
        return LastBench(**json.loads(_path(project.root / ".kjit" / "bench", op).read_text("utf-8")))
    except (FileNotFoundError, RecursionError, ValueError, TypeError):
        return None


def _path(folder: Path, op: str) -> Path:
    return folder / f"{op}.json"


def _of(measured: Measurement) -> LastBench:
    from kjit.bench.sweep import describe

    assert measured.time is not None
    share = measured.share
    return LastBench(
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device="" if measured.hardware is None else measured.hardware.name,
        point=f"{measured.sweep.name}: {describe(measured.args, measured.provider)}",
        us=measured.time.median,
        share=None if share is None else share.value,
        share_of=None if share is None else share.of,
    )
