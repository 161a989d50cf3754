"""Folders for builds, and cleaning up after aborted builds.

    <staging>/<id>/         a build in progress
    <staging>/<id>.lock     held by its process; contains the name of the machine

A folder whose lock is free, or without a lock (store.py moves damaged artifacts here), is no longer in use and is
removed by the next build. Entries with other names are not kjit's and stay.

There is one such folder in each cache, so that an artifact is renamed on the same disk, and one in the system's folder
for temporary files, `/tmp/kjit-<user id>`, for other files of compilers and for locks outside of caches.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kjit.engine.cache.folders import NO_SPACE, disk_full, make_private, scan, weakness
from kjit.engine.cache.locks import hold, is_current, open_file, open_lock, release, try_lock
from kjit.errors import CacheError

_ID = re.compile(r"[0-9a-f]{16}")
_OLDEST_BUILD_S = 24 * 3600.0
_ATTEMPTS = 10

_log = logging.getLogger("kjit")


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
    home, folder, handle = _make_in_home(root or temporary_root())

    def remove() -> None:
        _remove(folder, handle)
        _leave(home)

    return folder, remove


@contextlib.contextmanager
def temporary_lock(name: str, doing: str) -> Iterator[None]:
    """Hold a named lock shared by all processes of this user on this machine.

    Args:
        doing: as in `locks.hold`.

    Raises:
        CacheError: no folder for temporary files is writable.
    """
    home = _temporary_home(temporary_root())
    path = home / f"{name}.lock"
    with hold(path, doing):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # waiting processes notice, and create it again
    _leave(home)


def is_taken_away(folder: Path, error: Exception) -> bool:
    """Whether `error` happened because the staging folder was removed during the build."""
    if isinstance(error, FileNotFoundError) and str(error.filename).startswith(str(folder)):
        return True
    return not (folder.is_dir() and os.path.exists(f"{folder}.lock"))


def spare_name(staging: Path) -> Path:
    """An unused name in `staging`.

    Random rather than a process id: the cache may be on a shared mount, where two machines have the same id.
    """
    return staging / secrets.token_hex(8)


def sweep(staging: Path) -> int:
    """Remove the staging folders of processes that have ended, and return how many there were."""
    swept = 0
    names = {entry.name for entry in scan(staging)}
    for name in {name.removesuffix(".lock") for name in names}:
        if _ID.fullmatch(name) is None:
            continue
        lock = staging / f"{name}.lock"
        # A removed lock is not created again: its build has ended. A folder without a lock is unused (`_make` creates
        # the lock first, `_remove` removes it last), unless the lock appeared while the names were read: then it exists
        # now.
        is_nobodys = lock.name not in names
        try:
            handle = open_file(lock, os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if is_nobodys else 0))
        except OSError:
            continue
        try:
            if is_nobodys:
                with contextlib.suppress(OSError):  # a full disk: only another sweep that takes the lock reads it
                    _sign(handle)
            if try_lock(handle) and is_current(handle, lock) and (is_nobodys or _is_local(handle)):
                shutil.rmtree(staging / name, ignore_errors=True)
                # Its compilers may still be ending and have added a file: the next build finds the folder by its lock.
                if not os.path.lexists(staging / name):
                    lock.unlink(missing_ok=True)
                    swept += 1
        except OSError as error:
            _log.debug("%s is not swept: %s", lock, error)
        finally:
            release(handle)
    return swept


def _make(staging: Path) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        folder = spare_name(staging)
        lock = Path(f"{folder}.lock")
        handle = open_lock(lock)
        try:
            # A sweep between the two calls may have removed the lock as unused.
            if try_lock(handle) is not False and is_current(handle, lock):
                _sign(handle)
                folder.mkdir(mode=0o700)
                return folder, handle
        except FileNotFoundError:
            pass  # the cache was removed between the two calls
        except OSError:
            lock.unlink(missing_ok=True)
            release(handle)
            raise
        lock.unlink(missing_ok=True)
        release(handle)
    raise CacheError(f"No folder for a build can be made in '{staging}': another process keeps removing it.")


def _remove(folder: Path, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(f"{folder}.lock")
    release(handle)


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


def _make_in_home(root: str) -> tuple[Path, Path, int]:
    """A new folder in the user's own folder in `root`: the latter, the new one, and the open file of its lock."""
    for _ in range(_ATTEMPTS):
        home = _temporary_home(root)
        sweep(home)
        folder, handle = _make(home)
        # The user's folder may have been removed, and its name taken by another user; from now on it cannot be removed.
        if _is_private(home.lstat()):
            return home, folder, handle
        _remove(folder, handle)
    raise CacheError(f"No folder for temporary files can be made in '{root}': another user keeps taking its name.")


def _temporary_home(root: str) -> Path:
    """The user's own folder among temporary files.

    The name may be taken: in containers that share `/tmp`, each user is root. Then it has a random suffix, which later
    processes find.
    """
    name = f"kjit-{os.geteuid()}"
    home = Path(root, name)
    for _ in range(_ATTEMPTS):
        try:
            make_private(home)
            status = home.lstat()
        except FileExistsError:
            break
        except FileNotFoundError:
            continue  # the last process that worked in it has removed it
        if _is_private(status):
            return home
        break
    for entry in scan(root):
        if entry.name.startswith(f"{name}-"):
            with contextlib.suppress(OSError):  # gone meanwhile
                if _is_private(entry.stat(follow_symlinks=False)):
                    return Path(entry.path)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))


def _is_private(status: os.stat_result) -> bool:
    """Whether a status is that of a folder that only this user can write to."""
    return stat.S_ISDIR(status.st_mode) and weakness(status, (os.geteuid(),)) is None


def _leave(home: Path) -> None:
    """Remove the user's folder if it is empty."""
    with contextlib.suppress(OSError):  # others work in it
        home.rmdir()


def _sign(handle: int) -> None:
    """Write the name of this machine into a staging lock."""
    os.pwrite(handle, os.uname().nodename.encode(), 0)


def _is_local(handle: int) -> bool:
    """Whether a staging lock is of this machine, where locks are reliable, or too old for a running build."""
    host = os.pread(handle, 200, 0).decode(errors="replace")
    return host == os.uname().nodename or time.time() - os.fstat(handle).st_mtime > _OLDEST_BUILD_S
