"""Folders for builds, and cleaning up after killed ones.

    <cache>/v2/staging/<id>     a build in progress, on the disk of its artifact, which is renamed from there
    /tmp/kjit-<user id>-<id>    other files of compilers

Its process holds a lock on the folder itself. A folder whose lock is free is no longer in use, and the next build
removes it. The id ends with a hash of the machine's name: a lock of another machine may be invisible here, so its
folders are left alone for a day. Entries with other names are not kjit's and stay.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kjit.engine.cache.folders import NO_SPACE, disk_full, make_private, scan
from kjit.engine.cache.locks import hold, is_current, open_folder, release, try_lock
from kjit.errors import CacheError

_ID = re.compile(r"[0-9a-f]{16}([0-9a-f]{8})")
_OLDEST_BUILD_S = 24 * 3600.0
_ATTEMPTS = 10


@contextlib.contextmanager
def staging_folder(staging: Path) -> Iterator[Path]:
    """A new folder in `staging` for one build, removed afterwards.

    Raises:
        CacheError: it cannot be made, most often because the disk is full.
    """
    try:
        folder, handle = _make(staging)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(staging.parent.parent) from None
        raise CacheError(f"No folder for a build can be made in '{staging}': {error.strerror}.") from None
    try:
        yield folder
    finally:
        _remove(folder, handle)


@contextlib.contextmanager
def temporary_folder(root: str | None = None) -> Iterator[Path]:
    """A new folder for temporary files, removed afterwards. See `make_temporary_folder`."""
    folder, remove = make_temporary_folder(root)
    try:
        yield folder
    finally:
        remove()


def make_temporary_folder(root: str | None = None) -> tuple[Path, Callable[[], None]]:
    """A new folder for temporary files, and a function that removes it. Folders of processes that have ended are
    removed first.

    Args:
        root: the parent folder; by default the system's folder for temporary files.

    Raises:
        CacheError: no folder for temporary files is writable.
        OSError: it cannot be made, most often because the disk is full.
    """
    parent = Path(root or temporary_root())
    prefix = f"kjit-{os.geteuid()}-"
    sweep(parent, prefix)
    folder, handle = _make(parent, prefix)
    return folder, lambda: _remove(folder, handle)


@contextlib.contextmanager
def temporary_lock(name: str, doing: str) -> Iterator[None]:
    """Hold a named lock shared by all processes of this user on this machine.

    Args:
        doing: as in `locks.hold`.

    Raises:
        CacheError: no folder for temporary files is writable.
    """
    path = Path(temporary_root(), f"kjit-{os.geteuid()}-{name}.lock")
    with hold(path, doing):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # waiting processes notice, and create it again


def is_taken_away(folder: Path, error: Exception) -> bool:
    """Whether `error` happened because the staging folder was removed during the build."""
    return not folder.is_dir() or (isinstance(error, FileNotFoundError) and str(error.filename).startswith(str(folder)))


def spare_name(parent: Path, prefix: str = "") -> Path:
    """An unused name in `parent`, with a mark of this machine."""
    return parent / f"{prefix}{secrets.token_hex(8)}{_machine()}"


def sweep(parent: Path, prefix: str = "") -> int:
    """Remove the folders of this user's processes that have ended, and return how many there were."""
    swept = 0
    for entry in scan(parent):
        named = _ID.fullmatch(entry.name.removeprefix(prefix)) if entry.name.startswith(prefix) else None
        if named is None or not entry.is_dir(follow_symlinks=False):
            continue
        try:
            handle = open_folder(Path(entry.path))
        except OSError:
            continue
        try:
            status = os.fstat(handle)
            is_free = try_lock(handle)
            is_old = time.time() - status.st_mtime > _OLDEST_BUILD_S
            # A folder that is removed before its process has locked it is made again (`_make`).
            if (
                status.st_uid == os.geteuid()
                and is_free is not False
                and (is_old or (is_free and named[1] == _machine()))
            ):
                shutil.rmtree(entry.path, ignore_errors=True)
                swept += not os.path.lexists(entry.path)
        finally:
            release(handle)
    return swept


def _make(parent: Path, prefix: str = "") -> tuple[Path, int]:
    """A new folder, and its open file, which is locked."""
    for _ in range(_ATTEMPTS):
        folder = spare_name(parent, prefix)
        make_private(folder)
        with contextlib.suppress(FileNotFoundError):  # removed by another process between two of these calls
            handle = open_folder(folder)
            if try_lock(handle) is not False and is_current(handle, folder):
                return folder, handle
            release(handle)
    raise CacheError(f"No folder for a build can be made in '{parent}': another process keeps removing it.")


def _remove(folder: Path, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    release(handle)


def _machine() -> str:
    return f"{binascii.crc32(os.uname().nodename.encode()):08x}"


def temporary_root() -> str:
    """The folder for temporary files of this process: `TMPDIR`, else the system's.

    Raises:
        CacheError: none of these is writable.
    """
    # Not `tempfile.gettempdir`, which caches its result: the variable may change, and the folder may disappear.
    named = os.environ.get("TMPDIR", "")
    if os.path.isabs(named) and os.path.isdir(named) and os.access(named, os.W_OK | os.X_OK):
        return named
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        raise CacheError(
            "No folder for temporary files is writable: neither TMPDIR nor /tmp nor /var/tmp.",
            hint="set TMPDIR to a writable folder",
        ) from None
