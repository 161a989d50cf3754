"""Where are artifacts on disk, and how do many processes share them without ever loading a wrong one?

    <cache>/v1/<target>/<op>/<key1>/<key2>/{<op>.so, record.json}
    <cache>/v1/locks/<key1>.lock         held while that key is built
    <cache>/v1/staging/<id>/             a build in progress; <id>.lock is held by whoever works there

This is the one file that knows that layout (support.py and memo.py each keep something of their own beside it). An
artifact appears by one rename, complete or not at all, and its library never changes (its record is replaced, also by
rename, when a header got a new date). What is read is checked: the library's size and hash stand in the record, so that
a truncated or altered one counts as missing and is built again.

All locks are `flock` on files that stay open: the kernel releases them however their holder ends. A lookup takes none.
Where locks do not reach (a network mount), the worst case is that two machines compile the same thing; one of them
publishes first and the other takes that.

The trade-off of checking the hash on every load: half a microsecond for each kilobyte of library. Kernels are small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kjit import env
from kjit.build.headers import Reads
from kjit.build.key import FORMAT, Key, differences, digest
from kjit.errors import CacheError

_VERSION = "v1"
_LOCKS = "locks"
_STAGING = "staging"
_SUPPORT = "support"
_NO_TARGETS = (_LOCKS, _STAGING, _SUPPORT)
_RECORD = "record.json"
_KEY = re.compile(r"[0-9a-f]{32}")
_SUPPORT_FILE = re.compile(r"kjit_\w+\.o(?:\.d)?")
_RECORD_BEING_WRITTEN = re.compile(r"record\.json\.[0-9a-f]+")

_PATIENCE_S = 1.0
_POLL_S = 0.02
_LAST_USE_STEP_S = 24 * 3600.0
_OLDEST_BUILD_S = 24 * 3600.0
_ATTEMPTS = 10

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Artifact:
    """A built library and the record of what it was built from.

    Attributes:
        folder: holds the library and the record, and nothing else.
        used: when it was last used, give or take a day; seconds since 1970.
    """

    folder: Path
    record: Mapping[str, object]
    used: float

    @property
    def library(self) -> Path:
        return self.folder / f"{self.op}.so"

    @property
    def op(self) -> str:
        return str(self.record["op"])

    @property
    def label(self) -> str:
        """For people: `scale<fp32_t>`."""
        return str(self.record["label"])

    @property
    def target(self) -> str:
        return str(self.record["target"])

    @property
    def size(self) -> int:
        """Bytes of the library."""
        size = self.record["size"]
        assert isinstance(size, int)  # _parse has checked it
        return size

    @property
    def arguments(self) -> list[str]:
        """What tells the variant from others of the op."""
        arguments = self.record["arguments"]
        assert isinstance(arguments, list)  # _parse has checked it
        return [str(argument) for argument in arguments]

    @property
    def build(self) -> Mapping[str, object]:
        """What the build told: `seconds`, `resources`, `commands`, `warnings`."""
        build = self.record["build"]
        assert isinstance(build, dict)  # _parse has checked it
        return build

    @property
    def built(self) -> float:
        """When it was built; seconds since 1970."""
        built = self.record["built"]
        assert isinstance(built, float)  # _parse has checked it
        return built


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
        _refuse_unsafe(store.root, follow=True)
        _refuse_unsafe(store._v1, follow=False)
        return store

    def writable(self) -> Store:
        """This store if something can be put into it, else a private temporary one that lives as long as the process.

        Raises:
            CacheError: the disk is full, or there is a file where the folder should be.
        """
        try:
            for folder in (_LOCKS, _STAGING):
                _make_private(self._v1 / folder)
            refused = None if os.access(self._v1 / _STAGING, os.W_OK | os.X_OK) else "it is read-only"
        except (FileExistsError, NotADirectoryError):
            raise CacheError(
                f"The cache folder '{self.root}' cannot be made, because there is a file in its place.",
                hint=f"move the file away, or set {env.CACHE_DIR} to another folder",
            ) from None
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise _disk_full(self.root) from None
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
            reason = found if not reason or found.startswith(_DAMAGED) else reason
        return Lookup(None, reason)

    @contextlib.contextmanager
    def lock(self, key: Key, cancel: threading.Event | None = None) -> Iterator[None]:
        """Hold the lock of `key`: of all processes one builds it. A wait of more than a second is logged.

        Raises:
            CancelledError: `cancel` was set while this waited.
        """
        path = self._v1 / _LOCKS / f"{key.key1}.lock"
        handle = _acquire(path, key.variant.label, cancel or threading.Event())
        try:
            yield
        finally:
            _release(handle)

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A fresh folder for one build, removed afterwards. Folders whose processes have died are removed too.

        Raises:
            CacheError: the disk is full.
        """
        self.sweep()
        folder, handle = self._new_staging()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}.lock")
            _release(handle)

    def publish(self, key: Key, library: Path, reads: Reads, build: Mapping[str, object], staging: Path) -> Artifact:
        """Put a library into the store and return it as an artifact.

        Args:
            library: a file in `staging`; it is moved.
            build: what the build told, as JSON.
            staging: from `staging()`.

        Raises:
            CacheError: the disk is full, or the cache was taken away.
        """
        try:
            prepared = staging / "artifact"
            prepared.mkdir(mode=0o700)
            content = library.read_bytes()
            os.replace(library, prepared / f"{key.variant.spec.name}.so")
            record = {
                "format": FORMAT,
                "op": key.variant.spec.name,
                "label": key.variant.spec.label,
                "arguments": key.variant.spec.args,
                "target": str(key.variant.target),
                "key1": key.key1,
                "key2": reads.key2,
                "source_key": key.source_key,
                "size": len(content),
                "digest": digest(content),
                "reads": reads.to_json(),
                "inputs": key.inputs,
                "build": build,
                "built": time.time(),
            }
            _write_record(prepared, record)
            folder = Path(self._folder(key), reads.key2)
            self._move_into_place(prepared, folder, staging, key)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise _disk_full(self.root) from None
            raise CacheError(
                f"'{library.name}' cannot be put into the cache '{self.root}': {error.strerror}."
            ) from None
        artifact = _parse(folder, json.loads(json.dumps(record)), time.time())
        assert isinstance(artifact, Artifact)  # written a moment ago
        return artifact

    def build_seconds(self, op: str) -> dict[tuple[str, str], float]:
        """How long the variants of `op` took to build, by target and label: of each the last build that is here."""
        last: dict[tuple[str, str], tuple[float, float]] = {}
        for target in _folders(self._v1):
            if target.name in _NO_TARGETS:
                continue
            for key1 in _folders(target / op):
                for key2 in _folders(key1):
                    artifact = _read_artifact(str(key2))
                    if isinstance(artifact, str) or not isinstance(seconds := artifact.build.get("seconds"), float):
                        continue
                    variant = (artifact.target, artifact.label)
                    last[variant] = max(last.get(variant, (0.0, 0.0)), (artifact.built, seconds))
        return {variant: seconds for variant, (_, seconds) in last.items()}

    def entries(self) -> Iterator[Entry]:
        """All artifacts, damaged ones included, in the order of their folders. Links are not followed."""
        for target in _folders(self._v1):
            if target.name in _NO_TARGETS:
                continue
            for op in _folders(target):
                for key1 in _folders(op):
                    for key2 in _folders(key1):
                        if _KEY.fullmatch(key1.name) and _KEY.fullmatch(key2.name):
                            yield _entry(key2, _target_in(target.name), op.name)

    def read(self, entry: Entry) -> Artifact | str:
        """The artifact of an entry with its library checked, or what is wrong with it."""
        artifact = _read_artifact(str(entry.folder))
        return artifact if isinstance(artifact, str) else _damage(artifact) or artifact

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
            for name in sorted(_own_files(entry.folder, entry.op), key=lambda name: name != _RECORD):
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
            for folder in _folders(self._v1 / _SUPPORT)
            for entry in _scan(folder)
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

    def sweep(self) -> int:
        """Remove the staging folders of processes that have ended, and return how many there were."""
        swept = 0
        staging = self._v1 / _STAGING
        names = {entry.name for entry in _scan(staging)}
        for name in {name.removesuffix(".lock") for name in names}:
            lock = staging / f"{name}.lock"
            # A lock that was just here is not made again: its build has ended by itself.
            create = 0 if lock.name in names else os.O_CREAT
            try:
                handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | create, 0o600)
            except OSError:
                continue
            try:
                if _try_lock(handle) and _is_current(handle, lock) and _is_local(handle):
                    shutil.rmtree(staging / name, ignore_errors=True)
                    lock.unlink(missing_ok=True)
                    swept += 1
            except OSError as error:
                _log.debug("%s is not swept: %s", lock, error)
            finally:
                os.close(handle)
        return swept

    def _folder(self, key: Key) -> str:
        variant = key.variant
        # No colon in the name: depfiles, PATH-like variables and some file systems give it a meaning.
        return f"{self._v1}/{str(variant.target).replace(':', '-')}/{variant.spec.name}/{key.key1}"

    def _check(self, folder: str, key: Key) -> Artifact | str:
        artifact = _read_artifact(folder)
        if isinstance(artifact, str):
            return artifact
        record = artifact.record
        if record["key1"] != key.key1 or record["op"] != key.variant.spec.name:
            return f"{_DAMAGED} its record belongs to another artifact"
        reads = record["reads"]
        assert isinstance(reads, dict)  # _parse has checked it
        try:
            before = Reads.from_json(reads)
            after = before.compare(key.anchors)
        except (KeyError, TypeError, ValueError):
            return f"{_DAMAGED} its record lists no headers"
        if isinstance(after, str):
            return after
        damage = _damage(artifact)
        if damage is not None:
            return damage
        if after is not before:
            _renew(artifact.folder, {**record, "reads": after.to_json()})
        elif abs(time.time() - artifact.used) > _LAST_USE_STEP_S:
            with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted either
                os.utime(f"{folder}/{_RECORD}")
        return artifact

    def _why_not(self, key: Key) -> str:
        """Why there is no artifact of this key: what differs from the last one of the same variant."""
        op_folder = Path(self._folder(key)).parent
        newest: Artifact | None = None
        for key1 in _folders(op_folder):
            for key2 in _folders(key1):
                artifact = _read_artifact(str(key2))
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

    def _new_staging(self) -> tuple[Path, int]:
        staging = self._v1 / _STAGING
        try:
            for _ in range(_ATTEMPTS):
                # Random and not the process id: the cache may be a shared mount, where two machines hold the same id.
                folder = staging / secrets.token_hex(8)
                lock = Path(f"{folder}.lock")
                handle = _open_lock(lock)
                # A sweep may have come between the two calls, and have taken the lock for a dead one.
                if _try_lock(handle) is not False and _is_current(handle, lock):
                    os.pwrite(handle, os.uname().nodename.encode(), 0)
                    folder.mkdir(mode=0o700)
                    return folder, handle
                lock.unlink(missing_ok=True)
                os.close(handle)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise _disk_full(self.root) from None
            raise CacheError(f"No folder to build in can be made in '{staging}': {error.strerror}.") from None
        raise CacheError(f"No folder to build in can be made in '{staging}': it is being removed all the time.")

    def _move_into_place(self, prepared: Path, folder: Path, staging: Path, key: Key) -> None:
        for _ in range(_ATTEMPTS):
            try:
                _make_private(folder.parent)
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
                os.rename(folder, staging / secrets.token_hex(8))
        raise CacheError(f"'{folder}' cannot be made: it is being removed all the time.")

    def _remove_lock(self, key1: str) -> None:
        path = self._v1 / _LOCKS / f"{key1}.lock"
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _try_lock(handle):
                    path.unlink()
            finally:
                os.close(handle)


_DAMAGED = "the artifact in the cache is damaged:"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def _read_artifact(folder: str) -> Artifact | str:
    try:
        with open(f"{folder}/{_RECORD}", "rb") as file:
            document = json.loads(file.read())
            used = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return f"{_DAMAGED} its record is missing"
    except OSError as error:
        return f"its record cannot be read ({error.strerror})"
    except ValueError:
        return f"{_DAMAGED} its record is not JSON"
    return _parse(Path(folder), document, used)


def _parse(folder: Path, document: object, used: float) -> Artifact | str:
    if not isinstance(document, dict):
        return f"{_DAMAGED} its record is not a JSON object"
    if document.get("format") != FORMAT:
        return f"it was written by another version of kjit (format {document.get('format')})"
    for field, kind in _FIELDS.items():
        if type(document.get(field)) is not kind:
            return f"{_DAMAGED} its record has no {field}"
    if not re.fullmatch(r"\w+", document["op"]):
        return f"{_DAMAGED} its record names no op"
    return Artifact(folder, document, used)


_FIELDS = {
    "op": str,
    "label": str,
    "arguments": list,
    "target": str,
    "key1": str,
    "key2": str,
    "source_key": str,
    "size": int,
    "digest": str,
    "reads": dict,
    "inputs": dict,
    "build": dict,
    "built": float,
}


def _damage(artifact: Artifact) -> str | None:
    try:
        with open(f"{artifact.folder}/{artifact.op}.so", "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return f"{_DAMAGED} its library is missing"
    except OSError as error:
        return f"its library cannot be read ({error.strerror})"
    if len(content) != artifact.size:
        return f"{_DAMAGED} its library has {len(content)} bytes and not {artifact.size}"
    if digest(content) != artifact.record["digest"]:
        return f"{_DAMAGED} its library was altered"
    return None


def _write_record(folder: Path, record: Mapping[str, object]) -> None:
    being_written = folder / f"{_RECORD}.{secrets.token_hex(4)}"
    try:
        with open(being_written, "x", encoding="ascii") as file:
            file.write(json.dumps(record, separators=(",", ":")))
        os.replace(being_written, folder / _RECORD)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise


def _renew(folder: Path, record: Mapping[str, object]) -> None:
    try:
        _write_record(folder, record)
    except OSError as error:
        # A convenience: the next lookup compares the contents again.
        _log.debug("the record in %s is not renewed: %s", folder, error)


def _target_in(name: str) -> str:
    """A target as it is written, from the name of its folder."""
    return re.sub("^(cpu|cuda)-", r"\1:", name)


def _entry(folder: Path, target: str, op: str) -> Entry:
    size, used = 0, 0.0
    for name in _own_files(folder, op):
        with contextlib.suppress(FileNotFoundError):
            status = (folder / name).lstat()
            size += status.st_size
            used = status.st_mtime if name == _RECORD else used or status.st_mtime
    return Entry(folder, target, op, "/".join(folder.parts[-4:]), size, used)


def _own_files(folder: Path, op: str) -> list[str]:
    return [
        entry.name
        for entry in _scan(folder)
        if entry.name in (_RECORD, f"{op}.so") or _RECORD_BEING_WRITTEN.fullmatch(entry.name)
    ]


def _folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _scan(folder) if entry.is_dir(follow_symlinks=False)]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _refuse_unsafe(folder: Path, *, follow: bool) -> None:
    """Whoever can write into the cache decides which code is loaded, so it must be this user (or root) alone."""
    try:
        status = os.stat(folder, follow_symlinks=follow)
    except OSError:
        return  # not there: nothing is loaded from it, and `writable` says why it cannot be made
    if stat.S_ISLNK(status.st_mode):
        raise CacheError(
            f"'{folder}' is a symbolic link, and the cache is not followed out of its folder.",
            hint=f"remove the link, or set {env.CACHE_DIR} to where it points",
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"The cache folder '{folder}' is another user's (id {status.st_uid}), who can change what you load.",
            hint=f"set {env.CACHE_DIR} to a folder of your own, or `chown -R {os.geteuid()} {folder}`",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(
            f"Others than you may write to the cache folder '{folder}' and so choose the code that you load.",
            hint=f"`chmod go-w {folder}`, or set {env.CACHE_DIR} to a folder of your own",
        )


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


def _make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone whatever the umask is."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        _make_private(path.parent)  # the cache was removed while in use
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _acquire(path: Path, label: str, cancel: threading.Event) -> int:
    while True:
        handle = _open_lock(path)
        try:
            _wait(handle, label, cancel)
            if _is_current(handle, path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # somebody removed the file between `open` and the lock


def _wait(handle: int, label: str, cancel: threading.Event) -> None:
    # Asking again and again, because a thread that the kernel has put to sleep cannot be called back.
    patience: float | None = time.monotonic() + _PATIENCE_S
    while _try_lock(handle) is False:
        if cancel.wait(_POLL_S):
            raise CancelledError
        if patience is not None and time.monotonic() > patience:
            holder = os.pread(handle, 200, 0).decode(errors="replace") or "another process"
            _log.warning("waiting for %s, which builds %s", holder, label)
            patience = None


def _try_lock(handle: int) -> bool | None:
    """Whether the lock was free and is ours now; None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _log.debug("working without a lock: %s", error)
        return None
    return True


def _is_local(handle: int) -> bool:
    """Whether a staging lock is of this machine, whose locks tell the truth, or too old to be of a live build."""
    host = os.pread(handle, 200, 0).decode(errors="replace")
    return host == os.uname().nodename or time.time() - os.fstat(handle).st_mtime > _OLDEST_BUILD_S


def _is_current(handle: int, path: Path) -> bool:
    """Whether `path` still is the file that was opened."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _release(handle: int) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        # Explicitly, because a child that was forked meanwhile keeps the file open.
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _disk_full(folder: Path) -> CacheError:
    return CacheError(
        f"No space is left on the disk of the cache '{folder}'.",
        hint=f"free some space (`kjit clean-cache`), or set {env.CACHE_DIR} to a folder on another disk",
    )
