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
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from kjit import env
from kjit.engine.cache import limit, locks, staging
from kjit.engine.cache.artifact import (
    DAMAGED,
    UNTRUSTED,
    describe,
    lines_of,
    match,
    read_artifact,
    write_record,
)
from kjit.engine.cache.artifact import Artifact as Artifact
from kjit.engine.cache.contents import LOCKS, STAGING, Contents
from kjit.engine.cache.folders import NO_SPACE, close_to_others, disk_full, make_private, subfolders, write_file
from kjit.engine.key.differences import differences
from kjit.engine.key.key import Key
from kjit.errors import CacheError
from kjit.runtime.bundle import digest_of
from kjit.runtime.manifest import LAST_USE_STEP_S, Reads, note_use

_ATTEMPTS = 10

_log = logging.getLogger("kjit")

# The labels of the variants in folders `<key1>`, which never change. Without this, each of a thousand misses of an op
# with a thousand variants would read all their records.
_labels: dict[str, str] = {}


@dataclass(frozen=True)
class Lookup:
    """The result of `find`: an artifact, or the reason why there is none.

    Attributes:
        key1: of the key that was looked up.
        shared: the folder of the shared cache that it is in; None if it is in this one.
    """

    artifact: Artifact | None
    reason: str
    key1: str = ""
    shared: Path | None = None


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
        store = cls(env.cache_dir() if root is None else root, asks_shared=root is None)
        store.refuse_unsafe()
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
        folders = (self.layout / LOCKS, self.layout / STAGING)
        try:
            for folder in folders:
                make_private(folder)
            self.refuse_unsafe(*map(str, folders))
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
        reasons = [found.reason]
        for cache in self.shared_caches() if found.artifact is None else ():
            theirs = cache._find_here(key)
            if theirs.artifact is not None:
                return replace(theirs, shared=cache.root)
            reasons.append(f"in the shared cache {cache.root}: {theirs.reason}")
        return replace(found, reason="; ".join(reasons))

    def fetch(self, key: Key) -> Lookup:
        """Like `find`; an artifact that only a shared cache has is copied into this one, if this is writable.

        The copy is a hit the next time, and remains if the mount disappears or the shared cache is replaced.
        """
        found = self.find(key)
        if found.artifact is None or found.shared is None:
            return found
        copy = self._copy(found.artifact, key)
        _log.info("%s comes from the shared cache %s", key.variant.label, found.shared)
        return found if copy is None else replace(found, artifact=copy, shared=None)

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

    def _find_here(self, key: Key) -> Lookup:
        folder = self._folder(key)
        self.refuse_unsafe(*_above(folder), folder)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            is_there = not self.is_shared or self.root.is_dir()
            return Lookup(None, self._why_not(key) if is_there else "there is no such folder", key.key1)
        except OSError as error:
            return Lookup(None, f"its cache folder cannot be read ({error.strerror})", key.key1)
        reason = "" if names else self._why_not(key)
        for name in names:
            found = self._check(f"{folder}/{name}", key)
            if isinstance(found, Artifact):
                return Lookup(found, "", key.key1)
            # The reason for one of several unsuitable artifacts is reported; damage takes precedence.
            reason = found if not reason or found.startswith((DAMAGED, UNTRUSTED)) else reason
        return Lookup(None, reason, key.key1)

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
                library = folder / artifact.library.name
                shutil.copyfile(artifact.library, library, follow_symlinks=False)
                self._put(key, library, artifact.lines, artifact.folder.name, folder)
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
            summary = {
                "op": key.variant.spec.name,
                "label": key.variant.spec.label,
                "arguments": key.variant.spec.args,
                "target": str(key.variant.target),
                "project": key.project,
                "key1": key.key1,
                "key2": key2,
                **describe(library.read_bytes()),
                "built": time.time(),
            }
            lines = lines_of(summary, reads, {"inputs": key.inputs, "build": build})
            home = self._put(key, library, lines, key2, folder)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            raise CacheError(
                f"'{library.name}' cannot be put into the cache '{self.root}': {error.strerror}."
            ) from None
        artifact = Artifact(home, lines, time.time())
        limit.make_room(self, artifact)
        return artifact

    def write_texts(self, name: str, texts: Mapping[str, bytes]) -> Path:
        """Write the sources of a module that were given as text, and return their folder.

        Args:
            name: of the folder: one for each content.
            texts: the content of each file, by name.

        Raises:
            CacheError: the disk is full.
        """
        folder = self.texts / name
        make_private(folder)
        try:
            for each, text in texts.items():
                write_file(folder / each, text)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            raise
        return folder

    def _folder(self, key: Key) -> str:
        return f"{self.layout}/{key.folder}"

    def _check(self, folder: str, key: Key) -> Artifact | str:
        found = match(folder, key, self._owners(), thorough=self.is_shared)
        if isinstance(found, Artifact) and not self.is_shared:
            if found.is_renewed:
                _renew(found)
            elif abs(time.time() - found.used) > LAST_USE_STEP_S:
                note_use(folder)
        return found

    def _why_not(self, key: Key) -> str:
        """Why there is no artifact of this key: the differences from the last one of the same variant of this
        project."""
        newest: Artifact | None = None
        label = key.variant.spec.label
        for key1 in subfolders(os.path.dirname(self._folder(key))):
            for key2 in subfolders(key1.path) if _labels.get(key1.path, label) == label else ():
                artifact = read_artifact(key2.path)
                if isinstance(artifact, Artifact):
                    _labels[key1.path] = artifact.label
                    is_same = artifact.label == label and artifact.project == key.project
                    if is_same and (newest is None or artifact.used > newest.used):
                        newest = artifact
        if newest is None:
            return "it was never built here"
        found = differences(newest.inputs, json.loads(json.dumps(key.inputs)), key.project)
        return "; ".join(found[:3]) or "it was built from other inputs"

    def _put(self, key: Key, library: Path, lines: tuple[bytes, ...], key2: str, folder: Path) -> str:
        """Move a library in `folder`, with the lines of its record, to the place of an artifact."""
        prepared = folder / "artifact"
        prepared.mkdir(mode=0o700)
        close_to_others(library)
        os.replace(library, prepared / f"{key.variant.spec.name}.so")
        write_record(prepared, lines)
        home = f"{self._folder(key)}/{key2}"
        for _ in range(_ATTEMPTS):
            try:
                self.refuse_unsafe(*_above(self._folder(key)), self._folder(key))
                make_private(Path(home).parent)
                os.rename(prepared, home)
                return home
            except FileNotFoundError:
                continue  # `clean-cache` removed an empty folder between the two calls
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            # There already is one with the same two keys: it is used, unless it is damaged.
            if isinstance(self._check(home, key), Artifact):
                return home
            with contextlib.suppress(FileNotFoundError):
                os.rename(home, staging.spare_name(self.layout / STAGING))
        raise CacheError(f"'{home}' cannot be made: another process keeps removing it.")


def _above(folder: str) -> tuple[str, str]:
    """The folders between the layout and the folder of a key."""
    op = os.path.dirname(folder)
    return os.path.dirname(op), op


def _renew(artifact: Artifact) -> None:
    try:
        write_record(artifact.folder, artifact.lines)
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
