"""The artifact store: artifacts on disk, shared by many processes, none of which ever loads a wrong one.

    <cache>/v1/<target>/<op>/<key1>/<key2>/{<op>.so, record.json}
    <cache>/v1/locks/<key1>.lock         held while that key is built (locks.py)
    <cache>/v1/staging/                  builds in progress (staging.py)
    <cache>/v1/failures/                 what did not compile (failures.py)
    <cache>/v1/recalls/                  which artifact served which request (recall_writer.py)
    <cache>/v1/size                      how much there is, where that is limited (limit.py)

This is the one file that knows that layout (support.py and memo.py each keep something of their own beside it). An
artifact (artifact.py) appears by one rename, complete or not at all, and its library never changes (its record is
replaced, also by rename, when a header got a new date). What is read is checked: the library's size and checksum stand
in the record, so that a truncated or altered one counts as missing and is built again.

A shared cache is a folder like this one that somebody else fills. It is asked after a miss in the user's own, so that a
hit pays nothing for it; nothing is ever written there, and it has no locks.

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
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kjit import env
from kjit.engine.cache import failures, limit, locks, recall_writer, staging
from kjit.engine.cache.artifact import (
    DAMAGED,
    RECORD,
    RECORD_BEING_WRITTEN,
    UNTRUSTED,
    damage,
    describe,
    match,
    read_artifact,
    read_summary,
    untrusted,
    write_record,
)
from kjit.engine.cache.artifact import Artifact as Artifact
from kjit.engine.cache.failures import Refusal
from kjit.engine.cache.folders import (
    NO_SPACE,
    close_to_others,
    disk_full,
    distrust,
    make_private,
    own_users,
    refuse_unsafe,
    scan,
    subfolders,
    weakness,
)
from kjit.engine.key.differences import differences
from kjit.engine.key.headers import Reads
from kjit.engine.key.key import FORMAT, Key
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError
from kjit.runtime import LAYOUT, inline, recall

if TYPE_CHECKING:
    from kjit.engine.key.observation import Start

_LOCKS = "locks"
_STAGING = "staging"
_SUPPORT = "support"
_FAILURES = "failures"
_RECALLS = recall.FOLDER
_NO_TARGETS = (_LOCKS, _STAGING, _SUPPORT, _FAILURES, _RECALLS)
_KEY = re.compile(r"[0-9a-f]{32}")
_SUPPORT_FILE = re.compile(r"kjit_\w+\.o(?:\.d)?")

_LAST_USE_STEP_S = recall.LAST_USE_STEP_S
_ATTEMPTS = 10

_log = logging.getLogger("kjit")

# Of which variant the artifacts in a folder `<key1>` are, which never changes. Of an op with a thousand variants, each
# of a thousand misses would read the records of all others.
_labels: dict[str, str] = {}


# The name `<key2>` of the last hit in the folder of an op. Its variants mostly read the same headers and so have the
# same one, and to open a file takes less than to list its folder. What is found there is checked as all else is.
_likely_names: dict[str, str] = {}
_LIKELY_NAMES_KEPT = 1024


@dataclass(frozen=True)
class Lookup:
    """The answer to `find`: an artifact, or the reason why there is none.

    Attributes:
        shared: the folder of the shared cache that it is in; None where it is in this one.
    """

    artifact: Artifact | None
    reason: str
    shared: Path | None = None


class Missed(NamedTuple):
    """A look-up that found no artifact: its key (`key1`), and the reason."""

    key1: str
    reason: str


class Entry(NamedTuple):
    """A folder of the cache that is, or once was, an artifact. (Ten thousand of them are made three times as fast as
    dataclasses.)

    Attributes:
        key: `<target>/<op>/<key1>/<key2>`.
        size: bytes on disk.
        library_size: those of the library; -1 where it is missing.
        used: when it was last used, give or take half an hour; seconds since 1970.
    """

    path: str
    target: str
    op: str
    key: str
    size: int
    library_size: int
    used: float

    @property
    def folder(self) -> Path:
        return Path(self.path)


class Store:
    """The artifacts in one cache folder.

    Args:
        is_shared: somebody else fills it. It is only ever read, and nobody but its owner is trusted in it.
        asks_shared: where it has no artifact, the shared caches (`shared_caches`) are asked.
    """

    def __init__(self, root: Path, *, is_shared: bool = False, asks_shared: bool = False) -> None:
        self.root = root
        self.is_shared = is_shared
        self._asks_shared = asks_shared
        self._v1 = root / LAYOUT

    @classmethod
    def open(cls, root: Path | None = None) -> Store:
        """The store in `root`, by default the user's cache, which asks the shared caches for what it has not.

        Nothing is created before something is built.

        Raises:
            CacheError: the folder belongs to somebody else, or others may write to it.
        """
        store = _store(env.cache_dir() if root is None else root, asks_shared=root is None)
        refuse_unsafe(store.root, follow=True)
        refuse_unsafe(store._v1, follow=False, root=store.root)
        return store

    def writable(self, *, must_last: bool = False) -> Store:
        """This store if something can be put into it, else a private temporary one that lives as long as the process.

        Args:
            must_last: no temporary one will do.

        Raises:
            CacheError: the disk is full, or there is a file or a link where the folder should be; with `must_last`,
                whatever else keeps something from being put there.
            UsageError: `KJIT_CACHE_MAX_SIZE` is no size.
        """
        refused = self._why_not_writable()
        if refused is None:
            return self
        if must_last:
            raise CacheError(
                f"The cache '{self.root}' cannot be written ({refused}), and what is built would be lost at once.",
                hint=f"set {env.CACHE_DIR} to a folder that can be written, or write a bundle with --out",
            )
        return _temporary_store(os.getpid(), str(self.root), refused)

    def is_writable(self) -> bool:
        """Whether something can be put into it.

        Raises:
            CacheError: as `writable`.
        """
        return self._why_not_writable() is None

    def _why_not_writable(self) -> str | None:
        env.cache_max_size()  # a mistake in it is reported before something is compiled or copied
        try:
            for folder in (self._v1 / _LOCKS, self._v1 / _STAGING):
                make_private(folder)
                refuse_unsafe(folder, follow=False, root=self.root)
            return None if os.access(self._v1 / _STAGING, os.W_OK | os.X_OK) else "it is read-only"
        except (FileExistsError, NotADirectoryError):
            raise CacheError(
                f"The cache folder '{self.root}' cannot be made, because there is a file in its place.",
                hint=f"move the file away, or set {env.CACHE_DIR} to another folder",
            ) from None
        except OSError as error:
            if error.errno in NO_SPACE:
                raise disk_full(self.root) from None
            return error.strerror or str(error)

    def find(self, key: Key) -> Lookup:
        """Look an artifact up. Every header that it was built from is compared, and its library is checked.

        Raises:
            CacheError: others than its owner may write to this cache, or to a shared one that was asked.
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
        """As `find`; and what only a shared cache has is copied into this one, if this one can be written.

        A copy is found at once the next time, counts as used, and stays where it is: a mount may vanish under a
        program that has loaded from it, and who publishes a new team cache deletes the old one.
        """
        found = self.find(key)
        if found.artifact is None or found.shared is None:
            return found
        copy = self._copy(found.artifact, key)
        _log.info("%s comes from the shared cache %s", key.variant.label, found.shared)
        return found if copy is None else Lookup(copy, "")

    def shared_caches(self) -> list[Store]:
        """The caches that are asked for what this one has not, in their order; they need not exist.

        Raises:
            UsageError: `KJIT_SHARED_CACHE_DIR` names no folders.
        """
        if not self._asks_shared:
            return []
        # By where they lead: a folder may be named twice, or through a link, and may be the user's own.
        roots: dict[str, Path] = {}
        for root in env.shared_cache_dirs():
            roots.setdefault(os.path.realpath(root), root)
        roots.pop(os.path.realpath(self.root), None)
        return [Store(root, is_shared=True) for root in roots.values()]

    def distrusted(self) -> str | None:
        """Why nothing is loaded from this shared cache, or None where it is used (or not there)."""
        return distrust(self.root, follow=True) or distrust(self._v1)

    def _find_here(self, key: Key) -> Lookup:
        folder = self._folder(key)
        if not self.is_shared:
            self._refuse_unsafe_above(folder)
        elif (refusal := self._refusal(folder)) is not None:
            return Lookup(None, refusal)
        likely = _likely_names.get(os.path.dirname(folder))
        if likely is not None and isinstance(found := self._check(f"{folder}/{likely}", key), Artifact):
            return Lookup(found, "")
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
                if len(_likely_names) >= _LIKELY_NAMES_KEPT:
                    _likely_names.clear()
                _likely_names[os.path.dirname(folder)] = name
                return Lookup(found, "")
            # Of several artifacts that do not fit, the reason for one is reported; damage before all others.
            reason = found if not reason or found.startswith((DAMAGED, UNTRUSTED)) else reason
        return Lookup(None, reason)

    @contextlib.contextmanager
    def lock(self, key: Key, cancel: threading.Event | None = None) -> Iterator[None]:
        """Hold the lock of `key`: of all processes one builds it. A wait of more than a second is logged.

        Raises:
            CancelledError: `cancel` was set while this waited.
        """
        with locks.hold(self._v1 / _LOCKS / f"{key.key1}.lock", f"builds {key.variant.label}", cancel):
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

    def _copy(self, artifact: Artifact, key: Key) -> Artifact | None:
        """Put an artifact of a shared cache into this one; None where that cannot be done."""
        try:
            if self._why_not_writable() is not None:
                return None
            with self.staging() as folder:
                prepared = folder / "artifact"
                prepared.mkdir(mode=0o700)
                shutil.copyfile(artifact.library, prepared / artifact.library.name, follow_symlinks=False)
                close_to_others(prepared / artifact.library.name)
                write_record(prepared, {**artifact.record, "project": _project_of(key)})
                self._move_into_place(prepared, Path(self._folder(key), artifact.folder.name), key)
        except (OSError, CacheError) as error:
            _log.debug("%s is not copied into the cache: %s", artifact.folder, error)
            return None
        # What was copied is checked as everything is that is loaded.
        copy = self._find_here(key).artifact
        if copy is not None:
            self._make_room(copy)
        return copy

    def sweep(self) -> int:
        """Remove the staging folders of processes that have ended, and return how many there were."""
        return staging.sweep(self._v1 / _STAGING)

    def publish(self, key: Key, library: Path, reads: Reads, build: Mapping[str, object], folder: Path) -> Artifact:
        """Put a library into the store and return it as an artifact.

        Args:
            library: a file in `folder`; it is moved.
            build: what the build reported, as JSON.
            folder: from `staging()`.

        Raises:
            CacheError: the disk is full, or the cache was taken away.
        """
        try:
            prepared = folder / "artifact"
            prepared.mkdir(mode=0o700)
            record = {
                "format": FORMAT,
                "project": _project_of(key),
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
            close_to_others(library)
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
        artifact = Artifact(str(home), json.loads(json.dumps(record)), time.time())
        self._make_room(artifact)
        return artifact

    def remember_failure(self, key: Key, toolchain: Toolchain, refusal: Refusal, start: Start) -> None:
        """Note that compilers refused what `key` is about, if they will do so again. As `failures.remember`."""
        failures.remember(self._v1 / _FAILURES, self.root, key, toolchain, refusal, start)

    def recall_failure(self, key: Key) -> Mapping[str, str] | None:
        """What compilers said before to what `key` is about, if they would say it again. As `failures.recall`."""
        return failures.recall(self._v1 / _FAILURES, self.root, key)

    @property
    def texts(self) -> Path:
        """Where the sources are that were given as text (`load_inline`), in folders called by their content."""
        return self.root / inline.FOLDER

    def texts_by_age(self) -> list[tuple[float, int, str]]:
        """Of each folder of texts when it was written, its bytes and its path, the oldest first."""
        found = []
        for folder in subfolders(str(self.texts)):
            with contextlib.suppress(FileNotFoundError):  # somebody else removes it
                size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder.path))
                found.append((folder.stat(follow_symlinks=False).st_mtime, size, folder.path))
        return sorted(found)

    def texts_size(self) -> int:
        """How many bytes they take."""
        return sum(size for _, size, _ in self.texts_by_age())

    def note_text(self, size: int) -> None:
        """Note that a text of so many bytes was added."""
        limit.note_added(self._v1 / limit.COUNT, size)

    def forget_text(self, folder: str) -> None:
        """Remove the texts in one of their folders; who needs them writes them anew."""
        shutil.rmtree(folder, ignore_errors=True)

    def forget_texts(self) -> int:
        """Remove all of them, and return the bytes that were freed."""
        freed = self.texts_size()
        shutil.rmtree(self.texts, ignore_errors=True)
        return freed

    def forget_failures(self) -> None:
        """Let what did not compile be compiled again.

        Raises:
            CacheError: what is remembered of it may not be deleted.
        """
        try:
            failures.forget_all(self._v1 / _FAILURES)
        except OSError as error:
            raise _not_removed(self._v1 / _FAILURES, error) from None

    def _make_room(self, added: Artifact) -> None:
        limit.make_room(self, self._v1 / limit.COUNT, added)

    def build_seconds(self, op: str) -> dict[tuple[str, str], float]:
        """How long the variants of `op` took to build, by target and label: of each the last build that is here."""
        last: dict[tuple[str, str], tuple[float, float]] = {}
        for target in subfolders(self._v1):
            if target.name in _NO_TARGETS:
                continue
            for key1 in subfolders(f"{target.path}/{op}"):
                for key2 in subfolders(key1.path):
                    artifact = read_artifact(key2.path)
                    if isinstance(artifact, str) or not isinstance(seconds := artifact.build.get("seconds"), float):
                        continue
                    variant = (artifact.target, artifact.label)
                    last[variant] = max(last.get(variant, (0.0, 0.0)), (artifact.built, seconds))
        return {variant: seconds for variant, (_, seconds) in last.items()}

    def entries(self) -> Iterator[Entry]:
        """All artifacts, damaged ones included, in the order of their folders. Links are not followed."""
        for target in subfolders(self._v1):
            if target.name in _NO_TARGETS:
                continue
            name = _target_in(target.name)
            for op in subfolders(target):
                for key1 in subfolders(op):
                    for key2 in subfolders(key1) if _KEY.fullmatch(key1.name) else ():
                        if _KEY.fullmatch(key2.name):
                            key = f"{target.name}/{op.name}/{key1.name}/{key2.name}"
                            yield _entry(key2.path, name, op.name, key)

    def read(self, entry: Entry) -> Artifact | str:
        """The artifact of an entry with its library checked, or what is wrong with it."""
        owners = self._owners()
        artifact = untrusted(entry.path, owners) or read_artifact(entry.path, owners)
        if isinstance(artifact, str):
            return artifact
        return _misplaced(entry, artifact.record) or damage(artifact, owners, thorough=True) or artifact

    def unsafe_parts(self) -> Iterator[tuple[str, str]]:
        """What others can change in this cache besides artifacts (of which `read` tells): each path, and how."""
        artifacts = {entry.path for entry in self.entries()}
        owners = self._owners()
        waiting = [str(self.root), str(self._v1)]
        while waiting:
            path = waiting.pop()
            try:
                status = os.stat(path) if path == str(self.root) else os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            if (weak := weakness(status, owners)) is not None:
                yield path, weak
            if path != str(self.root):
                waiting += [entry.path for entry in scan(path) if entry.path not in artifacts]

    def summary(self, entry: Entry) -> Mapping[str, Any] | str:
        """What the record of an entry says of `label`, `arguments`, `built` and the like, or what is wrong with it.

        Faster than `read`: the library's size is compared and not its content, and only a part of the record read.
        """
        record = read_summary(entry.path)
        if isinstance(record, str):
            return record
        if entry.library_size != record["size"]:
            return f"{DAMAGED} its library {'is missing' if entry.library_size < 0 else 'has another size'}"
        return _misplaced(entry, record) or record

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
            pass  # somebody else removes it
        except OSError as error:
            raise _not_removed(entry.folder, error) from None
        self._remove_lock(entry.folder.parent.name)
        with contextlib.suppress(OSError):  # not empty, or gone already
            for folder in (entry.folder, *entry.folder.parents[:3]):
                folder.rmdir()
        return freed

    def support_code(self) -> list[Path]:
        """The files of the code that all modules share (support.py keeps them; a build makes them anew)."""
        return [
            Path(entry.path)
            for folder in subfolders(self._v1 / _SUPPORT)
            for entry in scan(folder.path)
            if _SUPPORT_FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]

    def recalls_size(self) -> int:
        """How many bytes the records take of which artifact served which request."""
        return recall_writer.size(str(self.root))

    def sweep_recalls(self, *, every: bool = False) -> int:
        """Delete the records of artifacts that are not here any more, and return the bytes that were freed.

        Args:
            every: delete all others, too.

        Raises:
            CacheError: one may not be deleted.
        """
        try:
            return recall_writer.sweep(str(self.root), every=every)
        except OSError as error:
            raise _not_removed(self._v1 / _RECALLS, error) from None

    def remove_support_code(self) -> int:
        """Delete the code that all modules share, and return the bytes that were freed.

        Raises:
            CacheError: it may not be deleted.
        """
        freed = 0
        for path in self.support_code():
            try:
                size = path.stat().st_size
                path.unlink()
                freed += size
            except FileNotFoundError:
                pass  # somebody else removes it
            except OSError as error:
                raise _not_removed(path, error) from None
            with contextlib.suppress(OSError):  # not empty yet
                path.parent.rmdir()
        return freed

    def _folder(self, key: Key) -> str:
        variant = key.variant
        # No colon in the name: depfiles, PATH-like variables and some file systems give it a meaning.
        return f"{self._v1}/{str(variant.target).replace(':', '-')}/{variant.spec.name}/{key.key1}"

    def _refusal(self, folder: str) -> str | None:
        """Why nothing is loaded from `folder` of this shared cache; None where it can be, or is not there.

        Raises:
            CacheError: nothing at all can be.
        """
        refusal = self.distrusted()
        if refusal is not None:
            raise CacheError(
                f"The shared cache '{self.root}' is not used, because {refusal}: who can do that chooses your code.",
                hint=f"its owner can `chmod -R go-w {self.root}`; or take it out of {env.SHARED_CACHE_DIR}",
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
        """Refuse the folders between this cache and an artifact where others can change them: who can put another
        folder into one of them chooses what is loaded, whatever was looked at before."""
        above = os.path.dirname(folder)
        for each in (os.path.dirname(above), above, folder):
            refuse_unsafe(each, follow=False, root=self.root)

    def _owners(self) -> tuple[int, ...]:
        """The users who may have filled this cache."""
        if not self.is_shared:
            return own_users()
        try:
            return (*own_users(), os.stat(self.root).st_uid)
        except OSError:
            return own_users()  # it is gone, and there is nothing in it

    def _check(self, folder: str, key: Key) -> Artifact | str:
        found = match(folder, key, self._owners(), thorough=self.is_shared)
        if isinstance(found, Artifact) and not self.is_shared:
            if found.is_outdated:
                _renew(found)
            elif abs(time.time() - found.used) > _LAST_USE_STEP_S:
                recall.note_use(folder)
        return found

    def _why_not(self, key: Key) -> str:
        """Why there is no artifact of this key: what differs from the last one of the same variant of this project."""
        project = _project_of(key)
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
        found = differences(inputs, json.loads(json.dumps(key.inputs))) if isinstance(inputs, dict) else []
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
            # There is one of the same two keys already: as good as this one, unless it is damaged.
            if isinstance(self._check(str(folder), key), Artifact):
                return
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder, staging.spare_name(self._v1 / _STAGING))
        raise CacheError(f"'{folder}' cannot be made: it is being removed all the time.")

    def _remove_lock(self, key1: str) -> None:
        path = self._v1 / _LOCKS / f"{key1}.lock"
        if path.parent.is_symlink():
            return
        with contextlib.suppress(OSError):
            handle = locks.open_file(path, os.O_NOFOLLOW)
            try:
                if locks.try_lock(handle):
                    path.unlink()
            finally:
                locks.release(handle)


@lru_cache(maxsize=64)
def _store(root: Path, asks_shared: bool) -> Store:
    """Stores know nothing but where they are; to put their paths together again took as long as to look into one."""
    return Store(root, asks_shared=asks_shared)


def _not_removed(path: Path, error: OSError) -> CacheError:
    return CacheError(f"'{path}' cannot be removed: {error.strerror}.", hint="check its permissions and its owner")


def _renew(artifact: Artifact) -> None:
    try:
        write_record(artifact.folder, artifact.record)
    except OSError as error:
        # A convenience: the next lookup compares the contents again.
        _log.debug("the record in %s is not renewed: %s", artifact.folder, error)


def _project_of(key: Key) -> str:
    """The folder of the project whose source the key is about: where to look whether it changed."""
    if not key.sources:
        return ""
    anchor, _ = key.anchors.relative(key.sources[0].path)
    return (key.anchors.absolute(anchor, "") if anchor else None) or ""


def _misplaced(entry: Entry, record: Mapping[str, Any]) -> str | None:
    """What is wrong with an artifact that is not where its record says that it belongs."""
    if entry.key == f"{record['target'].replace(':', '-')}/{record['op']}/{record['key1']}/{record['key2']}":
        return None
    return f"{DAMAGED} its record belongs to another artifact"


def _target_in(name: str) -> str:
    """A target as it is written, from the name of its folder."""
    return re.sub("^(cpu|cuda)-", r"\1:", name)


def _entry(path: str, target: str, op: str, key: str) -> Entry:
    size, library_size, used = 0, -1, 0.0
    try:
        status = os.lstat(f"{path}/{op}.so")
        size = library_size = status.st_size
        used = status.st_mtime
    except OSError:
        pass
    try:
        status = os.lstat(f"{path}/{RECORD}")
        size += status.st_size
        used = status.st_mtime
    except OSError:
        pass
    return Entry(path, target, op, key, size, library_size, used)


def _own_files(folder: Path, op: str) -> list[str]:
    return [entry.name for entry in scan(folder) if _is_own(entry.name, f"{op}.so")]


def _is_own(name: str, library: str) -> bool:
    return name in (RECORD, library) or RECORD_BEING_WRITTEN.fullmatch(name) is not None


@lru_cache(maxsize=8)
def _temporary_store(pid: int, instead_of: str, why: str) -> Store:
    """One for each process: a child after a fork has its own, as the parent's goes with the parent."""
    import atexit

    try:
        folder, remove = staging.make_temporary_folder()
    except OSError as error:
        raise CacheError(
            f"The cache '{instead_of}' cannot be written ({why}), nor can a temporary one be made: {error.strerror}.",
            hint=f"set {env.CACHE_DIR} to a folder that can be written",
        ) from None
    atexit.register(lambda: remove() if os.getpid() == pid else None)
    _log.warning(
        "the cache %s cannot be written (%s): what is compiled now is kept in %s and lost when this process ends",
        instead_of,
        why,
        folder,
    )
    return Store(folder).writable()
