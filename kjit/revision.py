"""A project at a git revision: its files in a temporary folder, and the declarations of its wrappers.

`git archive` writes the files, so that the working tree, the index and the list of worktrees are not changed.
Declarations are read in another process, as Python has only one module of a name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kjit import git
from kjit.errors import KjitError, UsageError
from kjit.project import PYTHON_C, Project, read_project
from kjit.spec import Spec

_DECLARED = (
    f"{PYTHON_C}\n"
    "import json, pathlib\n"
    "from kjit.planning import wrappers\n"
    "from kjit.project import read_project\n"
    "pyproject, ops, result, fields = (json.loads(each) for each in sys.argv[1:])\n"
    "found = wrappers.collect(read_project(pathlib.Path(pyproject)), ops)\n"
    "specs = [[op, [{f: getattr(s, f) for f in fields} for s in specs]]"
    " for op, specs in found.modules]\n"
    "errors = [[op, error.message] for op, error in found.failures]\n"
    "pathlib.Path(result).write_text(json.dumps([specs, errors]))\n"
)


@dataclass(frozen=True)
class Revision:
    """A revision whose files exist during the `with`.

    Args:
        name: the requested name; commit: its short hash.
        project: the project in it.
    """

    name: str
    commit: str
    project: Project

    def bring(self, folders: Sequence[Path], project: Project) -> None:
        """Replace the files in `folders` by the current ones of `project`."""
        for folder in folders:
            target = self.project.root / folder.relative_to(project.root)
            if folder.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))


@contextmanager
def checked_out(project: Project, name: str, otherwise: str) -> Iterator[Revision]:
    """The project at the revision `name`.

    Args:
        otherwise: the alternative, for the hint of an error.

    Raises:
        UsageError: the project is not under git, there is no such revision, or it does not contain the project.
    """
    top = _line(project.root, "rev-parse", "--show-toplevel")
    if top is None:
        raise UsageError(f"{project.root} is not under git, so it has no revision '{name}'.", hint=otherwise)
    commit = _line(project.root, "rev-parse", "--verify", "--quiet", "--short", f"{name}^{{commit}}")
    if commit is None:
        raise UsageError(f"there is no revision '{name}'.", hint=f"`git log --oneline` lists revisions; {otherwise}")
    inside = project.root.resolve().relative_to(Path(top).resolve())
    # The real path, which compilers use for their files.
    with tempfile.TemporaryDirectory(prefix="kjit-revision-") as temporary:
        folder = Path(temporary).resolve() / "tree"
        archive = Path(temporary) / "tree.tar"
        done = subprocess.run(
            ["git", "-C", top, "archive", "--format=tar", f"--output={archive}", commit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KjitError(f"git archive failed: {done.stderr.strip()}")
        with tarfile.open(archive) as tar:
            # Files of this repository; the filter keeps them inside the folder.
            tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        pyproject = folder / inside / "pyproject.toml"
        if not pyproject.is_file():
            raise UsageError(f"in the revision '{name}' there is no {pyproject.relative_to(folder)}.")
        yield Revision(name, commit, read_project(pyproject))


def environment_of(project: Project) -> dict[str, str]:
    """The environment of a process for `project`; for kjit's own project it imports the kjit of the revision."""
    environment = dict(os.environ)
    if (project.import_root / "kjit" / "__init__.py").is_file():
        path = os.pathsep.join(filter(None, [str(project.import_root), environment.get("PYTHONPATH", "")]))
        environment["PYTHONPATH"] = path
    return environment


def declared_specs(project: Project, ops: Sequence[str]) -> dict[str, list[Spec]]:
    """The declarations of the wrappers of `ops`, by op, read in a separate process.

    Raises:
        KjitError: those of an op cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="kjit-declared-") as folder:
        result = Path(folder) / "specs.json"
        given = (str(project.root / "pyproject.toml"), list(ops), str(result), list(Spec._fields))
        done = subprocess.run(
            [sys.executable, "-c", _DECLARED, *map(json.dumps, given)],
            cwd=project.root,
            env=environment_of(project),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()
            reason = last[-1] if last else f"status {done.returncode}"
            raise KjitError(f"the declarations of {', '.join(ops)} at that revision cannot be read: {reason}")
        modules, errors = json.loads(result.read_text())
    if errors:
        raise KjitError(f"the declaration of {errors[0][0]} at that revision cannot be read: {errors[0][1]}")
    specs: dict[str, list[Spec]] = {}
    for op, found in modules:
        specs.setdefault(op, []).extend(map(Spec.of_fields, found))
    return specs


def _line(folder: Path, *arguments: str) -> str | None:
    output = git.ask(folder, *arguments)
    return None if output is None else output.strip()
