"""`kjit init`: make a folder a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kjit.cli import console, text


def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder; it need not exist yet.")] = Path("."),
    editor: Annotated[
        str | None,
        typer.Option("--editor", metavar="NAME", help="vscode: also tasks that build and test, with problem matchers."),
    ] = None,
) -> None:
    """Make a folder a project: settings, and a package for ops.

    Writes pyproject.toml, the package, folders for tests and benchmarks, .gitignore and .clang-format. Existing files
    are kept; a pyproject.toml only gets the tables that it lacks.
    """
    from kjit.projects.init import add_editor, scaffold_project

    new = scaffold_project(folder)
    if editor is not None:
        new = add_editor(new, editor)
    new.files.write()
    for note in new.notes:
        console.note(f"note: {note}")
    for file in new.files.files:
        added = " (added what was missing)" if file.edits else ""
        console.say(f"{text.path(file.path)}{added}")
    if not new.files.files:
        console.say(f"{text.path(new.project.root / 'pyproject.toml')} is complete; nothing to do.")
    where = text.path(new.project.root)
    start = "" if where == "." else f"cd {where} && "
    console.say(f"Next: {start}kjit new scale")
