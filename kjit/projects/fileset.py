"""Sets of files, collected in memory and written to disk all or none.

Every file is first written next to its path under a temporary name (a full disk or a missing permission fails here,
before anything has changed), and then renamed, which takes no space. The trade-off: a process killed between two
renames leaves the first files and not the rest, as several renames are not atomic.
"""

from __future__ import annotations

import difflib
import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kjit.errors import KjitError, UsageError


def with_line_ends_of(text: str, new: str) -> str:
    """`new` with the line ends of most lines of `text`."""
    return new.replace("\n", "\r\n") if 2 * text.count("\r\n") > text.count("\n") else new


@dataclass(frozen=True)
class File:
    """A file to be written. `edits`: it is the changed text of an existing file, and may replace it."""

    path: Path
    text: str
    edits: bool = False


@dataclass
class FileSet:
    """Files and folders to be created together under `root`, and files to be removed with it."""

    root: Path
    files: list[File] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)

    def add(self, path: Path, text: str, *, edits: bool = False) -> None:
        """Add a file. The texts of Python files must compile.

        Raises:
            ValueError: it is outside of the root, added twice, or not valid Python: an internal error.
        """
        self._check_inside(path)
        if any(file.path == path for file in self.files):
            raise ValueError(f"{path} is written twice")
        if path.suffix == ".py":
            compile(text, str(path), "exec", dont_inherit=True)
        self.files.append(File(path, text, edits))

    def add_folder(self, path: Path) -> None:
        """Add a folder, which may stay empty."""
        self._check_inside(path)
        self.folders.append(path)

    def _check_inside(self, path: Path) -> None:
        if path != Path(os.path.normpath(path)) or not path.is_relative_to(self.root):
            raise ValueError(f"{path} is not a path inside of {self.root}")

    def existing(self) -> list[Path]:
        """The files that would be overwritten."""
        return [file.path for file in self.files if not file.edits and os.path.lexists(file.path)]

    def tree(self) -> str:
        """The files as a tree, for people; existing ones are marked."""
        lines = [f"{self.root.name or self.root}/"]
        shown: set[Path] = set()
        for file in sorted(self.files, key=lambda file: file.path):
            relative = file.path.relative_to(self.root)
            for parent in reversed(relative.parents[:-1]):
                if parent not in shown:
                    shown.add(parent)
                    lines.append("    " * len(parent.parts) + parent.name + "/")
            mark = "" if not os.path.lexists(file.path) else "  (changed)" if file.edits else "  (exists)"
            lines.append("    " * len(relative.parts) + relative.name + mark)
        return "\n".join(lines)

    def diff(self, origins: Mapping[Path, Path] | None = None) -> str:
        """The changes of `write`, as a unified diff.

        Args:
            origins: the old paths of renamed files.
        """
        parts: list[str] = []
        for file in self.files:
            origin = (origins or {}).get(file.path, file.path)
            before = origin.read_bytes().decode("utf-8", "replace") if origin.is_file() else None
            parts += difflib.unified_diff(
                [] if before is None else before.splitlines(keepends=True),
                file.text.splitlines(keepends=True),
                "/dev/null" if before is None else f"a/{origin.relative_to(self.root).as_posix()}",
                f"b/{file.path.relative_to(self.root).as_posix()}",
            )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in parts)

    def write(self, *, force: bool = False) -> None:
        """Write all files, or none.

        Raises:
            UsageError: one exists and `force` is not set.
            KjitError: the system refused (permissions, a full disk, a file where a folder is needed).
        """
        existing = self.existing()
        if existing and not force:
            names = ", ".join(str(path.relative_to(self.root)) for path in existing)
            raise UsageError(
                f"{names} {'exists' if len(existing) == 1 else 'exist'} already; nothing was written.",
                hint="--force overwrites; --dry-run shows what would change",
            )
        staged: dict[Path, Path] = {}
        made: list[Path] = []
        path = self.root
        try:
            for path in (*self.folders, *(file.path.parent for file in self.files)):
                made += [folder for folder in (path, *path.parents) if not folder.exists()]
                path.mkdir(parents=True, exist_ok=True)
            for number, file in enumerate(self.files):
                # A link is replaced, but what it leads to is edited.
                path = Path(os.path.realpath(file.path)) if file.edits else file.path
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                # A short name: the longest allowed name plus a suffix would be too long.
                staged[path] = path.parent / f".kjit-{os.getpid()}-{number}.tmp"
                staged[path].write_text(file.text, encoding="utf-8", newline="\n")
                if path.exists():
                    shutil.copymode(path, staged[path])
            for path, temporary in staged.items():
                os.replace(temporary, path)
            for path in self.removed:
                path.unlink()
        except BaseException as error:
            for temporary in staged.values():
                temporary.unlink(missing_ok=True)
            for folder in sorted(set(made), reverse=True):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
            if isinstance(error, OSError):
                shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
                raise KjitError(f"'{shown}' cannot be written: {error.strerror}.") from error
            raise
