"""The contents of a cache folder: listing, verifying and removing artifacts, and the other files kept there.

    <cache>/v2/<target>/<op>/<key1>/<key2>/{<op>.so, record.jsonl}
    <cache>/v2/locks/<key1>.lock         held while that key is built (locks.py)
    <cache>/v2/staging/                  builds in progress (staging.py)
    <cache>/v2/toolchains/               compilers that were found (toolchains.py)
    <cache>/v2/counted                   when they were counted, if their size is limited (limit.py)

Only this module and store.py depend on this layout (support.py and memo.py each keep files of their own in it).
`v2` is `kjit.runtime.LAYOUT`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kjit.engine.cache import locks, staging
from kjit.engine.cache.artifact import DAMAGED, RECORD, Artifact, damage, read_artifact
from kjit.engine.cache.folders import own_users, refuse_unsafe, scan, subfolders, weakness
from kjit.errors import CacheError
from kjit.runtime import LAYOUT, SOURCE_TEXTS
from kjit.runtime.manifest import TOOLCHAINS

LOCKS = "locks"
STAGING = "staging"
_SUPPORT = "support"
_NO_TARGETS = (LOCKS, STAGING, _SUPPORT, TOOLCHAINS)
_KEY = re.compile(r"[0-9a-f]{32}")
_RECORD_FILE = re.compile(rf"{re.escape(RECORD)}(?:\.[0-9a-f]+)?")


class Entry(NamedTuple):
    """A folder of the cache that is, or was, an artifact. (There may be ten thousand, and a named tuple is created
    three times as fast as a dataclass.)

    Attributes:
        key: `<target>/<op>/<key1>/<key2>`.
        size: bytes on disk.
        library_size: bytes of the library; -1 if it is missing.
        used: the last use, within half an hour; seconds since 1970.
    """

    path: str
    target: str
    op: str
    key: str
    size: int
    library_size: int
    used: float

    @property
    def folder(self) -> Path:
        return Path(self.path)


class Contents:
    """The contents of one cache folder.

    Args:
        root: the cache folder.
        is_shared: the folder is filled by somebody else. It is only read, and only its owner is trusted.
    """

    def __init__(self, root: Path, *, is_shared: bool = False) -> None:
        self.root = root
        self.is_shared = is_shared
        self.layout = root / LAYOUT
        """The folder with everything compiled."""

    def entries(self) -> Iterator[Entry]:
        """All artifacts, including damaged ones, in the order of their folders. Links are not followed."""
        for target in subfolders(self.layout):
            if target.name in _NO_TARGETS:
                continue
            name = _target_in(target.name)
            for op in subfolders(target):
                for key1 in subfolders(op):
                    for key2 in subfolders(key1) if _KEY.fullmatch(key1.name) else ():
                        if _KEY.fullmatch(key2.name):
                            key = f"{target.name}/{op.name}/{key1.name}/{key2.name}"
                            yield _entry(key2.path, name, op.name, key)

    def read(self, entry: Entry, *, thorough: bool = True) -> Artifact | str:
        """The artifact of an entry, or what is wrong with it.

        Args:
            thorough: check its library; else only compare its size.
        """
        owners = self._owners()
        artifact = read_artifact(entry.path, owners)
        if isinstance(artifact, str):
            return artifact
        if thorough:
            return damage(artifact, owners, thorough=True) or artifact
        if entry.library_size != artifact.size:
            return f"{DAMAGED} its library {'is missing' if entry.library_size < 0 else 'has another size'}"
        return artifact

    def refuse_unsafe(self, *inner: str) -> None:
        """Reject this cache if others can change it, or one of these folders in it: by replacing a folder after the
        checks of an artifact, they could change the code that is loaded.

        Raises:
            CacheError: they can.
        """
        owners = self._owners() if self.is_shared else None
        for each in (str(self.root), str(self.layout), *inner):
            refuse_unsafe(each, follow=each == str(self.root), root=self.root, owners=owners)

    def unsafe_parts(self) -> Iterator[tuple[str, str]]:
        """The paths in this cache that others can change, and how; for artifacts see `read`."""
        artifacts = {entry.path for entry in self.entries()}
        owners = self._owners()
        waiting = [str(self.root), str(self.layout)]
        while waiting:
            path = waiting.pop()
            try:
                status = os.stat(path) if path == str(self.root) else os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            if (weak := weakness(status, owners)) is not None:
                yield path, weak
            if path != str(self.root):
                waiting += [entry.path for entry in scan(path) if entry.path not in artifacts]

    def remove(self, entry: Entry) -> int:
        """Delete an artifact, and its folders if they become empty. Files that are not kjit's stay.

        Returns:
            The bytes that were freed.

        Raises:
            CacheError: it may not be deleted.
        """
        freed = 0
        try:
            # The record first: without it, the rest is not an artifact.
            for file in sorted(scan(entry.path), key=lambda file: file.name != RECORD):
                if file.name == f"{entry.op}.so" or _RECORD_FILE.fullmatch(file.name):
                    size = file.stat(follow_symlinks=False).st_size
                    os.unlink(file.path)
                    freed += size
        except FileNotFoundError:
            pass  # somebody else removes it
        except OSError as error:
            raise not_removed(entry.folder, error) from None
        self._remove_lock(entry.folder.parent.name)
        with contextlib.suppress(OSError):  # not empty, or gone already
            for folder in (entry.folder, *entry.folder.parents[:3]):
                folder.rmdir()
        return freed

    def sweep(self) -> int:
        """Remove the staging folders of processes that have ended, and return how many there were."""
        return staging.sweep(self.layout / STAGING)

    @property
    def texts(self) -> Path:
        """The folder of sources that were given as text (`load_inline`), in folders named by their contents."""
        return self.root / SOURCE_TEXTS

    def texts_size(self) -> int:
        """The bytes of all texts."""
        return _size_of(self.texts)

    def support_size(self) -> int:
        """The bytes of the code shared by all modules (support.py)."""
        return _size_of(self.layout / _SUPPORT)

    def remove_rest(self) -> int:
        """Delete what is no artifact and is written again when it is needed: the code shared by all modules, the files
        about toolchains, and texts. Return the bytes that were freed.

        Raises:
            CacheError: it may not be deleted.
        """
        freed = self.support_size() + self.texts_size()
        for folder in (self.layout / _SUPPORT, self.layout / TOOLCHAINS, self.texts):
            if not folder.is_symlink():
                try:
                    shutil.rmtree(folder)
                except FileNotFoundError:
                    pass  # or somebody else removes it
                except OSError as error:
                    raise not_removed(folder, error) from None
        return freed

    def _owners(self) -> tuple[int, ...]:
        """The users who may have filled this cache."""
        if not self.is_shared:
            return own_users()
        try:
            return (*own_users(), os.stat(self.root).st_uid)
        except OSError:
            return own_users()  # it does not exist

    def _remove_lock(self, key1: str) -> None:
        path = self.layout / LOCKS / f"{key1}.lock"
        if path.parent.is_symlink():
            return
        with contextlib.suppress(OSError):
            handle = locks.open_file(path, 0)
            try:
                if locks.try_lock(handle):
                    path.unlink()
            finally:
                locks.release(handle)


def not_removed(path: Path, error: OSError) -> CacheError:
    return CacheError(f"'{path}' cannot be removed: {error.strerror}.", hint="check its permissions and its owner")


def _size_of(folder: Path) -> int:
    """The bytes of the files in the folders of a folder."""
    files = (file for each in subfolders(folder) for file in scan(each))
    return sum(file.stat(follow_symlinks=False).st_size for file in files)


def _target_in(name: str) -> str:
    """A target in the form of `str(Target)`, from the name of its folder."""
    return re.sub("^(cpu|cuda)-", r"\1:", name)


def _entry(path: str, target: str, op: str, key: str) -> Entry:
    size, library_size, used = 0, -1, 0.0
    try:
        status = os.lstat(f"{path}/{op}.so")
        size = library_size = status.st_size
        used = status.st_mtime
    except OSError:
        pass
    try:
        status = os.lstat(f"{path}/{RECORD}")
        size += status.st_size
        used = status.st_mtime
    except OSError:
        pass
    return Entry(path, target, op, key, size, library_size, used)
