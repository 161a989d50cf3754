"""How do processes wait for each other, with no lock left behind by one that died?

With `flock` on files that stay open: the kernel releases such a lock however its holder ends. The file itself stays,
and whoever removes it first takes its lock; so a lock counts only while its file still is the one at the path.
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

from kjit.build.folders import make_private

_PATIENCE_S = 1.0
_POLL_S = 0.02
_ATTEMPTS = 10

_log = logging.getLogger("kjit")


@contextlib.contextmanager
def hold(path: Path, label: str, cancel: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock at `path`. A wait of more than a second is logged, with who holds it to build `label`.

    Raises:
        CancelledError: `cancel` was set while this waited.
    """
    handle = _acquire(path, label, cancel or threading.Event())
    try:
        yield
    finally:
        release(handle)


def open_lock(path: Path) -> int:
    """The file of a lock, made where it is missing."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(FileNotFoundError):
            make_private(path.parent)  # the cache was removed while in use
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _acquire(path: Path, label: str, cancel: threading.Event) -> int:
    while True:
        handle = open_lock(path)
        try:
            _wait(handle, label, cancel)
            if is_current(handle, path):
                with contextlib.suppress(OSError):  # a full disk: then those who wait are not told for whom
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # somebody removed the file between `open` and the lock


def _wait(handle: int, label: str, cancel: threading.Event) -> None:
    # Asking again and again, because a thread that the kernel has put to sleep cannot be called back.
    patience: float | None = time.monotonic() + _PATIENCE_S
    while try_lock(handle) is False:
        if cancel.wait(_POLL_S):
            raise CancelledError
        if patience is not None and time.monotonic() > patience:
            holder = os.pread(handle, 200, 0).decode(errors="replace") or "another process"
            _log.warning("waiting for %s, which builds %s", holder, label)
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
    with contextlib.suppress(OSError):  # a file system without locks
        # Explicitly, because a child that was forked meanwhile keeps the file open.
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)
