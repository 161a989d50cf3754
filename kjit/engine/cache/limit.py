"""The size limit of the cache, and what is removed first.

What was not used for longest goes, after something was added, until there is some air below `KJIT_CACHE_MAX_SIZE`. To
count ten thousand artifacts each time would take longer than many a compile, so there is a running sum: a file to which
everyone who adds an artifact adds one line, the bytes of it. That needs no lock. Where the sum is above the limit, the
artifacts are counted, some go, and a new file with what is left takes the place of the old. One process counts at a
time, and the others go on: what they add meanwhile is carried over into the new file, and whoever has written to a file
that was replaced by then writes once more. So nothing that is added is missing in the sum, unless a process is killed
just between the two. Whoever deletes otherwise writes nothing there: a sum that is too high costs one count and is
right again.

What was used within the last hour stays, even above the limit: other programs may be about to load it, and a build
whose parts do not fit together would remove its own beginning. A use is noted by the date of the record, each half hour
at most.
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
    from kjit.engine.cache.store import Entry, Store

COUNT = "size"
"""The file of the running sum, in the folder of the layout."""

_SPARED_S = 3600.0
_AFTERWARDS = 0.9
_ATTEMPTS = 20  # file systems that give a file a new number each time it is opened should not end in a loop

_log = logging.getLogger("kjit")


def make_room(store: Store, count: Path, added: Artifact) -> None:
    """Note that `added` is in `store` now, and remove others where that is too much. `added` itself stays.

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
        # It is about space only: what was built is there, and the next one that is added tries again.
        _log.debug("the cache %s is not kept under %s: %s", store.root, env.CACHE_MAX_SIZE, error)


def note_added(count: Path, size: int) -> None:
    """Note that something small was added that is no artifact; what is added next makes room for it, too."""
    with contextlib.suppress(OSError):
        _add(count, size)


def _add(count: Path, size: int) -> int | None:
    """Add to the running sum and return it; None where there is none that can be relied on."""
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
        return None  # garbage: it is counted anew


def _reduce(store: Store, count: Path, limit: int, keep: Path) -> bool:
    """Count the artifacts, and remove some if they take more than `limit`.

    Returns:
        whether it has to be done once more: others have added too much meanwhile, and left it to this process.
    """
    handle = locks.open_file(count, os.O_CREAT | os.O_NOFOLLOW)
    try:
        if locks.try_lock(handle) is False:
            return False  # another process is at it, and will see what was added
        if not locks.is_current(handle, count):
            return True
        known = os.fstat(handle).st_size
        entries = sorted(store.entries(), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries) + store.recalls_size() + store.texts_size()
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
        # Where it was too much before that, nothing more can go.
        return total <= limit and (with_others is None or with_others > limit)
    finally:
        locks.release(handle)


def _remove_oldest(store: Store, entries: list[Entry], total: int, limit: int, keep: Path) -> int:
    """Remove from the front of `entries`, and texts that are as old, and return what is left of `total` bytes."""
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
            with contextlib.suppress(CacheError):  # not ours to delete: the next one
                freed += store.remove(entry)
                removed += 1
    if removed:
        freed += store.sweep_recalls()
        _log.info("removed %d artifacts (%s) from the cache %s, that were not used for longest, as %s is %s",
                  removed, _mib(freed), store.root, env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip
    if total - freed > limit:
        _warn_of_too_much(str(store.root), limit, _mib(total - freed))
    return total - freed


def _was_used_since(entry: Entry) -> bool:
    """Whether an artifact was used after it was listed."""
    try:
        return os.lstat(f"{entry.path}/record.json").st_mtime != entry.used
    except FileNotFoundError:
        return False


@lru_cache(maxsize=8)
def _warn_of_too_much(root: str, limit: int, size: str) -> None:
    """Once for each size: builds that are larger than the limit would say it after every compile."""
    _log.info("the cache %s has %s, and %s is %s: all of it was used within the last hour, and stays",
              root, size, env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
