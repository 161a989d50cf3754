"""The size limit of the cache: least recently used artifacts are removed.

After an artifact was added, the least recently used ones are removed until the size is somewhat below
`KJIT_CACHE_MAX_SIZE`. Counting ten thousand artifacts each time would take longer than many compiles, so there is a
running sum: a file to which each process that adds an artifact appends a line with its bytes, without a lock. If the
sum exceeds the limit, the artifacts are counted, some are removed, and a new file with the remaining size replaces the
old one. Only one process counts at a time; lines that others append meanwhile are carried over into the new file, and a
process that wrote to a replaced file writes again. So the sum includes all additions, unless a process is killed
between the two writes. Other deletions are not recorded: a sum that is too high costs one count, which corrects it.

Artifacts used within the last hour stay, even above the limit: other programs may be about to load them, and a build
larger than the limit would remove its own first artifacts. Uses are recorded as the time of the record, at most every
half hour.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kjit import env
from kjit.engine.cache import locks
from kjit.engine.cache.artifact import RECORD, Artifact
from kjit.errors import CacheError

if TYPE_CHECKING:
    from kjit.engine.cache.contents import Entry
    from kjit.engine.cache.store import Store

COUNT = "size"
"""The file of the running sum, in the folder of the layout."""

_SPARED_S = 3600.0
_AFTERWARDS = 0.9
_ATTEMPTS = 20  # against an endless loop on file systems that give a file a new inode number each time it is opened

_log = logging.getLogger("kjit")


def make_room(store: Store, count: Path, added: Artifact) -> None:
    """Count `added`, and remove other artifacts of `store` if the limit is exceeded.

    Args:
        count: the file of the running sum.
    """
    limit = env.cache_max_size()
    try:
        total = _add(count, added.size + os.path.getsize(added.folder / RECORD))
        if limit is not None and (total is None or total > limit):
            for _ in range(_ATTEMPTS):
                if not _reduce(store, count, limit, added.folder):
                    break
    except (OSError, CacheError) as error:
        # The artifact itself was added, and the next addition tries again.
        _log.debug("the cache %s is not kept under %s: %s", store.root, env.CACHE_MAX_SIZE, error)


def note_added(count: Path, size: int) -> None:
    """Count something small that is not an artifact; the next artifact makes room for it."""
    with contextlib.suppress(OSError):
        _add(count, size)


def _add(count: Path, size: int) -> int | None:
    """Add to the running sum and return it; None if there is no reliable one."""
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(count, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with open(handle, "r+b", buffering=0) as file:
            file.write(b"%d\n" % size)
            if locks.is_current(handle, count):
                file.seek(0)
                return _sum(file.read())
    return None


def _sum(lines: bytes) -> int | None:
    try:
        return sum(map(int, lines.split()))
    except ValueError:
        return None  # garbage: count again


def _reduce(store: Store, count: Path, limit: int, keep: Path) -> bool:
    """Count the artifacts, and remove some if they take more than `limit`.

    Returns: whether to count again: other processes have exceeded the limit meanwhile, and left the count to this one.
    """
    handle = locks.open_file(count, os.O_CREAT | os.O_NOFOLLOW)
    try:
        if locks.try_lock(handle) is False:
            return False  # another process is counting, and will see what was added
        if not locks.is_current(handle, count):
            return True
        known = os.fstat(handle).st_size
        entries = sorted(store.entries(), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries) + store.texts_size()
        if total > limit:
            total = _remove_oldest(store, entries, total, limit, keep)
        beside = count.with_name(f"{count.name}.{secrets.token_hex(4)}")
        try:
            beside.write_text(f"{total}\n", "ascii")
            os.replace(beside, count)
        finally:
            beside.unlink(missing_ok=True)
        lines = os.pread(handle, os.fstat(handle).st_size - known, known)
        if not lines:
            return False
        meanwhile = _sum(lines)
        if meanwhile is None:
            return True
        with_others = _add(count, meanwhile)
        # If the removal left too much, nothing more can be removed.
        return total <= limit and (with_others is None or with_others > limit)
    finally:
        locks.release(handle)


def _remove_oldest(store: Store, entries: list[Entry], total: int, limit: int, keep: Path) -> int:
    """Remove from the front of `entries`, and texts of the same age; return what remains of `total` bytes."""
    removed = freed = 0
    youngest = time.time() - _SPARED_S
    texts = [text for text in store.texts_by_age() if text[0] <= youngest]
    for entry in [*entries, None]:
        while texts and (entry is None or texts[0][0] <= entry.used) and total - freed > limit * _AFTERWARDS:
            _, size, folder = texts.pop(0)
            store.forget_text(folder)
            freed += size
        if entry is None or total - freed <= limit * _AFTERWARDS or entry.used > youngest:
            break
        if entry.folder != keep and not _was_used_since(entry):
            with contextlib.suppress(CacheError):  # no permission: the next one
                freed += store.remove(entry)
                removed += 1
    if removed:
        _log.info("removed the %d least recently used artifacts (%s) from the cache %s, because %s is %s",
                  removed, _mib(freed), store.root, env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip
    if total - freed > limit:
        _warn_of_too_much(str(store.root), limit, _mib(total - freed))
    return total - freed


def _was_used_since(entry: Entry) -> bool:
    """Whether an artifact was used after it was listed."""
    try:
        return os.lstat(f"{entry.path}/{RECORD}").st_mtime != entry.used
    except FileNotFoundError:
        return False


@lru_cache(maxsize=8)
def _warn_of_too_much(root: str, limit: int, size: str) -> None:
    """Log once for each size: builds larger than the limit would log it after every compile."""
    _log.info("the cache %s has %s, and %s is %s: nothing is removed, because all of it was used within the last hour",
              root, size, env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
