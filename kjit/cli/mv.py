"""`kjit mv`: rename an op."""

from __future__ import annotations

from typing import Annotated

import typer

from kjit.cli import console, text
from kjit.cli.options import Op, Yes
from kjit.cli.rm import print_mentions


def mv(
    op: Op,
    new: Annotated[str, typer.Argument(help="Its new name.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show the files and a diff.")] = False,
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Also change files that git cannot restore.")] = False,
) -> None:
    """Rename an op: its files, definitions and imports.

    Renames the definitions in its files that have its name, and imports of them in all files. Other mentions of it are
    listed and not changed. All files change, or none. In a git repository, files of the op with uncommitted changes are
    an error without --force.
    """
    from kjit.project import find_project
    from kjit.projects.moving import plan_rename

    project = find_project()
    move = plan_rename(project, op, new, force=force)
    if dry_run:
        console.say(move.files.diff({after: before for before, after in move.moved.items()}).rstrip("\n"))
        console.say()
    for before, after in move.moved.items():
        console.say(f"{text.path(before)} -> {text.path(after)}")
    for file in move.files.files:
        if file.edits:
            console.say(f"{text.path(file.path)} (its imports)")
    print_mentions(move, project, op)
    if dry_run:
        console.note("Nothing was changed (--dry-run).")
        return
    if not console.confirm("Rename", nothing="Nothing was changed.", yes=yes):
        return
    move.files.write()
    console.note(f"Then: kjit test {new}")
