"""Locks between processes, released when their process dies.

They use `flock` on open files, which the kernel releases when their holder ends in any way. The file stays, and a
process takes its lock before removing it; so a lock is valid only while its file is still the one at the path.

A forked child (a worker of a DataLoader) inherits its parent's open files, and the kernel holds a lock until all copies
are closed. So a child first closes them, including those still waiting for their lock, which the parent may get later.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

from kjit.engine.cache.folders import make_private

_PATIENCE_S = 1.0
_POLL_S = 0.02
_ATTEMPTS = 10

_log = logging.getLogger("kjit")

_open_files: set[int] = set()
# Held while a file is opened or closed, and during a fork, so that the list of open files is complete then.
# Reentrant, as a signal handler may fork.
_changing = threading.RLock()


def _close_in_child() -> None:
    for handle in _open_files:
        with contextlib.suppress(OSError):
            os.close(handle)  # not unlocked: it is the parent's lock
    _open_files.clear()
    _changing.release()


os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_close_in_child)


@contextlib.contextmanager
def hold(path: Path, doing: str, cancel: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock at `path`. A wait of more than a second is logged, with the holder.

    Args:
        doing: the work under the lock, for the log: "builds scale".

    Raises:
        CancelledError: `cancel` was set during the wait.
    """
    handle = _acquire(path, doing, cancel or threading.Event())
    try:
        yield
    finally:
        release(handle)


@contextlib.contextmanager
def hold_folder(folder: Path, doing: str) -> Iterator[None]:
    """Hold a lock on a folder itself, without a lock file. See `hold`.

    Raises:
        OSError: it cannot be opened.
    """
    handle = open_folder(folder)
    try:
        _wait(handle, doing, threading.Event())
        yield
    finally:
        release(handle)


def open_lock(path: Path) -> int:
    """The open file of a lock, created if missing; `release` closes it."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            return open_file(path, os.O_CREAT)
        with contextlib.suppress(FileNotFoundError):
            make_private(path.parent)  # the cache was removed while in use
    return open_file(path, os.O_CREAT)


def open_file(path: Path, flags: int) -> int:
    """A file to lock, opened with additional `flags`; `release` closes it. A link is not followed.

    Raises:
        OSError: it cannot be opened.
    """
    return _open(path, os.O_RDWR | flags)


def open_folder(folder: Path) -> int:
    """A folder to lock; `release` closes it.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    return _open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _open(path: Path, flags: int) -> int:
    with _changing:
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _open_files.add(handle)
    return handle


def _acquire(path: Path, doing: str, cancel: threading.Event) -> int:
    while True:
        handle = open_lock(path)
        try:
            _wait(handle, doing, cancel)
            if is_current(handle, path):
                with contextlib.suppress(OSError):  # a full disk: then waiting processes cannot name the holder
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                return handle
        except BaseException:
            release(handle)
            raise
        release(handle)  # somebody removed the file between `open` and the lock


def _wait(handle: int, doing: str, cancel: threading.Event) -> None:
    # Polled, because a blocking `flock` cannot be cancelled.
    patience: float | None = time.monotonic() + _PATIENCE_S
    while try_lock(handle) is False:
        if cancel.wait(_POLL_S):
            raise CancelledError
        if patience is not None and time.monotonic() > patience:
            holder = ""
            with contextlib.suppress(IsADirectoryError):  # which has no content
                holder = os.pread(handle, 200, 0).decode(errors="replace")
            holder = holder or "another process"
            _log.warning("waiting for %s, which %s", holder, doing)
            patience = None


def try_lock(handle: int) -> bool | None:
    """Whether the lock was free and is now held; None if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _log.debug("working without a lock: %s", error)
        return None
    return True


def is_current(handle: int, path: Path) -> bool:
    """Whether `path` still is the file that was opened."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def release(handle: int) -> None:
    """Release a lock and close its file."""
    with _changing:
        if handle not in _open_files:
            return  # in a child that was forked meanwhile and has closed it
        _open_files.remove(handle)
        with contextlib.suppress(OSError):  # a file system without locks
            # Explicitly: a program started by this process has the file open until exec.
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
