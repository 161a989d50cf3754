"""Failed builds that would fail again.

    <cache>/v1/failures/<key1>.json

With the same sources, headers, flags and compilers, a failed compile fails again. If many calls need one broken op (its
tests, the workers of a test run), the first one compiles, and the others get the same answer.

A wrong repetition of an error is worse than a needless compile. So a failure is recorded only if its causes are known:
each failed command named a line in a file that it read and listed the files that it read, for a missing header in a
second run (missing.py); or an assembler or the linker rejected the result (compile/repeatable.py decides). Nothing is
recorded of a compiler that was killed, ran out of memory or crashed, or of a link with the op's own flags. The files
read are compared like an artifact's headers, and also by the times of all files, including those of the system: a file
that was only touched causes a new compile. So does a new file at a place of a missing header. Records expire after an
hour.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kjit.engine.cache.folders import make_private, read_own, refuse_unsafe, scan
from kjit.engine.key.headers import Reads
from kjit.engine.key.key import FORMAT, Key
from kjit.engine.toolchain.programs import find_launcher
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError

if TYPE_CHECKING:
    from kjit.engine.key.observation import Start

_LASTS_S = 3600.0
_LONGEST_LOG = 1 << 20

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Refusal:
    """The output of compilers that rejected sources.

    Attributes:
        logs: the output of each failed command, by the name of its output file.
        files: every file that these commands read, except generated ones; absolute.
        others: further files that they read, according to flags.
        sought: paths where a missing header may appear.
    """

    logs: Mapping[str, str]
    files: tuple[str, ...]
    others: tuple[str, ...] = ()
    sought: tuple[str, ...] = ()


def remember(folder: Path, root: Path, key: Key, toolchain: Toolchain, refusal: Refusal, start: Start) -> None:
    """Record a failure, unless something that it depends on may have changed since `start`.

    Args:
        folder: `<cache>/v1/failures` in the cache `root`.
    """
    if sum(map(len, refusal.logs.values())) > _LONGEST_LOG:
        return
    from kjit.engine.key.observation import Observation  # not needed by look-ups

    earliest_ns = start.earliest_ns()
    try:
        observed = Observation.of(refusal.files, key, toolchain, others=refusal.others, sought=refusal.sought)
        states = [_state(path) for path in (*refusal.files, *refusal.others)]
        is_settled = (
            not observed.changed_since(earliest_ns, {state.path: state for state in key.sources})
            and all(ctime_ns < earliest_ns for *_, ctime_ns in states)
            and Toolchain.for_target(key.variant.target) == toolchain
        )
        if not is_settled:
            return
        make_private(folder)
        refuse_unsafe(folder, follow=False, root=root)
        for each in _outdated(folder):
            each.unlink(missing_ok=True)
        document = {
            **_circumstances(key),
            "written": time.time(),
            "files": states,
            "reads": observed.reads.to_json(),
            "logs": dict(refusal.logs),
        }
        being_written = folder / f"{key.key1}.{secrets.token_hex(4)}"
        handle = os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "w", encoding="ascii") as file:
                json.dump(document, file)
            os.replace(being_written, _path(folder, key))
        except OSError:
            being_written.unlink(missing_ok=True)
            raise
    except (OSError, KjitError) as error:
        _log.debug("the failure of %s is not recorded: %s", key.variant.label, error)


def recall(folder: Path, root: Path, key: Key) -> Mapping[str, str] | None:
    """The output of failed commands that would fail again, by the names of their output files; None if that is not
    certain."""
    try:
        document: Any = json.loads(read_own(_path(folder, key), root))
        if any(document[name] != value for name, value in _circumstances(key).items()):
            return None
        if not 0 <= time.time() - document["written"] < _LASTS_S:
            return None
        if any(_state(state[0]) != tuple(state) for state in document["files"]):
            return None
        if isinstance(Reads.from_json(document["reads"]).compare(key.anchors), str):
            return None
        logs: Mapping[str, str] = document["logs"]
        return {str(name): str(log) for name, log in logs.items()} or None
    except FileNotFoundError:
        return None
    except (AttributeError, IndexError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        _log.debug("the recorded failure of %s cannot be read: %s", key.variant.label, error)
        return None


def forget_all(folder: Path) -> None:
    """Remove all recorded failures.

    Raises:
        OSError: one cannot be removed.
    """
    for entry in scan(folder):
        Path(entry.path).unlink(missing_ok=True)


def _path(folder: Path, key: Key) -> Path:
    return folder / f"{key.key1}.json"


def _circumstances(key: Key) -> dict[str, object]:
    """Values besides the key that must be unchanged: the output names files by their paths."""
    spec = key.variant.spec
    launcher = find_launcher()
    return {
        "format": FORMAT,
        "key1": key.key1,
        "places": [*spec.cuda_files, *spec.cpp_files, *spec.extra_include_paths],
        "launcher": None if launcher is None else str(launcher),
    }


def _state(path: str) -> tuple[str, int, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_ino, status.st_ctime_ns


def _outdated(folder: Path) -> Iterator[Path]:
    for entry in scan(folder):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LASTS_S:
            yield Path(entry.path)
