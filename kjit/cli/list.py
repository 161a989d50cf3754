"""`kjit list`: the ops of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kjit.cli import console, text
from kjit.cli.options import Json, Ops

if TYPE_CHECKING:
    from kjit.overview import OpSummary
    from kjit.project import Project


def list_ops(
    ops: Ops = None,
    json: Json = False,
) -> None:
    """List the ops of the project, their builds and benchmarks.

    Shows pattern, devices, dtypes, variants, the state of each, and the last benchmark. The state is shown for the CPU,
    the GPUs of this machine, and other targets with artifacts in the cache. The last benchmark is the last point of the
    first table of `kjit bench`, for its first provider.

    Exit status 1: a wrapper cannot be imported.
    """
    from kjit.overview import summarize
    from kjit.project import find_project

    project = find_project()
    found = summarize(project, ops or ())
    if json:
        console.print_json([_to_json(each, project) for each in found])
    elif not found:
        console.note(f"There is no op in {project.display(project.package_dir)}; `kjit new OP` makes one.")
    else:
        _print(found)
    broken = [each for each in found if each.error is not None]
    for each in broken:
        console.print_error(f"{each.op}: {each.error}", None)
    if broken:
        raise typer.Exit(1)


def _print(found: list[OpSummary]) -> None:
    from kjit.dtypes import DTYPES

    benched = any(each.last_bench is not None for each in found)
    rows = []
    for each in found:
        states = [
            f"{target.target} {target.state}"
            + (f" ({target.built} of {target.variants})" if 0 < target.built < target.variants else "")
            for target in each.targets
        ]
        rows.append(
            (
                each.op,
                each.pattern or "-",
                ",".join(each.devices) or "-",
                ",".join(DTYPES[name].short if name in DTYPES else name for name in each.dtypes) or "-",
                str(each.variants),
                "broken" if each.error is not None else ", ".join(states) or "-",
                _last(each.last_bench) if benched else "",
            )
        )
    header = ("op", "pattern", "devices", "dtypes", "variants", "state", "last bench" if benched else "")
    text.print_rows(header, rows, ("variants",))


def _last(bench: dict[str, Any] | None) -> str:
    if bench is None:
        return "-"
    from kjit.bench.report import number

    share = "" if bench["share"] is None else f", {bench['share']:.0%} of {bench['share_of']}"
    return f"{number(bench['us'])} us{share} ({bench['when'][:10]})"


def _to_json(each: OpSummary, project: Project) -> dict[str, object]:
    return {
        "op": each.op,
        "pattern": each.pattern,
        "signature": each.signature,
        "devices": list(each.devices),
        "dtypes": list(each.dtypes),
        "variants": each.variants,
        "targets": [one._asdict() for one in each.targets],
        "files": [project.display(path) for path in each.files],
        "last_bench": each.last_bench,
        "error": each.error,
    }
