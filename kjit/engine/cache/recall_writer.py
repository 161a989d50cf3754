"""Recall records, written: the artifact that served a request, for the next process with the same request.

`kjit.runtime.recall` reads them. A record is written after a look-up by key or a build, from the states that were
compared for it, never from the current state of the disk, which may have changed. No record is written if the checks
that it can contain are not sufficient:

- a watched folder is too recent to be compared by its time;
- the compiler is a script that does more than pass on its arguments, and may run another compiler each time;
- flags name an options file;
- kjit's own code has changed since this process started, and may differ from what it runs;
- the artifact is not in the user's own cache (but in a temporary or shared one).

A cache that cannot be written has no new records. Records are deleted only along with artifacts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kjit.engine.cache import limit
from kjit.engine.cache.artifact import RECORD, Artifact, Record, match
from kjit.engine.cache.folders import make_private, scan
from kjit.engine.key.flags import files_of_options
from kjit.engine.key.headers import YOUNG
from kjit.engine.key.key import Key
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime import LAYOUT, STARTED_NS, own_users, read_file, recall, weakness
from kjit.spec import Spec, Variant

if TYPE_CHECKING:
    from kjit.engine.cache.store import Store

MOST_RECORDS = 4096
"""The most records in a cache; above it, the oldest quarter is removed."""

_NAME = re.compile(r"[0-9a-f]{32}")
_BEING_WRITTEN = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}")
_LONGEST_WRITE_S = 3600.0
# Code that changed just before the process started may have been read before the change.
_CLOCK_STEP_NS = 2_000_000_000

_log = logging.getLogger("kjit")


def remember(variant: Variant, store: Store, artifact: Artifact) -> None:
    """Record that `artifact` serves `variant`, if all conditions for that can be recorded.

    Args:
        store: the user's own cache.
    """
    root = os.fspath(store.root)
    if store.is_shared or not artifact.path.startswith(f"{root}/{LAYOUT}/"):
        return
    try:
        name = recall.request(recall.words_of(variant), variant.target.kind, root)
        record = None if name is None or not _is_own_code_known() else _record(variant, artifact, root)
        if record is not None and name is not None:
            _write(root, name, recall.sealed(record, name))
    except (OSError, OverflowError, KjitError) as error:
        # An optimisation only: the next look-up derives the key.
        _log.debug("%s is not recorded for recall: %s", variant.label, error)


def _record(variant: Variant, artifact: Artifact, root: str) -> tuple[Any, ...] | None:
    """The fields of a record; None if they are not sufficient."""
    toolchain = Toolchain.for_target(variant.target)
    answers = toolchain.looks()
    spec = variant.spec
    key = Key.of(variant, toolchain)
    if answers is None or _has_files_of_options(spec, toolchain):
        return None
    found = match(artifact.path, key, own_users())
    if isinstance(found, str) or found.is_outdated:
        return None
    record, where = found.record, key.anchors.absolute
    assert isinstance(record, Record)  # of `match`
    reads = record.reads
    headers: list[tuple[Any, ...]] = [(where(row.anchor, row.path), *row[2:]) for row in reads.headers]
    folders = [(where(row.anchor, row.path), row.inode, row.ctime_ns) for row in reads.folders]
    sought = tuple((where(row.anchor, row.path), row.is_there) for row in reads.sought)
    dated = [look for look in answers if look[0] == recall.DATED]
    if any(row[0] is None for row in (*headers, *folders, *sought)):
        return None
    if any(row[-1] == YOUNG for row in folders) or any(look[-1] == YOUNG for look in dated):
        return None
    return (
        os.path.relpath(artifact.path, f"{root}/{LAYOUT}"),
        record["size"],
        record["crc32"],
        tuple((source.path, source.size, source.digest) for source in key.sources),
        *recall.packed(headers),
        recall.flat(folders),
        recall.flat(sought),
        tuple(dict.fromkeys((*answers, *key.anchors.asked))),
    )


def _has_files_of_options(spec: Spec, toolchain: Toolchain) -> bool:
    by_variables = toolchain.flags_from_environment()
    named = (
        *files_of_options(spec.extra_cflags),
        *files_of_options(spec.extra_ldflags),
        *files_of_options([*spec.extra_cuda_cflags, *by_variables], "nvcc"),
    )
    return bool(named)


@lru_cache(maxsize=1)
def _is_own_code_known() -> bool:
    """Whether kjit's code on disk is the code that this process runs."""
    return all(ctime_ns < STARTED_NS - _CLOCK_STEP_NS for *_, ctime_ns in recall.code_states())


def _write(root: str, name: str, content: bytes) -> None:
    folder = f"{root}/{LAYOUT}/{recall.FOLDER}"
    path = f"{folder}/{name}"
    with contextlib.suppress(OSError):
        if read_file(path, os.O_NOFOLLOW)[0] == content:
            return
    make_private(Path(folder))
    for each in (os.stat(root), os.lstat(f"{root}/{LAYOUT}"), os.lstat(folder)):
        if weakness(each, own_users()) is not None:
            return  # the look-up by key reports it
    being_written = f"{path}.{secrets.token_hex(4)}"
    handle = os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(being_written, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(being_written)
        raise
    limit.note_added(Path(root, LAYOUT, limit.COUNT), len(content))
    _keep_below(folder, MOST_RECORDS)


def _keep_below(folder: str, most: int) -> None:
    """Remove the oldest quarter of the records if there are more than `most`."""
    if len(os.listdir(folder)) <= most:
        return
    dated = []
    for entry in records_in(folder):
        with contextlib.suppress(OSError):
            dated.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for _, path in sorted(dated)[: len(dated) - most * 3 // 4]:
        with contextlib.suppress(OSError):
            os.unlink(path)


def records_in(folder: str) -> Iterator[os.DirEntry[str]]:
    """The records in a folder, including unfinished ones."""
    for entry in scan(folder):
        if _NAME.fullmatch(entry.name):
            yield entry
        elif _BEING_WRITTEN.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LONGEST_WRITE_S:
                    yield entry


def sweep(root: str, *, every: bool = False) -> int:
    """Remove the records of removed artifacts, and return the bytes that were freed.

    Args:
        every: remove all records.

    Raises:
        OSError: one cannot be removed.
    """
    freed = 0
    for entry in records_in(f"{root}/{LAYOUT}/{recall.FOLDER}"):
        try:
            if every or not _serves(root, entry):
                size = entry.stat(follow_symlinks=False).st_size
                os.unlink(entry.path)
                freed += size
        except FileNotFoundError:
            pass  # somebody else removes it
    return freed


def size(root: str) -> int:
    """The bytes of all records."""
    total = 0
    for entry in records_in(f"{root}/{LAYOUT}/{recall.FOLDER}"):
        with contextlib.suppress(OSError):
            total += entry.stat(follow_symlinks=False).st_size
    return total


def _serves(root: str, entry: os.DirEntry[str]) -> bool:
    """Whether the artifact of a record exists."""
    try:
        content, _ = read_file(entry.path, os.O_NOFOLLOW)
        record = recall.unsealed(content, entry.name)
    except (EOFError, TypeError, ValueError):
        return False
    return record is not None and os.path.exists(f"{root}/{LAYOUT}/{record[0]}/{RECORD}")
