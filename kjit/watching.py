"""Watching files: the ops that a change affects.

A file with an op's name belongs to that op. Any other source or header of the project may be used by all ops, and a
look-up shows which are affected: those served by other artifacts than before. So a change of a shared header builds and
tests the ops that include it, and so does reverting it. Failed ops are tried again at every change.
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
_CLOCKS_APART_NS = 20_000_000  # a file's time may be this much before the clock's

SUFFIXES = (".py", ".cuh", ".cu", ".cpp", ".cc", ".h", ".hpp")


def require_watchfiles() -> None:
    """Check before anything else that watchfiles is installed.

    Raises:
        KjitError: it is not.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise KjitError(
            "`kjit watch` needs watchfiles, which is not installed.", hint="pip install 'kjit[watch]'"
        ) from None


def folders(project: Project, specs: Iterable[Spec] = ()) -> list[Path]:
    """The folders to watch: those of the project, and those inside it with sources and headers of `specs`; without
    subfolders of others."""
    named = [*project.folders]
    for spec in specs:
        sources = [Path(file).parent for file in (*spec.cuda_files, *spec.cpp_files)]
        named += [
            each for each in (*sources, *map(Path, spec.extra_include_paths)) if each.is_relative_to(project.root)
        ]
    exist = [folder for folder in dict.fromkeys(named) if folder.is_dir()]
    return [each for each in exist if not any(each != other and each.is_relative_to(other) for other in exist)]


class Watcher:
    """Waits for changes. It compares times and sizes of files, so that changes between two waits are not missed;
    watchfiles signals when to compare.

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
        """Watch further folders.

        Args:
            since_ns: files saved after this time count as changed; by default none do.
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
        """Wait for changes; the files that changed, appeared or disappeared since the last call, at least one."""
        while True:
            self._woken.clear()
            states = self._states(self._watched)
            # Editors truncate a file before writing it, and may save several files: wait until they have finished.
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
            # It may not have been listening at first.
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
                    with contextlib.suppress(OSError):  # it is being removed
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
    """The `ops` that a change affects.

    Args:
        changed: the files; empty for the first round, which affects all.
        before, now: the artifacts of each op.
        failed: ops that did not build, or whose tests failed.
    """
    files = list(changed)
    own = {path: op for op in ops for path in (*project.files_of(op), *_names(project, op))}
    touched = {own[path] for path in files if path in own}
    # Other Python files are helpers of all ops: a conftest.py, another module.
    is_helper = any(path.suffix == ".py" and path not in own and _is_helper(project, path) for path in files)
    if not files or is_helper:
        return list(ops)
    return [op for op in ops if op in touched or op in failed or list(before.get(op, ())) != list(now.get(op, ()))]


def _names(project: Project, op: str) -> list[Path]:
    """The possible files of an op, including missing ones, as one may just have been deleted."""
    return [project.wrapper_path(op), project.test_path(op), project.benchmark_path(op)]


def _is_helper(project: Project, path: Path) -> bool:
    others = {each for op in project.ops() for each in _names(project, op)}
    return path not in others
