"""The size limit of the cache: least recently used artifacts are removed.

After an artifact was added, the artifacts are counted, and the least recently used ones removed until the size is
somewhat below `KJIT_CACHE_MAX_SIZE`. Counting ten thousand takes as long as some compiles, so it is left out if it
would take more than a share of the time since the last count, whose duration is in a file.

Artifacts used within the last hour stay, even above the limit: other programs may be about to load them, and a build
larger than the limit would remove its own first artifacts. Uses are recorded as the time of the record, at most every
half hour.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kjit import env
from kjit.engine.cache.artifact import RECORD, Artifact
from kjit.errors import CacheError

if TYPE_CHECKING:
    from kjit.engine.cache.contents import Entry
    from kjit.engine.cache.store import Store

COUNTED = "counted"
"""A file in the folder of the layout: its time is that of the last count, its content the seconds that this took."""

_SPARED_S = 3600.0
_AFTERWARDS = 0.9
_SHARE = 0.05

_log = logging.getLogger("kjit")


def make_room(store: Store, added: Artifact) -> None:
    """Remove artifacts of `store` other than `added` if the limit is exceeded."""
    limit = env.cache_max_size()
    counted = store.layout / COUNTED
    if limit is None or _was_counted(counted):
        return
    began = time.time()
    try:
        entries = sorted(store.entries(), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries) + store.texts_size()
        if total > limit:
            _remove_oldest(store, entries, total, limit, added.folder)
        counted.write_text(str(time.time() - began), "ascii")
    except (OSError, CacheError) as error:
        # The artifact itself was added, and the next addition tries again.
        _log.debug("the cache %s is not kept under %s: %s", store.root, env.CACHE_MAX_SIZE, error)


def _was_counted(counted: Path) -> bool:
    """Whether the last count is too recent for another one."""
    try:
        return 0 <= time.time() - counted.stat().st_mtime < float(counted.read_text("ascii")) / _SHARE
    except (OSError, ValueError):
        return False


def _remove_oldest(store: Store, entries: list[Entry], total: int, limit: int, keep: Path) -> None:
    """Remove from the front of `entries`, and texts of the same age."""
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
