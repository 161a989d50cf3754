"""Sets of files, collected in memory and written to disk all or none.

Every file is first written next to its path under a temporary name (a full disk or a missing permission fails here,
before anything has changed), and then renamed, which takes no space. After a failure everything is undone, new folders
included. The trade-off: a process killed between two renames leaves the first files and not the rest, as several
renames are not atomic.
"""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    def remove(self, path: Path) -> None:
        """Remove an existing file when the others are written."""
        self._check_inside(path)
        self.removed.append(path)

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
            UsageError: one exists and `force` is not set, or a symbolic link leads out of the root or would be changed.
            KjitError: the system refused (permissions, a full disk, a file where a folder is needed); nothing has
                changed.
        """
        existing = self.existing()
        if existing and not force:
            names = ", ".join(str(path.relative_to(self.root)) for path in existing)
            raise UsageError(
                f"{names} {'exists' if len(existing) == 1 else 'exist'} already; nothing was written.",
                hint="--force overwrites; --dry-run shows what would change",
            )
        self._refuse_links()
        undo = _Undo()
        try:
            staged: list[tuple[Path, Path]] = []
            for folder in self.folders:
                undo.make_folder(folder)
            for file in self.files:
                undo.make_folder(file.path.parent)
                if file.path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file.path))
                temporary = undo.temporary(file.path)
                with _about(file.path):
                    temporary.write_text(file.text, encoding="utf-8", newline="\n")
                    if file.path.exists():
                        shutil.copymode(file.path, temporary)
                    if os.path.lexists(file.path):
                        # A link is replaced; its target is not changed.
                        shutil.copy2(file.path, undo.backup(file.path), follow_symlinks=False)
                staged.append((temporary, file.path))
            for temporary, path in staged:
                with _about(path):
                    undo.replace(temporary, path)
            for path in self.removed:
                with _about(path):
                    undo.remove(path)
        except OSError as error:
            undo.all()
            raise self._explain(error) from error
        except BaseException:  # Ctrl-C undoes everything, too
            undo.all()
            raise
        undo.forget()

    def _refuse_links(self) -> None:
        """Reject folders outside of the root reached through symbolic links, and changes of linked files: they may
        belong to others."""
        root = os.path.realpath(self.root)
        touched = (*(file.path for file in self.files), *self.removed)
        for folder in dict.fromkeys((*self.folders, *(path.parent for path in touched))):
            where = os.path.realpath(folder)
            if where != root and not where.startswith(f"{root.rstrip('/')}/"):
                raise UsageError(
                    f"'{folder.relative_to(self.root)}' leads out of '{self.root}', to '{where}', by a symbolic link; "
                    "nothing was written.",
                    hint="put a folder in place of the link, or choose another place in [tool.kjit]",
                )
        for file in self.files:
            if file.edits and file.path.is_symlink():
                raise UsageError(
                    f"'{file.path.relative_to(self.root)}' is a symbolic link, and would be changed; "
                    "nothing was written.",
                    hint="put the file in place of the link",
                )

    def _explain(self, error: OSError) -> KjitError:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else self.root
        shown = str(path.relative_to(self.root)) if path != self.root and path.is_relative_to(self.root) else str(path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return KjitError(
                f"the disk is full: '{shown}' could not be written, and nothing else was.", hint="free some space"
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return KjitError(
                f"'{shown}' may not be written by this user; nothing was.",
                hint="check its permissions, or work in another folder",
            )
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            return KjitError(
                f"'{shown}' is a file, and a folder is needed there; nothing was written.",
                hint="move it away, or choose another place in [tool.kjit]",
            )
        if error.errno == errno.EISDIR:
            return KjitError(f"'{shown}' is a folder, and a file is to be there; nothing was written.")
        return KjitError(f"'{shown}' could not be written ({error.strerror}); nothing was.")


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Let errors name the file, not the temporary one."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


class _Undo:
    """The changes so far, and how to undo them."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex[:8]
        self.folders: list[Path] = []
        self.temporaries: list[Path] = []
        self.backups: dict[Path, Path] = {}
        self.replaced: list[Path] = []

    def make_folder(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
        above = missing[-1].parent if missing else path
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(above))
        for folder in reversed(missing):
            try:
                folder.mkdir()
            except FileExistsError:
                if not folder.is_dir():
                    raise
                continue  # created by another process meanwhile, to which it belongs
            self.folders.append(folder)

    def temporary(self, path: Path) -> Path:
        # A short name: the longest allowed name plus a suffix would be too long.
        name = path.parent / f".kjit-{self.token}-{len(self.temporaries)}.tmp"
        self.temporaries.append(name)
        return name

    def backup(self, path: Path) -> Path:
        self.backups[path] = self.temporary(path)
        return self.backups[path]

    def replace(self, temporary: Path, path: Path) -> None:
        os.replace(temporary, path)
        self.replaced.append(path)

    def remove(self, path: Path) -> None:
        os.replace(path, self.backup(path))
        self.replaced.append(path)

    def all(self) -> None:
        for path in self.replaced:
            if path in self.backups:
                os.replace(self.backups[path], path)
            else:
                path.unlink(missing_ok=True)
        self.forget()
        for folder in reversed(self.folders):
            try:
                folder.rmdir()
            except OSError:
                return  # another process has put a file there meanwhile

    def forget(self) -> None:
        for temporary in self.temporaries:
            temporary.unlink(missing_ok=True)
