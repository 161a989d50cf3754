"""Watching files: the ops that a change affects.

A file with an op's name belongs to that op. Any other source or header of the project may be used by all ops, and a
look-up shows which are affected: those served by other artifacts than before. So a change of a shared header builds and
tests the ops that include it, and so does reverting it. Failed ops are tried again at every change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kjit.project import Project
from kjit.runtime.load import BUNDLE
from kjit.spec import Spec

_SUFFIXES = (".py", ".cuh", ".cu", ".cpp", ".cc", ".h", ".hpp")
_BEGINS_MS = 100  # after which the first answer comes


def folders(project: Project, specs: Iterable[Spec] = ()) -> list[Path]:
    """The folders to watch: those of the project, and those inside it with sources and headers of `specs`."""
    files = [Path(file).parent for spec in specs for file in (*spec.cuda_files, *spec.cpp_files)]
    included = [Path(folder) for spec in specs for folder in spec.extra_include_paths]
    inside = [folder for folder in (*files, *included) if folder.is_relative_to(project.root)]
    return [folder for folder in dict.fromkeys((*project.folders, *inside)) if folder.is_dir()]


def changes(project: Project, folders: Sequence[Path]) -> Iterator[list[Path]]:
    """An empty list once watching has begun; then, for each change, the files that were saved, added or removed.

    What happens before the next list is asked for is in it.
    """
    from watchfiles import watch

    def is_source(change: object, path: str) -> bool:
        del change
        parts = Path(os.path.relpath(path, project.root)).parts
        hidden = any(part.startswith((".", "__pycache__")) or part == BUNDLE for part in parts)
        return path.endswith(_SUFFIXES) and not hidden

    has_begun = False
    for found in watch(*folders, watch_filter=is_source, debounce=400, yield_on_timeout=True, rust_timeout=_BEGINS_MS):
        if found or not has_begun:
            has_begun = True
            yield sorted({Path(path) for _, path in found})


def concerned(
    project: Project,
    ops: Sequence[str],
    changed: Iterable[Path],
    before: Mapping[str, Sequence[object]],
    now: Mapping[str, Sequence[object]],
    failed: Iterable[str],
) -> list[str]:
    """The `ops` that a change affects.

    Args:
        changed: the files; empty for the first round, which affects all.
        before, now: the artifacts of each op.
        failed: ops that did not build, or whose tests failed.
    """
    files = list(changed)
    # Including files that have just been deleted.
    names = (project.wrapper_path, project.test_path, project.benchmark_path)
    owner = {path: op for op in project.ops() for path in (*project.files_of(op), *(of(op) for of in names))}
    # Other Python files are helpers of all ops: a conftest.py, another module.
    if not files or any(path.suffix == ".py" and path not in owner for path in files):
        return list(ops)
    touched = {owner.get(path) for path in files}
    return [op for op in ops if op in touched or op in failed or list(before.get(op, ())) != list(now.get(op, ()))]
