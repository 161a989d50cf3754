"""Locks between processes, which a process that dies does not leave behind.

With `flock` on files that stay open: the kernel releases such a lock however its holder ends. The file itself stays,
and whoever removes it first takes its lock; so a lock counts only while its file still is the one at the path.

A child that is forked (a worker of a DataLoader) has its parent's open files, and for the kernel a lock is held until
nobody has the file open any more. So a child closes them before it does anything else: also those that still wait for
their lock, which the parent may get later.
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
# Held while one is opened or closed, and during a fork: what is open and what is known to be open are the same then.
# Reentrant for the sake of a signal handler that forks.
_changing = threading.RLock()


def _close_in_child() -> None:
    for handle in _open_files:
        with contextlib.suppress(OSError):
            os.close(handle)  # and not unlocked: it is the parent's lock
    _open_files.clear()
    _changing.release()


os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_close_in_child)


@contextlib.contextmanager
def hold(path: Path, doing: str, cancel: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock at `path`. A wait of more than a second is logged, with who holds it.

    Args:
        doing: what is done under the lock, for that line: "builds scale".

    Raises:
        CancelledError: `cancel` was set while this waited.
    """
    handle = _acquire(path, doing, cancel or threading.Event())
    try:
        yield
    finally:
        release(handle)


@contextlib.contextmanager
def hold_folder(folder: Path, doing: str) -> Iterator[None]:
    """Hold a lock on a folder itself, beside which nothing is made. As `hold`.

    Raises:
        OSError: it cannot be opened.
    """
    with _changing:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _open_files.add(handle)
    try:
        _wait(handle, doing, threading.Event())
        yield
    finally:
        release(handle)


def open_lock(path: Path) -> int:
    """The file of a lock, made where it is missing. It is closed by `release`."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            return open_file(path, os.O_CREAT)
        with contextlib.suppress(FileNotFoundError):
            make_private(path.parent)  # the cache was removed while in use
    return open_file(path, os.O_CREAT)


def open_file(path: Path, flags: int) -> int:
    """A file to lock, opened with `flags` besides those that all have. It is closed by `release`.

    Raises:
        OSError: it cannot be opened.
    """
    with _changing:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        _open_files.add(handle)
    return handle


def _acquire(path: Path, doing: str, cancel: threading.Event) -> int:
    while True:
        handle = open_lock(path)
        try:
            _wait(handle, doing, cancel)
            if is_current(handle, path):
                with contextlib.suppress(OSError):  # a full disk: then those who wait are not told for whom
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                return handle
        except BaseException:
            release(handle)
            raise
        release(handle)  # somebody removed the file between `open` and the lock


def _wait(handle: int, doing: str, cancel: threading.Event) -> None:
    # Asking again and again, because a thread that the kernel has put to sleep cannot be called back.
    patience: float | None = time.monotonic() + _PATIENCE_S
    while try_lock(handle) is False:
        if cancel.wait(_POLL_S):
            raise CancelledError
        if patience is not None and time.monotonic() > patience:
            holder = ""
            with contextlib.suppress(IsADirectoryError):  # which nobody can sign
                holder = os.pread(handle, 200, 0).decode(errors="replace")
            holder = holder or "another process"
            _log.warning("waiting for %s, which %s", holder, doing)
            patience = None


def try_lock(handle: int) -> bool | None:
    """Whether the lock was free and is ours now; None where the file system has no locks."""
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
    """Give a lock back and close its file."""
    with _changing:
        if handle not in _open_files:
            return  # this is a child, which was forked meanwhile and has closed it
        _open_files.remove(handle)
        with contextlib.suppress(OSError):  # a file system without locks
            # Explicitly: a program that this process starts has the file open until it runs.
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
