"""Where does a build work, and what becomes of what a killed one left behind?

    <staging>/<id>/         a build in progress
    <staging>/<id>.lock     held by whoever works there; it says on which machine

A folder whose lock is free belongs to nobody any more and is removed by the next build. What has another name was not
made here and stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from kjit.build.folders import NO_SPACE, disk_full, scan
from kjit.build.locks import is_current, open_lock, release, try_lock
from kjit.errors import CacheError

_ID = re.compile(r"[0-9a-f]{16}")
_OLDEST_BUILD_S = 24 * 3600.0
_ATTEMPTS = 10

_log = logging.getLogger("kjit")


@contextlib.contextmanager
def staging_folder(staging: Path) -> Iterator[Path]:
    """A fresh folder in `staging` for one build, removed afterwards.

    Raises:
        CacheError: it cannot be made, most often because the disk is full.
    """
    folder, handle = _make(staging)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}.lock")
        release(handle)


def is_taken_away(folder: Path, error: Exception) -> bool:
    """Whether `error` came in a staging folder because the folder was removed under the build."""
    if isinstance(error, FileNotFoundError) and str(error.filename).startswith(str(folder)):
        return True
    return not (folder.is_dir() and os.path.exists(f"{folder}.lock"))


def spare_name(staging: Path) -> Path:
    """A name in `staging` that nothing has yet.

    Random and not the process id: the cache may be a shared mount, where two machines hold the same id.
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
        # A lock that was just here is not made again: its build has ended by itself.
        create = 0 if lock.name in names else os.O_CREAT
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o600)
        except OSError:
            continue
        try:
            if try_lock(handle) and is_current(handle, lock) and _is_local(handle):
                shutil.rmtree(staging / name, ignore_errors=True)
                lock.unlink(missing_ok=True)
                swept += 1
        except OSError as error:
            _log.debug("%s is not swept: %s", lock, error)
        finally:
            os.close(handle)
    return swept


def _make(staging: Path) -> tuple[Path, int]:
    try:
        for _ in range(_ATTEMPTS):
            folder = spare_name(staging)
            lock = Path(f"{folder}.lock")
            handle = open_lock(lock)
            try:
                # A sweep may have come between the two calls, and have taken the lock for a dead one.
                if try_lock(handle) is not False and is_current(handle, lock):
                    os.pwrite(handle, os.uname().nodename.encode(), 0)
                    folder.mkdir(mode=0o700)
                    return folder, handle
            except FileNotFoundError:
                pass  # the cache was removed between the two calls
            except OSError:
                lock.unlink(missing_ok=True)
                os.close(handle)
                raise
            lock.unlink(missing_ok=True)
            os.close(handle)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(staging.parent.parent) from None
        raise CacheError(f"No folder to build in can be made in '{staging}': {error.strerror}.") from None
    raise CacheError(f"No folder to build in can be made in '{staging}': it is being removed all the time.")


def _is_local(handle: int) -> bool:
    """Whether a staging lock is of this machine, whose locks tell the truth, or too old to be of a live build."""
    host = os.pread(handle, 200, 0).decode(errors="replace")
    return host == os.uname().nodename or time.time() - os.fstat(handle).st_mtime > _OLDEST_BUILD_S
