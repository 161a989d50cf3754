"""New projects: their files and settings.

A new folder gets `pyproject.toml`, the package, folders for tests and benchmarks, `.gitignore` and `.clang-format`. An
existing Python project keeps what it has. Only two tables may be added at the end of its `pyproject.toml` if they are
missing: `[tool.kjit]`, and pytest's `pythonpath`, without which `pytest` (though not `kjit test`) would not find a
package that is not installed. The result is parsed before it is written, and must contain everything that was there.
`kjit new` never changes an existing `pyproject.toml`; the defaults work without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kjit.errors import UsageError
from kjit.project import (
    DEFAULT_BENCHMARKS,
    DEFAULT_PACKAGE,
    DEFAULT_TESTS,
    Project,
    load_toml,
    parse_toml,
    read_project,
)
from kjit.projects.fileset import FileSet, with_line_ends_of
from kjit.projects.templates import fill


@dataclass(frozen=True)
class NewProject:
    """A project that is ready to be written.

    Args:
        project: its folders.
        files: the files to be written; none if all exist already.
        changed: whether `pyproject.toml` exists and gets tables added.
        notes: remarks for the user, one sentence each.
    """

    project: Project
    files: FileSet
    changed: bool
    notes: tuple[str, ...]


def scaffold_project(folder: Path | str = ".") -> NewProject:
    """Plan the files that make `folder` a project; existing files are not overwritten.

    Raises:
        UsageError: its `pyproject.toml` cannot be read, or cannot be added to.
    """
    root = Path(os.path.abspath(folder))
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file.", hint="give a folder, which need not exist: kjit init my-kernels")
    pyproject = root / "pyproject.toml"
    if not pyproject.exists():
        project = plan_project(root)
        files = FileSet(root)
        add_project(files, project)
        return NewProject(project, files, False, ())
    project = read_project(pyproject)
    files = FileSet(root)
    added = _missing_tables(project)
    if added:
        files.add(pyproject, _with_tables(pyproject, added), edits=True)
    add_package(files, project)
    files.add_folder(project.tests_dir)
    files.add_folder(project.benchmarks_dir)
    return NewProject(project, files, bool(added), ())


def add_editor(new: NewProject, editor: str) -> NewProject:
    """The project with an editor's tasks to build and test it; an existing file is kept, with a note.

    Args:
        editor: `vscode`.

    Raises:
        UsageError: the editor is unknown.
    """
    if editor != "vscode":
        raise UsageError(
            f"there are no files for the editor '{editor}'.",
            hint="--editor vscode; `kjit clangd` serves any editor with a language server",
        )
    path = new.project.root / ".vscode" / "tasks.json"
    if os.path.lexists(path):
        note = f"{new.project.display(path)} exists and is kept; delete it, and `kjit init --editor vscode` writes it"
        return replace(new, notes=(*new.notes, note))
    new.files.add(path, fill("project/vscode-tasks.json.j2", {"tasks": _TASKS, "groups": _GROUPS}))
    return new


_TASKS = (
    ("build", "compile what has changed"),
    ("test", "test all ops"),
    ("watch", "build and test each saved op"),
    ("sanitize", "look for mistakes in kernels"),
    ("bench", "measure all ops"),
)
_GROUPS = {"build": "build", "test": "test"}


def plan_project(root: Path) -> Project:
    """The project that `root` becomes when it has no `pyproject.toml`."""
    package_dir = root / DEFAULT_PACKAGE
    return Project(
        root=root,
        import_root=root,
        package=DEFAULT_PACKAGE,
        package_dir=package_dir,
        csrc_dir=package_dir / "csrc",
        include_dir=package_dir / "include",
        tests_dir=root / DEFAULT_TESTS,
        benchmarks_dir=root / DEFAULT_BENCHMARKS,
    )


def add_project(files: FileSet, project: Project) -> None:
    """Add the files of a new project, except existing ones."""
    context = {"name": _distribution_name(project.root), "package": project.package}
    for name, template in (
        ("pyproject.toml", "project/pyproject.toml.j2"),
        (".gitignore", "project/gitignore.j2"),
        (".clang-format", "project/clang-format.j2"),
    ):
        if not os.path.lexists(project.root / name):
            files.add(project.root / name, fill(template, context))
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


def _missing_tables(project: Project) -> dict[str, str]:
    tool = load_toml(project.root / "pyproject.toml").get("tool", {})
    missing = {}
    if "kjit" not in tool:
        missing["kjit"] = f'[tool.kjit]\npackage = "{project.package}"\n'
    if "pytest" not in tool and not _has_pytest_settings(project.root):
        pythonpath = os.path.relpath(project.import_root, project.root)
        missing["pytest"] = f'[tool.pytest.ini_options]\npythonpath = ["{pythonpath}"]\n'
    return missing


def _has_pytest_settings(root: Path) -> bool:
    """Whether another file than `pyproject.toml` configures pytest: one of the two would be ignored."""
    if any((root / name).is_file() for name in ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")):
        return True
    texts = [path.read_text("utf-8", "replace") for path in (root / "tox.ini", root / "setup.cfg") if path.is_file()]
    return any(re.search(r"^\[(?:tool:)?pytest\]", text, re.MULTILINE) for text in texts)


def _with_tables(pyproject: Path, tables: Mapping[str, str]) -> str:
    before = pyproject.read_bytes().decode("utf-8")  # with its line ends
    added = "\n".join(tables.values())
    if before:
        added = f"\n{added}" if before.endswith("\n") else f"\n\n{added}"
    text = before + with_line_ends_of(before, added)
    try:
        old, new = parse_toml(before, pyproject), parse_toml(text, pyproject)
        kept = all(new.get(key) == value for key, value in old.items() if key != "tool")
        kept = kept and all(new["tool"].get(key) == value for key, value in old.get("tool", {}).items())
    except UsageError:
        kept = False
    if not kept:
        raise UsageError(
            f"{pyproject} is written in a way that nothing can be added to its end.",
            hint="add this by hand:\n" + "\n".join(tables.values()).rstrip(),
        )
    return text


def _distribution_name(root: Path) -> str:
    """A name for `[project]`, from the folder's; source: the packaging specification "Names and normalization"."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", root.name).strip("-").lower()
    return name or DEFAULT_PACKAGE
