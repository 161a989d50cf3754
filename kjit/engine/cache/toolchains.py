"""Results of searches for compilers, kept for the next process with the same question.

`kjit.runtime.manifest` reads it. It is written from the states that the search has read, never from the current state
of the disk, which may have changed. Nothing is written if these states are not sufficient:

- the compiler is a script that does more than pass on its arguments, and may run another compiler each time;
- a folder that was searched is too recent to be compared by its time;
- kjit's own code has changed since this process started, and may differ from what it runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.engine.cache.folders import make_private, scan, write_file
from kjit.engine.key.key import toolchain_digest
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime import LAYOUT, STARTED_NS, manifest, own_users, read_file, weakness
from kjit.spec import Target

if TYPE_CHECKING:
    from kjit.engine.cache.store import Store

MOST_KEPT = 256
"""The most files in a cache; above it, the oldest quarter is removed."""

# Code that changed just before the process started may have been read before the change.
_CLOCK_STEP_NS = 2_000_000_000

_log = logging.getLogger("kjit")


def remember(target: Target, store: Store) -> None:
    """Keep the toolchain for `target`, if everything that it depends on is known.

    Args:
        store: the user's own cache.
    """
    root = os.fspath(store.root)
    try:
        toolchain = Toolchain.for_target(target)
        probes = toolchain.probes()
        name = manifest.question(target, root)
        is_young = any(probe[0] == manifest.DATED and probe[-1] == manifest.YOUNG for probe in probes or ())
        if store.is_shared or probes is None or name is None or is_young or not _is_own_code_known():
            return
        _write(root, name, manifest.sealed(toolchain_digest(toolchain), probes, name))
    except (OSError, KjitError) as error:
        # An optimisation only: the next process searches again.
        _log.debug("the toolchain for %s is not kept: %s", target, error)


@lru_cache(maxsize=1)
def _is_own_code_known() -> bool:
    """Whether kjit's code on disk is the code that this process runs."""
    return all(ctime_ns < STARTED_NS - _CLOCK_STEP_NS for *_, ctime_ns in manifest.code_states())


def _write(root: str, name: str, content: bytes) -> None:
    folder = f"{root}/{LAYOUT}/{manifest.TOOLCHAINS}"
    path = f"{folder}/{name}"
    with contextlib.suppress(OSError):
        if read_file(path, os.O_NOFOLLOW)[0] == content:
            return
    make_private(Path(folder))
    for each in (os.stat(root), os.lstat(f"{root}/{LAYOUT}"), os.lstat(folder)):
        if weakness(each, own_users()) is not None:
            return  # the look-up by key reports it
    write_file(path, content)
    _keep_below(folder, MOST_KEPT)


def _keep_below(folder: str, most: int) -> None:
    """Remove the oldest quarter of the files if there are more than `most`."""
    files = scan(folder)
    with contextlib.suppress(FileNotFoundError):  # another process does the same
        if len(files) > most:
            for entry in sorted(files, key=lambda entry: entry.stat().st_mtime)[: most // 4]:
                os.unlink(entry.path)
