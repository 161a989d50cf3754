"""`kjit rm`: remove an op with its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kjit.cli import console, text
from kjit.cli.options import Op, Yes

if TYPE_CHECKING:
    from kjit.project import Project
    from kjit.projects.moving import Move


def rm(
    op: Op,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove files that git cannot restore.")] = False,
) -> None:
    """Remove an op: wrapper, kernels, test and benchmark.

    The files are shown first. Other mentions of the op are listed and not changed: imports in other files, bundles. In
    a git repository, files with uncommitted changes are an error without --force.
    """
    from kjit.project import find_project
    from kjit.projects.moving import is_under_git, plan_removal

    project = find_project()
    move = plan_removal(project, op, force=force)
    for path in move.moved:
        console.say(text.path(path))
    print_mentions(move, project, op)
    if dry_run:
        console.note("Nothing was removed (--dry-run).")
        return
    if not yes and not is_under_git(project.root):
        console.note("The project is not under git: these files cannot be restored.")
    if not console.confirm("Remove", nothing="Nothing was removed.", yes=yes):
        return
    move.files.write()
    console.note(f"removed {text.count(len(move.moved), 'file')}; `kjit clean-cache {op}` removes its artifacts")


def print_mentions(move: Move, project: Project, op: str) -> None:
    """Print the mentions of an op outside of its own files."""
    shown = 10
    if move.mentions:
        console.note(f"Other mentions of {op}, which stay unchanged:")
    for path, line, written in move.mentions[:shown]:
        console.note(f"  {project.display(path)}:{line}: {written}")
    if len(move.mentions) > shown:
        console.note(f"  and {len(move.mentions) - shown} more lines")
    if move.bundle is not None:
        name = project.display(move.bundle)
        console.note(f"The bundle {name} has modules of {op}: `kjit build --out {name} --only` removes them.")
