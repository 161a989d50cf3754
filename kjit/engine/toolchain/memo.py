"""A memo of what compilers report about themselves, valid until they change.

Answers are kept with the program's size and modification time, in the process and in `<cache>/v2/compilers.json`, so
that a later process needs one `stat`. The trade-off: replaced parts of an unchanged driver are not noticed (package
managers replace both). The file is an optimisation: if it cannot be read or written, or others could have written it,
the program is run again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from kjit import env
from kjit.engine.cache.folders import make_private, read_own
from kjit.engine.toolchain import probes
from kjit.runtime import LAYOUT

_FORMAT = 1

_log = logging.getLogger("kjit")

Stamp = tuple[str, int, int]
"""A file's path, size and modification time in nanoseconds."""


def stamp(path: Path) -> Stamp:
    """The stamp of the file at `path`, following links.

    Raises:
        OSError: it is not there.
    """
    stat = probes.status(path)
    return (str(path), stat.st_size, stat.st_mtime_ns)


def is_unchanged(seen: Stamp) -> bool:
    """Whether the file still has this stamp."""
    try:
        stat = os.stat(seen[0])
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == seen[1:]


class Memo:
    """Answers by program and question, kept on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._programs = self._read()

    def recall(self, program: Stamp, question: str, ask: Callable[[], list[str]]) -> list[str]:
        """The answer to `question` about `program`; `ask` is called only if it is unknown."""
        path, size, mtime_ns = program
        known = self._programs.get(path)
        if not isinstance(known, dict) or (known.get("size"), known.get("mtime_ns")) != (size, mtime_ns):
            known = {"size": size, "mtime_ns": mtime_ns}
        answer = known.get(question)
        if not isinstance(answer, list) or not all(isinstance(item, str) for item in answer):
            answer = ask()
            # If another process writes at the same time, the last one wins; lost answers are asked for again.
            self._write({**self._read(), path: {**known, question: answer}})
        return answer

    def forget(self, program: Path) -> None:
        """Forget everything about a program."""
        self._write({path: known for path, known in self._read().items() if path != str(program)})

    def _read(self) -> dict[str, object]:
        try:
            content = json.loads(read_own(self._path, self._path.parent.parent))
            programs = content["programs"] if content["format"] == _FORMAT else None
        except FileNotFoundError:
            return {}
        except (OSError, LookupError, RecursionError, TypeError, ValueError) as error:
            _log.debug("the memo about compilers cannot be read: %s", error)
            return {}
        return programs if isinstance(programs, dict) else {}

    def _write(self, programs: dict[str, object]) -> None:
        self._programs = programs
        try:
            make_private(self._path.parent)
            being_written = self._path.with_name(f"compilers.{os.getpid()}.{threading.get_ident()}.tmp")
            handle = os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # whatever the umask is
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"format": _FORMAT, "programs": programs}, file, indent=1)
            os.replace(being_written, self._path)
        except OSError as error:
            _log.debug("the memo about compilers cannot be written: %s", error)


def open_memo() -> Memo:
    """The memo of the cache folder in use."""
    return _open(env.cache_dir() / LAYOUT / "compilers.json")


@lru_cache(maxsize=8)
def _open(path: Path) -> Memo:
    return Memo(path)
