"""The ops that a change affects, and the files that count as one.

A file that carries an op's name is that op's. Any other source or header of the project may be in every op, and what is
really concerned shows when they are looked up: the artifacts that serve an op are others than before. So a change of a
shared header builds and tests the ops that include it, and a header that gets its old text back does, too. What failed
is tried again at every change.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread

from kjit.errors import KjitError
from kjit.project import Project
from kjit.runtime.load import BUNDLE
from kjit.spec import Spec

_SETTLES_S = 0.05
_CLOCKS_APART_NS = 20_000_000  # by so much a file's date may be behind the clock

SUFFIXES = (".py", ".cuh", ".cu", ".cpp", ".cc", ".h", ".hpp")


def require_watchfiles() -> None:
    """Ask before anything else is done.

    Raises:
        KjitError: watchfiles is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise KjitError(
            "`kjit watch` needs watchfiles, which is not installed.", hint="pip install 'kjit[watch]'"
        ) from None


def folders(project: Project, specs: Iterable[Spec] = ()) -> list[Path]:
    """What is watched: the folders of the project that exist, and those inside of it that `specs` take sources and
    headers from; none inside of another."""
    named = [*project.folders]
    for spec in specs:
        sources = [Path(file).parent for file in (*spec.cuda_files, *spec.cpp_files)]
        named += [
            each for each in (*sources, *map(Path, spec.extra_include_paths)) if each.is_relative_to(project.root)
        ]
    exist = [folder for folder in dict.fromkeys(named) if folder.is_dir()]
    return [each for each in exist if not any(each != other and each.is_relative_to(other) for other in exist)]


class Watcher:
    """Waits for changes. What it compares are dates and sizes of files, so that nothing is missed that changes while
    nobody waits; watchfiles tells when to look.

    Args:
        root: the project's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stop = Event()
        self._woken = Event()
        self._watched: list[Path] = []
        self._known: dict[Path, tuple[int, int]] = {}

    def watch(self, folders: Iterable[Path], since_ns: int | None = None) -> None:
        """Watch these folders, too.

        Args:
            since_ns: a time; what was saved after it has changed. By default nothing has yet.
        """
        new = [each for each in folders if not any(each.is_relative_to(known) for known in self._watched)]
        if new:
            self._watched += new
            states = self._states(new)
            if since_ns is not None:
                states = {path: state for path, state in states.items() if state[0] < since_ns - _CLOCKS_APART_NS}
            self._known |= states
            Thread(target=self._listen, args=(new,), daemon=True).start()

    def wait(self) -> list[Path]:
        """The files that have changed, appeared or gone since the last call, one at least."""
        while True:
            self._woken.clear()
            states = self._states(self._watched)
            # An editor empties a file and then writes it, and saves several files: what it does is to be over.
            while states != self._known and (later := self._states_soon()) != states:
                states = later
            changed = {path for path, _ in self._known.items() ^ states.items()}
            if changed:
                self._known = states
                return sorted(changed)
            self._woken.wait()

    def _states_soon(self) -> dict[Path, tuple[int, int]]:
        time.sleep(_SETTLES_S)
        return self._states(self._watched)

    def end(self) -> None:
        """Let the threads end."""
        self._stop.set()

    def _listen(self, folders: Sequence[Path]) -> None:
        from watchfiles import watch

        is_new = True
        for lot in watch(
            *folders,
            watch_filter=self._is_source,
            stop_event=self._stop,
            debounce=400,
            rust_timeout=1000,
            yield_on_timeout=True,
        ):
            # At first it was not listening yet.
            if lot or is_new:
                self._woken.set()
            is_new = False

    def _is_source(self, change: object, path: str) -> bool:
        del change
        parts = Path(os.path.relpath(path, self._root)).parts
        hidden = any(part.startswith((".", "__pycache__")) or part == BUNDLE for part in parts)
        return path.endswith(SUFFIXES) and not hidden

    def _states(self, folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
        states = {}
        for folder in folders:
            for path in folder.rglob("*"):
                if path.name.endswith(SUFFIXES) and self._is_source(None, str(path)):
                    with contextlib.suppress(OSError):  # it goes at this moment
                        status = path.stat()
                        states[path] = (status.st_mtime_ns, status.st_size)
        return states


def concerned(
    project: Project,
    ops: Sequence[str],
    changed: Iterable[Path],
    before: Mapping[str, Sequence[str]],
    now: Mapping[str, Sequence[str]],
    failed: Iterable[str],
) -> list[str]:
    """Which of `ops` a change concerns.

    Args:
        changed: the files; none: the first round, which concerns all.
        before, now: the artifacts that serve each op.
        failed: ops that did not build, or whose tests failed.
    """
    files = list(changed)
    own = {path: op for op in ops for path in (*project.files_of(op), *_names(project, op))}
    touched = {own[path] for path in files if path in own}
    # What no op owns in Python is a helper of all: a conftest.py, another module.
    is_helper = any(path.suffix == ".py" and path not in own and _is_helper(project, path) for path in files)
    if not files or is_helper:
        return list(ops)
    return [op for op in ops if op in touched or op in failed or list(before.get(op, ())) != list(now.get(op, ()))]


def _names(project: Project, op: str) -> list[Path]:
    """The files that an op would have, there or not: one may just have been deleted."""
    return [project.wrapper_path(op), project.test_path(op), project.benchmark_path(op)]


def _is_helper(project: Project, path: Path) -> bool:
    others = {each for op in project.ops() for each in _names(project, op)}
    return path not in others
