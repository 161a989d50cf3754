"""`kjit clangd`: set up an editor for kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kjit.cli import console
from kjit.errors import UsageError


def clangd(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of the project; by default this one.", show_default=False)
    ] = Path("."),
    compile_commands: Annotated[
        bool, typer.Option("--compile-commands", help="Write compile_commands.json too, for other tools.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Configure clangd for the kernels of this project.

    Writes .clangd.
    """
    from kjit.editor import editor_flags, write_editor_files
    from kjit.project import find_project

    if not directory.is_dir():
        raise UsageError(
            f"there is no folder '{directory}'.", hint="name the project's folder, or run this in it without a name"
        )
    project = find_project(directory)
    flags = editor_flags(project)
    files = write_editor_files(project, flags, commands=compile_commands, force=force)
    for note in flags.notes:
        console.note(note)
    for file in files:
        name = project.display(file.path)
        if file.state == "kept":
            console.note(f"{name} exists and is kept (--force replaces it). It would have been:")
            console.say(file.text.rstrip())
        else:
            console.say(f"{name} {'is up to date' if file.state == 'unchanged' else 'written'}")
