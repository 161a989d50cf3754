"""New projects: their files and settings.

A new folder gets `pyproject.toml`, the package, folders for tests and benchmarks, `.gitignore` and `.clang-format`. An
existing Python project keeps what it has. Only two tables may be added at the end of its `pyproject.toml` if they are
missing: `[tool.kjit]`, and pytest's `pythonpath`, without which `pytest` (though not `kjit test`) would not find a
package that is not installed. The result is parsed before it is written. `kjit new` never changes an existing
`pyproject.toml`; the defaults work without it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kjit.errors import UsageError
from kjit.project import DEFAULT_PACKAGE, Project, load_toml, parse_toml, plan_project, read_project
from kjit.projects.fileset import FileSet, with_line_ends_of
from kjit.projects.templates import fill

_PYTEST_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg")
"""Files that may configure pytest: of these and `pyproject.toml`, pytest reads one."""


def scaffold_project(folder: Path | str = ".") -> tuple[Project, FileSet]:
    """The project that `folder` becomes, and the files that make it one; existing files are not overwritten.

    Raises:
        UsageError: its `pyproject.toml` cannot be read, or cannot be added to.
    """
    root = Path(os.path.abspath(folder))
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file.", hint="give a folder, which need not exist: kjit init my-kernels")
    files = FileSet(root)
    pyproject = root / "pyproject.toml"
    if not pyproject.exists():
        project = plan_project(root)
        add_project(files, project)
        return project, files
    project = read_project(pyproject)
    if added := _missing_tables(project):
        files.add(pyproject, _with_tables(pyproject, added), edits=True)
    _add_folders(files, project)
    return project, files


def add_editor(files: FileSet, editor: str) -> Path | None:
    """Add an editor's tasks, which build and test the project.

    Args:
        editor: `vscode`.

    Returns: The file of the tasks if it exists; then it is kept.

    Raises:
        UsageError: the editor is unknown.
    """
    if editor != "vscode":
        raise UsageError(
            f"there are no files for the editor '{editor}'.",
            hint="--editor vscode; `kjit clangd` serves any editor with a language server",
        )
    path = files.root / ".vscode" / "tasks.json"
    if os.path.lexists(path):
        return path
    files.add(path, fill("project/vscode-tasks.json.j2", {}))
    return None


def add_project(files: FileSet, project: Project) -> None:
    """Add the files of a new project, except existing ones."""
    # Source of the name's form: the packaging specification "Names and normalization".
    name = re.sub(r"[^A-Za-z0-9]+", "-", project.root.name).strip("-").lower() or DEFAULT_PACKAGE
    for file in ("pyproject.toml", ".gitignore", ".clang-format"):
        if not os.path.lexists(project.root / file):
            context = {"name": name, "package": project.package}
            files.add(project.root / file, fill(f"project/{file.removeprefix('.')}.j2", context))
    _add_folders(files, project)


def _add_folders(files: FileSet, project: Project) -> None:
    add_package(files, project)
    files.add_folder(project.tests_dir)
    files.add_folder(project.benchmarks_dir)


def add_package(files: FileSet, project: Project) -> None:
    """Make the folder of the wrappers a package, if it is not one yet."""
    folder = project.package_dir
    while folder != project.import_root:
        init = folder / "__init__.py"
        # A folder above that exists without one is a namespace package on purpose.
        if not os.path.lexists(init) and (folder == project.package_dir or not folder.exists()):
            files.add(init, "")
        folder = folder.parent


def _missing_tables(project: Project) -> list[str]:
    tool = load_toml(project.root / "pyproject.toml").get("tool", {})
    missing = []
    if "kjit" not in tool:
        missing.append(f'[tool.kjit]\npackage = "{project.package}"\n')
    if "pytest" not in tool and not any((project.root / name).is_file() for name in _PYTEST_FILES):
        pythonpath = os.path.relpath(project.import_root, project.root)
        missing.append(f'[tool.pytest.ini_options]\npythonpath = ["{pythonpath}"]\n')
    return missing


def _with_tables(pyproject: Path, tables: list[str]) -> str:
    before = pyproject.read_bytes().decode("utf-8")  # with its line ends
    added = "\n".join(tables)
    if before:
        added = f"\n{added}" if before.endswith("\n") else f"\n\n{added}"
    text = before + with_line_ends_of(before, added)
    try:
        parse_toml(text, pyproject)
    except UsageError:
        raise UsageError(
            f"{pyproject} is written in a way that nothing can be added to its end.",
            hint="add this by hand:\n" + "\n".join(tables).rstrip(),
        ) from None
    return text
