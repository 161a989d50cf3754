"""The size limit of the cache: least recently used artifacts are removed.

After an artifact was added, the artifacts are counted, and the least recently used ones removed until the size is
somewhat below `KJIT_CACHE_MAX_SIZE`. Counting ten thousand takes as long as some compiles, so it is done once in ten
seconds at most.

Artifacts used within the last hour stay, even above the limit: other programs may be about to load them, and a build
larger than the limit would remove its own first artifacts. Uses are recorded as the time of the record, at most every
half hour.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING

from kjit import env
from kjit.engine.cache.artifact import RECORD, Artifact
from kjit.errors import CacheError

if TYPE_CHECKING:
    from kjit.engine.cache.contents import Entry
    from kjit.engine.cache.store import Store

COUNTED = "counted"
"""An empty file in the folder of the layout: its time is that of the last count."""

_PAUSE_S = 10.0
_SPARED_S = 3600.0
_AFTERWARDS = 0.9

_log = logging.getLogger("kjit")


def make_room(store: Store, added: Artifact) -> None:
    """Remove artifacts of `store` other than `added` if the limit is exceeded."""
    limit = env.cache_max_size()
    if limit is None:
        return
    counted = store.layout / COUNTED
    try:
        if counted.exists() and 0 <= time.time() - counted.stat().st_mtime < _PAUSE_S:
            return
        counted.touch()
        entries = sorted(store.entries(), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries)
        if total > limit:
            _remove_oldest(store, entries, total, limit, added.path)
    except OSError as error:
        # The artifact itself was added, and a later addition tries again.
        _log.debug("the cache %s is not kept under %s: %s", store.root, env.CACHE_MAX_SIZE, error)


def _remove_oldest(store: Store, entries: list[Entry], total: int, limit: int, keep: str) -> None:
    removed = freed = 0
    youngest = time.time() - _SPARED_S
    for entry in entries:
        if total - freed <= limit * _AFTERWARDS or entry.used > youngest:
            break
        if entry.path != keep and not _was_used_since(entry):
            with contextlib.suppress(CacheError):  # no permission: the next one
                freed += store.remove(entry)
                removed += 1
    if removed:
        _log.info("removed the %d least recently used artifacts (%s) from the cache %s, because %s is %s",
                  removed, _mib(freed), store.root, env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip
    if total - freed > limit:
        _log.info("the cache %s has %s, and %s is %s: the rest was used within the last hour, and stays",
                  store.root, _mib(total - freed), env.CACHE_MAX_SIZE, _mib(limit))  # fmt: skip


def _was_used_since(entry: Entry) -> bool:
    """Whether an artifact was used after it was listed."""
    try:
        return os.lstat(f"{entry.path}/{RECORD}").st_mtime != entry.used
    except FileNotFoundError:
        return False


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
