"""`kjit mv`: rename an op."""

from __future__ import annotations

from typing import Annotated

import typer

from kjit.cli import complete, console, text
from kjit.cli.confirm import confirm
from kjit.cli.rm import tell_rest


def mv(
    op: Annotated[str, typer.Argument(help="The op.", autocompletion=complete.ops)],
    new: Annotated[str, typer.Argument(help="Its new name.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show the files and a diff.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Change what git could not bring back, too.")] = False,
) -> None:
    """Rename an op: its files, what they define under its name, and what imports it.

    Other mentions of it are listed and not changed. All files change, or none. Where the project is under git,
    files of the op that differ from what is committed are refused.
    """
    from kjit.project import find_project
    from kjit.projects.moving import plan_rename

    project = find_project()
    move = plan_rename(project, op, new, force=force)
    if dry_run:
        origins = {after: before for before, after in move.moved if after is not None}
        console.say(move.files.diff(origins).rstrip("\n"))
        console.say()
    for before, after in move.moved:
        assert after is not None  # it is renamed
        console.say(f"{text.path(before)} -> {text.path(after)}")
    for file in move.files.files:
        if file.edits:
            console.say(f"{text.path(file.path)} (its imports)")
    tell_rest(move, project, op)
    if dry_run:
        console.note("Nothing was changed (--dry-run).")
        return
    if not confirm("Rename", nothing="Nothing was changed.", yes=yes):
        return
    move.files.write()
    console.note(f"Then: kjit test {new}")
