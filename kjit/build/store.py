"""Where are artifacts on disk, and how do many processes share them without ever loading a wrong one?

    <cache>/v1/<target>/<op>/<key1>/<key2>/{<op>.so, record.json}
    <cache>/v1/locks/<key1>.lock         held while that key is built (locks.py)
    <cache>/v1/staging/                  builds in progress (staging.py)

This is the one file that knows that layout (support.py and memo.py each keep something of their own beside it). An
artifact (artifact.py) appears by one rename, complete or not at all, and its library never changes (its record is
replaced, also by rename, when a header got a new date). What is read is checked: the library's size and checksum stand
in the record, so that a truncated or altered one counts as missing and is built again.

A lookup takes no lock. Where locks do not reach (a network mount), the worst case is that two machines compile the same
thing; one of them publishes first and the other takes that.

The trade-off of checking the library on every load: half a microsecond for each kilobyte of it. Kernels are small.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kjit import env
from kjit.build import locks, staging
from kjit.build.artifact import (
    DAMAGED,
    RECORD,
    RECORD_BEING_WRITTEN,
    damage,
    describe,
    parse_record,
    read_artifact,
    write_record,
)
from kjit.build.artifact import Artifact as Artifact
from kjit.build.folders import NO_SPACE, disk_full, make_private, refuse_unsafe, scan, subfolders
from kjit.build.headers import Reads
from kjit.build.key import FORMAT, Key, differences
from kjit.errors import CacheError

_VERSION = "v1"
_LOCKS = "locks"
_STAGING = "staging"
_SUPPORT = "support"
_NO_TARGETS = (_LOCKS, _STAGING, _SUPPORT)
_KEY = re.compile(r"[0-9a-f]{32}")
_SUPPORT_FILE = re.compile(r"kjit_\w+\.o(?:\.d)?")

_LAST_USE_STEP_S = 24 * 3600.0
_ATTEMPTS = 10

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Lookup:
    """The answer to `find`: an artifact, or the reason why there is none."""

    artifact: Artifact | None
    reason: str


@dataclass(frozen=True)
class Entry:
    """A folder of the cache that is, or once was, an artifact.

    Attributes:
        key: `<target>/<op>/<key1>/<key2>`.
        size: bytes on disk.
        used: when it was last used, give or take a day; seconds since 1970.
    """

    folder: Path
    target: str
    op: str
    key: str
    size: int
    used: float


class Store:
    """The artifacts in one cache folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._v1 = root / _VERSION

    @classmethod
    def open(cls, root: Path | None = None) -> Store:
        """The store in `root`, by default the user's cache. Nothing is created before something is built.

        Raises:
            CacheError: the folder belongs to somebody else, or others may write to it.
        """
        store = cls(env.cache_dir() if root is None else root)
        refuse_unsafe(store.root, follow=True)
        refuse_unsafe(store._v1, follow=False)
        return store

    def writable(self) -> Store:
        """This store if something can be put into it, else a private temporary one that lives as long as the process.

        Raises:
            CacheError: the disk is full, or there is a file where the folder should be.
        """
        try:
            for folder in (_LOCKS, _STAGING):
                make_private(self._v1 / folder)
            refused = None if os.access(self._v1 / _STAGING, os.W_OK | os.X_OK) else "it is read-only"
        except (FileExistsError, NotADirectoryError):
            raise CacheError(
                f"The cache folder '{self.root}' cannot be made, because there is a file in its place.",
                hint=f"move the file away, or set {env.CACHE_DIR} to another folder",
            ) from None
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            refused = error.strerror or str(error)
        return self if refused is None else _temporary_store(os.getpid(), str(self.root), refused)

    def find(self, key: Key) -> Lookup:
        """Look an artifact up. Every header that it was built from is compared, and its library is checked."""
        folder = self._folder(key)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return Lookup(None, self._why_not(key))
        except OSError as error:
            return Lookup(None, f"its cache folder cannot be read ({error.strerror})")
        reason = self._why_not(key) if not names else ""
        for name in names:
            found = self._check(f"{folder}/{name}", key)
            if isinstance(found, Artifact):
                return Lookup(found, "")
            # Of several artifacts that do not fit, the reason of any one is told; damage before all others.
            reason = found if not reason or found.startswith(DAMAGED) else reason
        return Lookup(None, reason)

    @contextlib.contextmanager
    def lock(self, key: Key, cancel: threading.Event | None = None) -> Iterator[None]:
        """Hold the lock of `key`: of all processes one builds it. A wait of more than a second is logged.

        Raises:
            CancelledError: `cancel` was set while this waited.
        """
        with locks.hold(self._v1 / _LOCKS / f"{key.key1}.lock", key.variant.label, cancel):
            yield

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A fresh folder for one build, removed afterwards. Folders whose processes have died are removed too.

        Raises:
            CacheError: the disk is full.
        """
        self.sweep()
        with staging.staging_folder(self._v1 / _STAGING) as folder:
            yield folder

    def sweep(self) -> int:
        """Remove the staging folders of processes that have ended, and return how many there were."""
        return staging.sweep(self._v1 / _STAGING)

    def publish(self, key: Key, library: Path, reads: Reads, build: Mapping[str, object], folder: Path) -> Artifact:
        """Put a library into the store and return it as an artifact.

        Args:
            library: a file in `folder`; it is moved.
            build: what the build told, as JSON.
            folder: from `staging()`.

        Raises:
            CacheError: the disk is full, or the cache was taken away.
        """
        try:
            prepared = folder / "artifact"
            prepared.mkdir(mode=0o700)
            record = {
                "format": FORMAT,
                "op": key.variant.spec.name,
                "label": key.variant.spec.label,
                "arguments": key.variant.spec.args,
                "target": str(key.variant.target),
                "key1": key.key1,
                "key2": reads.key2,
                "source_key": key.source_key,
                **describe(library.read_bytes()),
                "reads": reads.to_json(),
                "inputs": key.inputs,
                "build": build,
                "built": time.time(),
            }
            os.replace(library, prepared / f"{key.variant.spec.name}.so")
            write_record(prepared, record)
            home = Path(self._folder(key), reads.key2)
            self._move_into_place(prepared, home, key)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            raise CacheError(
                f"'{library.name}' cannot be put into the cache '{self.root}': {error.strerror}."
            ) from None
        artifact = parse_record(home, json.loads(json.dumps(record)), time.time())
        assert isinstance(artifact, Artifact)  # written a moment ago
        return artifact

    def entries(self) -> Iterator[Entry]:
        """All artifacts, damaged ones included, in the order of their folders. Links are not followed."""
        for target in subfolders(self._v1):
            if target.name in _NO_TARGETS:
                continue
            for op in subfolders(target):
                for key1 in subfolders(op):
                    for key2 in subfolders(key1):
                        if _KEY.fullmatch(key1.name) and _KEY.fullmatch(key2.name):
                            yield _entry(key2, target.name.replace("-", ":"), op.name)

    def read(self, entry: Entry) -> Artifact | str:
        """The artifact of an entry with its library checked, or what is wrong with it."""
        artifact = read_artifact(str(entry.folder))
        return artifact if isinstance(artifact, str) else damage(artifact, thorough=True) or artifact

    def remove(self, entry: Entry) -> int:
        """Delete an artifact, and its folders where nothing else is in them. What kjit did not put there stays.

        Returns:
            The bytes that were freed.

        Raises:
            CacheError: it may not be deleted.
        """
        freed = 0
        try:
            # The record first: without it this is no artifact any more, whatever happens next.
            for name in sorted(_own_files(entry.folder, entry.op), key=lambda name: name != RECORD):
                path = entry.folder / name
                size = path.lstat().st_size
                path.unlink()
                freed += size
        except FileNotFoundError:
            pass  # somebody else is removing it
        except OSError as error:
            raise CacheError(
                f"'{entry.folder}' cannot be removed: {error.strerror}.", hint="check its permissions and its owner"
            ) from None
        self._remove_lock(entry.folder.parent.name)
        with contextlib.suppress(OSError):  # not empty, or gone already
            for folder in (entry.folder, *entry.folder.parents[:3]):
                folder.rmdir()
        return freed

    def shared_code(self) -> list[Path]:
        """The files of the code that all modules share (support.py keeps them; a build makes them anew)."""
        return [
            Path(entry.path)
            for folder in subfolders(self._v1 / _SUPPORT)
            for entry in scan(folder)
            if _SUPPORT_FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]

    def remove_shared_code(self) -> int:
        """Delete the code that all modules share, and return the bytes that were freed."""
        freed = 0
        for path in self.shared_code():
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                freed += size
            with contextlib.suppress(OSError):  # not empty yet
                path.parent.rmdir()
        return freed

    def _folder(self, key: Key) -> str:
        variant = key.variant
        # No colon in the name: depfiles, PATH-like variables and some file systems give it a meaning.
        return f"{self._v1}/{str(variant.target).replace(':', '-')}/{variant.spec.name}/{key.key1}"

    def _check(self, folder: str, key: Key) -> Artifact | str:
        artifact = read_artifact(folder)
        if isinstance(artifact, str):
            return artifact
        record = artifact.record
        if record["key1"] != key.key1 or record["op"] != key.variant.spec.name:
            return f"{DAMAGED} its record belongs to another artifact"
        reads = record["reads"]
        assert isinstance(reads, dict)  # _parse has checked it
        try:
            before = Reads.from_json(reads)
            after = before.compare(key.anchors)
        except (KeyError, TypeError, ValueError):
            return f"{DAMAGED} its record lists no headers"
        if isinstance(after, str):
            return after
        broken = damage(artifact)
        if broken is not None:
            return broken
        if after is not before:
            _renew(artifact.folder, {**record, "reads": after.to_json()})
        elif abs(time.time() - artifact.used) > _LAST_USE_STEP_S:
            with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted either
                os.utime(f"{folder}/{RECORD}")
        return artifact

    def _why_not(self, key: Key) -> str:
        """Why there is no artifact of this key: what differs from the last one of the same variant."""
        op_folder = Path(self._folder(key)).parent
        newest: Artifact | None = None
        for key1 in subfolders(op_folder):
            for key2 in subfolders(key1):
                artifact = read_artifact(str(key2))
                if (
                    isinstance(artifact, Artifact)
                    and artifact.label == key.variant.spec.label
                    and (newest is None or artifact.used > newest.used)
                ):
                    newest = artifact
        if newest is None:
            return "it was never built here"
        inputs = newest.record["inputs"]
        found = differences(inputs, json.loads(json.dumps(key.inputs))) if isinstance(inputs, dict) else []
        return "; ".join(found[:3]) or "it was built from other inputs"

    def _move_into_place(self, prepared: Path, folder: Path, key: Key) -> None:
        for _ in range(_ATTEMPTS):
            try:
                make_private(folder.parent)
                os.rename(prepared, folder)
                return
            except FileNotFoundError:
                continue  # `clean-cache` removed an empty folder between the two calls
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            # There is one of the same two keys already: as good as this one, unless it is damaged.
            if isinstance(self._check(str(folder), key), Artifact):
                return
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder, staging.spare_name(self._v1 / _STAGING))
        raise CacheError(f"'{folder}' cannot be made: it is being removed all the time.")

    def _remove_lock(self, key1: str) -> None:
        path = self._v1 / _LOCKS / f"{key1}.lock"
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if locks.try_lock(handle):
                    path.unlink()
            finally:
                os.close(handle)


def _renew(folder: Path, record: Mapping[str, object]) -> None:
    try:
        write_record(folder, record)
    except OSError as error:
        # A convenience: the next lookup compares the contents again.
        _log.debug("the record in %s is not renewed: %s", folder, error)


def _entry(folder: Path, target: str, op: str) -> Entry:
    size, used = 0, 0.0
    for name in _own_files(folder, op):
        with contextlib.suppress(FileNotFoundError):
            status = (folder / name).lstat()
            size += status.st_size
            used = status.st_mtime if name == RECORD else used or status.st_mtime
    return Entry(folder, target, op, "/".join(folder.parts[-4:]), size, used)


def _own_files(folder: Path, op: str) -> list[str]:
    return [
        entry.name
        for entry in scan(folder)
        if entry.name in (RECORD, f"{op}.so") or RECORD_BEING_WRITTEN.fullmatch(entry.name)
    ]


@lru_cache(maxsize=8)
def _temporary_store(pid: int, instead_of: str, why: str) -> Store:
    """One for each process: a child after a fork has its own, as the parent's goes with the parent."""
    import atexit

    folder = tempfile.mkdtemp(prefix="kjit-cache-")

    def remove() -> None:
        if os.getpid() == pid:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    _log.warning(
        "the cache %s cannot be written (%s): what is compiled now is kept in %s and lost when this process ends",
        instead_of,
        why,
        folder,
    )
    return Store(Path(folder)).writable()
