"""Paths of files that are built: their project, and their form for messages."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from kjit.runtime.manifest import absolute, written
from kjit.spec import Spec

PROJECT_FILES = ("pyproject.toml", ".git")
"""Files that mark the root folder of a project."""

_NO_STEP = re.compile(r"/(?:\.?/)+")


def collapse_slashes(path: str) -> str:
    """`path` without `//` and `/./`. A `..` stays: after a link it means another folder."""
    if "//" in path or "/./" in path:
        path = _NO_STEP.sub("/", path)
    return path.removesuffix("/.").rstrip("/") or path[:1]


def projects_of(spec: Spec) -> tuple[str, ...]:
    """The folders of the projects of the sources and include folders of a spec, except kjit's own."""
    homes = (*map(os.path.dirname, (*spec.cuda_files, *spec.cpp_files)), *spec.extra_include_paths)
    return tuple(dict.fromkeys(project_of(home) for home in homes if written(f"{home}/") == f"{home}/"))


@lru_cache(maxsize=1024)
def project_of(folder: str) -> str:
    """The nearest parent folder with one of `PROJECT_FILES`, else `folder` itself."""
    parent = folder
    while not any(os.path.exists(f"{parent}/{name}") for name in PROJECT_FILES):
        above = os.path.dirname(parent)
        if above == parent:
            return folder
        parent = above
    return parent


def shown(path: str, project: str) -> str:
    """A path as by `written`, as users name it: relative to the project.

    Args:
        project: its folder; empty if there is none.
    """
    if path.startswith("{"):
        return path
    normal = os.path.normpath(absolute(path))
    if os.path.realpath(os.path.dirname(path)) == os.path.realpath(os.path.dirname(normal)):
        path = normal  # there is no link in the path
    return path.removeprefix(f"{project}/") if project else path
