"""The artifact store: artifacts in a cache folder that many processes share, none of which loads a wrong one.

An artifact (artifact.py) appears by one rename, complete or not at all, and its library never changes (its record is
replaced, also by rename, when a header has a new time). Everything is checked when it is read: the record holds the
size and checksum of the library, so that a truncated or altered one counts as missing and is built again.

A shared cache is a folder of the same layout that somebody else fills. It is searched after a miss in the user's own,
so that a hit pays nothing for it; nothing is written there, and no lock is taken.

A look-up takes no lock. If locks do not work (on some network mounts), two machines may compile the same variant; one
publishes first, and the other uses that artifact.

The trade-off: checking the library on every load takes half a microsecond per kilobyte. Kernels are small.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kjit import env
from kjit.engine.cache import limit, locks, staging
from kjit.engine.cache.artifact import (
    DAMAGED,
    UNTRUSTED,
    describe,
    match,
    read_artifact,
    write_record,
)
from kjit.engine.cache.artifact import Artifact as Artifact
from kjit.engine.cache.contents import LOCKS, STAGING, Contents
from kjit.engine.cache.folders import (
    NO_SPACE,
    close_to_others,
    disk_full,
    distrust,
    make_private,
    refuse_unsafe,
    scan,
    subfolders,
)
from kjit.engine.key.differences import differences
from kjit.engine.key.key import Key
from kjit.errors import CacheError
from kjit.runtime.bundle import digest_of
from kjit.runtime.manifest import FORMAT, LAST_USE_STEP_S, Reads, note_use

_ATTEMPTS = 10

_log = logging.getLogger("kjit")

# The labels of the variants in folders `<key1>`, which never change. Without this, each of a thousand misses of an op
# with a thousand variants would read all their records.
_labels: dict[str, str] = {}


@dataclass(frozen=True)
class Lookup:
    """The result of `find`: an artifact, or the reason why there is none.

    Attributes:
        shared: the folder of the shared cache that it is in; None if it is in this one.
    """

    artifact: Artifact | None
    reason: str
    shared: Path | None = None


class Missed(NamedTuple):
    """A look-up that found no artifact: its key (`key1`), and the reason."""

    key1: str
    reason: str


class Store(Contents):
    """The artifacts in one cache folder.

    Args:
        is_shared: somebody else fills it. It is only read, and only its owner is trusted.
        asks_shared: search the shared caches (`shared_caches`) after a miss.
    """

    def __init__(self, root: Path, *, is_shared: bool = False, asks_shared: bool = False) -> None:
        super().__init__(root, is_shared=is_shared)
        self._asks_shared = asks_shared

    @classmethod
    def open(cls, root: Path | None = None) -> Store:
        """The store in `root`; by default the user's cache, with the shared caches.

        No folder is created before the first build.

        Raises:
            CacheError: the folder belongs to somebody else, or others may write to it.
        """
        store = _store(env.cache_dir() if root is None else root, asks_shared=root is None)
        refuse_unsafe(store.root, follow=True)
        refuse_unsafe(store.layout, follow=False, root=store.root)
        return store

    def writable(self, *, must_last: bool = False) -> Store:
        """This store if it can be written, else a private temporary one for the life of the process.

        Args:
            must_last: a temporary store is not acceptable.

        Raises:
            CacheError: the disk is full, or there is a file or a link in place of the folder; with `must_last`, it
                cannot be written for another reason.
            UsageError: `KJIT_CACHE_MAX_SIZE` is not a size.
        """
        refused = self._why_not_writable()
        if refused is None:
            return self
        if must_last:
            raise CacheError(
                f"The cache '{self.root}' cannot be written ({refused}), and the artifacts would be lost at once.",
                hint=f"set {env.CACHE_DIR} to a writable folder, or write a bundle with --out",
            )
        return _temporary_store(os.getpid(), str(self.root), refused)

    def is_writable(self) -> bool:
        """Whether it can be written.

        Raises:
            CacheError: as for `writable`.
        """
        return self._why_not_writable() is None

    def _why_not_writable(self) -> str | None:
        env.cache_max_size()  # an invalid value is reported before a compile
        try:
            for folder in (self.layout / LOCKS, self.layout / STAGING):
                make_private(folder)
                refuse_unsafe(folder, follow=False, root=self.root)
            return None if os.access(self.layout / STAGING, os.W_OK | os.X_OK) else "it is read-only"
        except (FileExistsError, NotADirectoryError):
            raise CacheError(
                f"The cache folder '{self.root}' cannot be made, because there is a file in its place.",
                hint=f"set {env.CACHE_DIR} to another folder, or move the file away",
            ) from None
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            return error.strerror or str(error)

    def find(self, key: Key) -> Lookup:
        """Look up an artifact. Every header that it was built from is compared, and its library is checked.

        Raises:
            CacheError: somebody other than its owner may write to this cache, or to a shared one.
        """
        found = self._find_here(key)
        if found.artifact is None and self._asks_shared:
            reasons = [found.reason]
            for cache in self.shared_caches():
                theirs = cache._find_here(key)
                if theirs.artifact is not None:
                    return Lookup(theirs.artifact, "", cache.root)
                reasons.append(f"in the shared cache {cache.root}: {theirs.reason}")
            return Lookup(None, "; ".join(reasons))
        return found

    def fetch(self, key: Key) -> Lookup:
        """Like `find`; an artifact that only a shared cache has is copied into this one, if this is writable.

        The copy is a hit the next time, and remains if the mount disappears or the shared cache is replaced.
        """
        found = self.find(key)
        if found.artifact is None or found.shared is None:
            return found
        copy = self._copy(found.artifact, key)
        _log.info("%s comes from the shared cache %s", key.variant.label, found.shared)
        return found if copy is None else Lookup(copy, "")

    def shared_caches(self) -> list[Store]:
        """The shared caches, in order; they need not exist.

        Raises:
            UsageError: `KJIT_SHARED_CACHE_DIR` does not name folders.
        """
        if not self._asks_shared:
            return []
        # By real path: a folder may be listed twice, or through a link, and may be the user's own.
        roots: dict[str, Path] = {}
        for root in env.shared_cache_dirs():
            roots.setdefault(os.path.realpath(root), root)
        roots.pop(os.path.realpath(self.root), None)
        return [Store(root, is_shared=True) for root in roots.values()]

    def distrusted(self) -> str | None:
        """Why nothing is loaded from this shared cache; None if it is used, or does not exist."""
        return distrust(self.root, follow=True) or distrust(self.layout)

    def _find_here(self, key: Key) -> Lookup:
        folder = self._folder(key)
        if not self.is_shared:
            self._refuse_unsafe_above(folder)
        elif (refusal := self._refusal(folder)) is not None:
            return Lookup(None, refusal)
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
            # The reason for one of several unsuitable artifacts is reported; damage takes precedence.
            reason = found if not reason or found.startswith((DAMAGED, UNTRUSTED)) else reason
        return Lookup(None, reason)

    @contextlib.contextmanager
    def lock(self, key: Key, cancel: threading.Event | None = None) -> Iterator[None]:
        """Hold the lock of `key`, so that only one process builds it. A wait of more than a second is logged.

        Raises:
            CancelledError: `cancel` was set during the wait.
        """
        with locks.hold(self.layout / LOCKS / f"{key.key1}.lock", f"builds {key.variant.label}", cancel):
            yield

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A new folder for one build, removed afterwards. Folders of processes that have died are removed too.

        Raises:
            CacheError: the disk is full.
        """
        self.sweep()
        with staging.staging_folder(self.layout / STAGING) as folder:
            yield folder

    def _copy(self, artifact: Artifact, key: Key) -> Artifact | None:
        """Copy an artifact of a shared cache into this one; None if that fails."""
        try:
            if self._why_not_writable() is not None:
                return None
            with self.staging() as folder:
                prepared = folder / "artifact"
                prepared.mkdir(mode=0o700)
                shutil.copyfile(artifact.library, prepared / artifact.library.name, follow_symlinks=False)
                close_to_others(prepared / artifact.library.name)
                write_record(prepared, artifact.record)
                self._move_into_place(prepared, Path(self._folder(key), artifact.folder.name), key)
        except (OSError, CacheError) as error:
            _log.debug("%s is not copied into the cache: %s", artifact.folder, error)
            return None
        # The copy is checked like any artifact.
        copy = self._find_here(key).artifact
        if copy is not None:
            limit.make_room(self, copy)
        return copy

    def publish(self, key: Key, library: Path, reads: Reads, build: Mapping[str, object], folder: Path) -> Artifact:
        """Move a library into the store, and return it as an artifact.

        Args:
            library: a file in `folder`; it is moved.
            build: the report of the build, as JSON.
            folder: from `staging()`.

        Raises:
            CacheError: the disk is full, or the cache was removed.
        """
        paths, *_, digests = reads.headers
        key2 = digest_of([paths, digests])
        try:
            prepared = folder / "artifact"
            prepared.mkdir(mode=0o700)
            record = {
                "format": FORMAT,
                "project": key.project,
                "op": key.variant.spec.name,
                "label": key.variant.spec.label,
                "arguments": key.variant.spec.args,
                "target": str(key.variant.target),
                "key1": key.key1,
                "key2": key2,
                "source_key": key.source_key,
                **describe(library.read_bytes()),
                "reads": reads.to_json(),
                "inputs": key.inputs,
                "build": build,
                "built": time.time(),
            }
            close_to_others(library)
            os.replace(library, prepared / f"{key.variant.spec.name}.so")
            write_record(prepared, record)
            home = Path(self._folder(key), key2)
            self._move_into_place(prepared, home, key)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            raise CacheError(
                f"'{library.name}' cannot be put into the cache '{self.root}': {error.strerror}."
            ) from None
        artifact = Artifact(str(home), json.loads(json.dumps(record)), time.time())
        limit.make_room(self, artifact)
        return artifact

    def _folder(self, key: Key) -> str:
        return f"{self.layout}/{key.folder}"

    def _refusal(self, folder: str) -> str | None:
        """Why nothing is loaded from `folder` of this shared cache; None if it is used, or does not exist.

        Raises:
            CacheError: nothing is loaded from this cache at all.
        """
        refusal = self.distrusted()
        if refusal is not None:
            raise CacheError(
                f"The shared cache '{self.root}' is not used, because others could change the code that you load: "
                f"{refusal}.",
                hint=f"its owner can `chmod -R go-w {self.root}`; or remove it from {env.SHARED_CACHE_DIR}",
            )
        try:
            owner = os.stat(self.root).st_uid
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        above = [Path(folder), *Path(folder).parents[:2]]
        inside = [Path(artifact.path) for artifact in scan(folder)]
        parts = [*above, *inside, *(Path(file.path) for path in inside for file in scan(path))]
        return next(filter(None, (distrust(part, owner=owner) for part in parts)), None)

    def _refuse_unsafe_above(self, folder: str) -> None:
        """Reject folders between this cache and an artifact that others can change: by replacing one after the checks,
        they could change the code that is loaded."""
        above = os.path.dirname(folder)
        for each in (os.path.dirname(above), above, folder):
            refuse_unsafe(each, follow=False, root=self.root)

    def _check(self, folder: str, key: Key) -> Artifact | str:
        found = match(folder, key, self._owners(), thorough=self.is_shared)
        if isinstance(found, Artifact) and not self.is_shared:
            if found.is_outdated:
                _renew(found)
            elif abs(time.time() - found.used) > LAST_USE_STEP_S:
                note_use(folder)
        return found

    def _why_not(self, key: Key) -> str:
        """Why there is no artifact of this key: the differences from the last one of the same variant of this
        project."""
        project = key.project
        op_folder = Path(self._folder(key)).parent
        newest: Artifact | None = None
        label = key.variant.spec.label
        for key1 in subfolders(op_folder):
            if _labels.get(key1.path, label) != label:
                continue
            for key2 in subfolders(key1.path):
                artifact = read_artifact(key2.path)
                if isinstance(artifact, Artifact):
                    _labels[key1.path] = artifact.label
                    is_same = artifact.label == label and artifact.project == project
                    if is_same and (newest is None or artifact.used > newest.used):
                        newest = artifact
        if newest is None:
            return "it was never built here"
        inputs = newest.record["inputs"]
        found = differences(inputs, json.loads(json.dumps(key.inputs)), project) if isinstance(inputs, dict) else []
        return "; ".join(found[:3]) or "it was built from other inputs"

    def _move_into_place(self, prepared: Path, folder: Path, key: Key) -> None:
        for _ in range(_ATTEMPTS):
            try:
                for parent in reversed(folder.parents[:3]):
                    refuse_unsafe(parent, follow=False, root=self.root)
                make_private(folder.parent)
                os.rename(prepared, folder)
                return
            except FileNotFoundError:
                continue  # `clean-cache` removed an empty folder between the two calls
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            # There already is one with the same two keys: it is used, unless it is damaged.
            if isinstance(self._check(str(folder), key), Artifact):
                return
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder, staging.spare_name(self.layout / STAGING))
        raise CacheError(f"'{folder}' cannot be made: another process keeps removing it.")


@lru_cache(maxsize=64)
def _store(root: Path, asks_shared: bool) -> Store:
    """The store in `root`, cached: it has no state except its paths, and composing these takes as long as a look-up."""
    return Store(root, asks_shared=asks_shared)


def _renew(artifact: Artifact) -> None:
    try:
        write_record(artifact.folder, artifact.record)
    except OSError as error:
        # Only an optimisation: the next look-up compares the contents again.
        _log.debug("the record in %s is not renewed: %s", artifact.folder, error)


@lru_cache(maxsize=8)
def _temporary_store(pid: int, instead_of: str, why: str) -> Store:
    """A temporary store. A forked child has its own, because the parent's is removed with the parent."""
    import atexit

    try:
        folder, remove = staging.make_temporary_folder()
    except OSError as error:
        raise CacheError(
            f"The cache '{instead_of}' cannot be written ({why}), nor can a temporary one be made: {error.strerror}.",
            hint=f"set {env.CACHE_DIR} to a writable folder",
        ) from None
    atexit.register(lambda: remove() if os.getpid() == pid else None)
    _log.warning(
        "the cache %s cannot be written (%s): artifacts of this process are in %s, and are lost when it ends",
        instead_of,
        why,
        folder,
    )
    return Store(folder).writable()
