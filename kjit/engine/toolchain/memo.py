"""A memo of what compilers report about themselves, valid until they change.

Answers are kept with the program's size and modification time, in the process and in `<cache>/v2/compilers.json`, so
that a later process needs one `stat`. The trade-off: replaced parts of an unchanged driver are not noticed (package
managers replace both). The file is an optimisation: if it cannot be read or written, or others could have written it,
the program is run again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
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
        answer = self.known(program, question)
        if answer is None:
            answer = ask()
            self.learn(program, question, answer)
        return answer

    def known(self, program: Stamp, question: str) -> list[str] | None:
        """The remembered answer to `question` about `program`."""
        answer = self._about(program).get(question)
        is_answer = isinstance(answer, list) and all(isinstance(item, str) for item in answer)
        return answer if is_answer else None  # type: ignore[return-value]

    def learn(self, program: Stamp, question: str, answer: list[str]) -> None:
        """Remember an answer."""
        # If another process writes at the same time, the last one wins; lost answers are asked for again.
        self._programs = {**self._read(), program[0]: {**self._about(program), question: answer}}
        self._write()

    def _about(self, program: Stamp) -> dict[str, object]:
        path, size, mtime_ns = program
        known = self._programs.get(path)
        if isinstance(known, dict) and known.get("size") == size and known.get("mtime_ns") == mtime_ns:
            return known
        return {"size": size, "mtime_ns": mtime_ns}

    def forget(self, program: Path) -> None:
        """Forget everything about a program."""
        self._programs = {path: known for path, known in self._read().items() if path != str(program)}
        self._write()

    def _read(self) -> dict[str, object]:
        try:
            content = json.loads(read_own(self._path, self._path.parent.parent))
        except FileNotFoundError:
            return {}
        except (OSError, RecursionError, ValueError) as error:
            _log.debug("the memo about compilers cannot be read: %s", error)
            return {}
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return {}
        programs = content.get("programs")
        return programs if isinstance(programs, dict) else {}

    def _write(self) -> None:
        import tempfile

        folder = self._path.parent
        try:
            make_private(folder)
            handle, name = tempfile.mkstemp(dir=folder, prefix="compilers.", suffix=".tmp")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump({"format": _FORMAT, "programs": self._programs}, file, indent=1)
                os.replace(name, self._path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            _log.debug("the memo about compilers cannot be written: %s", error)


def open_memo() -> Memo:
    """The memo of the cache folder in use."""
    return _open(env.cache_dir() / LAYOUT / "compilers.json")


@lru_cache(maxsize=8)
def _open(path: Path) -> Memo:
    return Memo(path)
