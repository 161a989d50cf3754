"""Removing and renaming ops: the files affected, and other mentions.

The files of an op are those that `kjit new` would write: the wrapper, `csrc/<op>.*`, the test, the benchmark. Sources
with other names may be shared by several ops and are kept. All changes are made, or none (`FileSet`).

If the project is under version control, files with uncommitted changes are refused: git could not restore them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit import git
from kjit.engine import bundle_writer
from kjit.errors import KjitError, UsageError
from kjit.project import Project
from kjit.projects.fileset import FileSet
from kjit.projects.op_names import check_op_name
from kjit.projects.rename import Renaming, cpp_words
from kjit.runtime.load import BUNDLE

_TEXTS = {".py", ".pyi", ".cuh", ".cu", ".cpp", ".cc", ".h", ".hpp", ".md", ".toml"}


@dataclass(frozen=True)
class Move:
    """The planned removal or renaming of an op.

    Args:
        files: the files to be removed, written and changed.
        moved: the op's files, with their new paths; the same ones where they are removed.
        mentions: lines that mention it and are not changed: file, line, text.
        bundle: the folder of the bundle, if that has modules of it.
    """

    files: FileSet
    moved: dict[Path, Path]
    mentions: list[tuple[Path, int, str]]
    bundle: Path | None


def plan_removal(project: Project, op: str, *, force: bool = False) -> Move:
    """Plan the removal of an op; nothing is changed yet.

    Raises:
        UsageError: there is no such op, or its files have changes that are not committed (unless `force`).
    """
    own = _own_files(project, op, force=force)
    return _move(project, op, FileSet(project.root, removed=own), {path: path for path in own})


def plan_rename(project: Project, op: str, new: str, *, force: bool = False) -> Move:
    """Plan the renaming of an op, its files, their definitions, and imports of it; nothing is changed yet.

    Raises:
        UsageError: there is no such op, `new` is invalid or taken, or as for `plan_removal`.
        KjitError: a file is not UTF-8 text, or not Python.
    """
    project.check_ops([op])
    check_op_name(new)
    if new == op:
        raise UsageError(f"op '{op}' has that name already.")
    if new in project.ops():
        raise UsageError(f"there is an op '{new}' already.", hint=f"`kjit rm {new}` removes it")
    own = _own_files(project, op, force=force)
    targets = {path: path.with_name(re.sub(rf"^(test_|bench_|){op}\.", rf"\g<1>{new}.", path.name)) for path in own}
    for target in targets.values():
        if target.exists():
            raise UsageError(f"'{project.display(target)}' exists already; nothing was changed.")
    texts = {path: _read(path, project) for path in own}
    words = cpp_words({path.name: text for path, text in texts.items() if path.suffix != ".py"}, op, new)
    renaming = Renaming(op, new, project.package, {path.name: to.name for path, to in targets.items()}, words)
    files = FileSet(project.root, removed=own)
    for path, target in targets.items():
        files.add(target, (renaming.in_python if path.suffix == ".py" else renaming.in_cpp)(texts[path]))
    for path in dict.fromkeys(path for folder in project.folders for path in sorted(folder.rglob("*.py"))):
        if path in targets or path.is_symlink():
            continue
        before = _read(path, project)
        is_init = path == project.package_dir / "__init__.py"
        after = renaming.in_python(before) if is_init else renaming.in_imports(before)
        if after != before:
            files.add(path, after, edits=True)
    return _move(project, op, files, targets)


def _move(project: Project, op: str, files: FileSet, moved: dict[Path, Path]) -> Move:
    changed = {file.path for file in files.files}
    mentions = [each for each in _mentions(project, op, [*moved]) if each[0] not in changed]
    bundle = project.package_dir / BUNDLE
    return Move(files, moved, mentions, bundle if op in bundle_writer.ops_in(bundle) else None)


def _own_files(project: Project, op: str, *, force: bool) -> list[Path]:
    project.check_ops([op])
    own = project.files_of(op)
    lost = [] if force else _only_here(project.root, own)
    if lost:
        names = ", ".join(project.display(path) for path in lost)
        raise UsageError(
            f"git could not restore {names} as in this folder; nothing was changed.",
            hint="commit first; --force does it nevertheless",
        )
    return own


def _only_here(root: Path, files: Sequence[Path]) -> list[Path]:
    """The files with changes that are not committed; none if the project is not under version control."""
    top = git.ask(root, "rev-parse", "--show-toplevel")
    options = ("--porcelain=v1", "-z", "--no-renames", "--ignored", "--untracked-files=all")
    status = git.ask(root, "status", *options, "--", *map(str, files))
    if top is None or status is None:
        return []
    folder = Path(top.rstrip("\n"))
    named = {folder / row[3:] for row in status.split("\0") if row}
    # For an ignored folder, git lists only the folder.
    return [path for path in files if any(each in named for each in (path.resolve(), *path.resolve().parents))]


def is_under_git(root: Path) -> bool:
    """Whether the project is in a working tree of git."""
    return git.ask(root, "rev-parse", "--is-inside-work-tree") == "true\n"


def _read(path: Path, project: Project) -> str:
    try:
        text = path.read_bytes().decode()
        if path.suffix == ".py":
            compile(text, str(path), "exec", dont_inherit=True)
    except UnicodeDecodeError as error:
        raise KjitError(f"{project.display(path)} is not UTF-8 text (byte {error.start}).") from None
    except SyntaxError as error:
        raise KjitError(f"{project.display(path)}:{error.lineno} is not Python: {error.msg}.") from None
    return text


def _mentions(project: Project, op: str, own: Sequence[Path]) -> Iterator[tuple[Path, int, str]]:
    names = "|".join(re.escape(path.name) for path in own)
    last = re.escape(project.package.rpartition(".")[2])
    pattern = re.compile(
        rf"(?<![\w.-])(?:{names})(?![\w-])|\b{last}\.{op}\b|from\s+\.{op}\s+import"
        rf"|^\s*from\s+(?:\.|[\w.]*\b{last})\s+import\b.*\b{op}\b"
    )
    inside = [path for folder in project.folders for path in sorted(folder.rglob("*"))]
    beside = [*sorted(project.root.glob("*")), *sorted((project.root / "docs").glob("**/*.md"))]
    for path in dict.fromkeys((*inside, *beside)):
        if path in own or path.suffix not in _TEXTS or not path.is_file():
            continue
        lines = path.read_text("utf-8", "replace").splitlines()
        yield from ((path, number, line.strip()) for number, line in enumerate(lines, 1) if pattern.search(line))
