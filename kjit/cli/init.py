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

    project, files = scaffold_project(folder)
    if editor is not None and (kept := add_editor(files, editor)) is not None:
        console.note(f"{text.path(kept)} exists and is kept; delete it, and `kjit init --editor {editor}` writes it.")
    files.write()
    for file in files.files:
        console.say(f"{text.path(file.path)}{' (added what was missing)' if file.edits else ''}")
    if not files.files:
        console.say(f"{text.path(project.root / 'pyproject.toml')} is complete; nothing to do.")
    where = text.path(project.root)
    console.say(f"Next: {'' if where == '.' else f'cd {where} && '}kjit new scale")
