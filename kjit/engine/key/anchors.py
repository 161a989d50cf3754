"""Paths relative to folders that may move: a project, kjit, tvm-ffi.

Cache keys of paths in kjit and tvm-ffi stay the same in another virtual environment; those in records of headers are
found again in a bundle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

import kjit
from kjit.engine.toolchain import looks
from kjit.engine.toolchain.locations import tvm_ffi_include
from kjit.runtime.recall import Look
from kjit.spec import Spec

PROJECT_FILES = ("pyproject.toml", ".git")
"""Files that mark the root folder of a project."""


class Anchors:
    """Named folders that may move, and paths relative to them."""

    def __init__(self, folders: Iterable[tuple[str, str]], asked: Iterable[Look] = ()) -> None:
        """`folders` are `(name, folder)`; of several folders with one name, the first is the current one. `asked` are
        the queries of the file system that found them."""
        self.asked = tuple(asked)
        self._folders = tuple(folders)
        self._home = dict(reversed(self._folders))
        # The deepest first: kjit's own folder may be inside a project.
        self._by_depth = sorted(((f"{folder}/", name) for name, folder in self._folders), key=lambda x: -len(x[0]))

    @classmethod
    def of_project(cls, folder: str) -> Anchors:
        """kjit, tvm-ffi, and one project in `folder`."""
        return cls([*_installed(), ("project", folder)])

    @classmethod
    def of(cls, spec: Spec) -> Anchors:
        """kjit, tvm-ffi, and the projects of the spec's sources and include folders in the order of the spec."""
        return _anchors(_installed(), (*spec.cuda_files, *spec.cpp_files), spec.extra_include_paths)

    def relative(self, path: str) -> tuple[str, str]:
        """`(anchor, path)`: `path` relative to its anchor, or absolute with an empty anchor."""
        for prefix, name in self._by_depth:
            if path.startswith(prefix):
                return name, path[len(prefix) :]
            if path == prefix[:-1]:
                return name, ""
        return "", path

    def absolute(self, anchor: str, path: str) -> str | None:
        """The inverse of `relative` on this machine; None if there is no such anchor."""
        if not anchor:
            return path
        home = self._home.get(anchor)
        return None if home is None else f"{home}/{path}" if path else home

    @property
    def projects(self) -> list[str]:
        """The folders of the projects."""
        return [folder for name, folder in self._folders if name.startswith("project")]

    def written(self, path: str) -> str:
        """`{project}/csrc/scale.cuh`: for keys, and for display."""
        anchor, rest = self.relative(path)
        return path if not anchor else f"{{{anchor}}}/{rest}" if rest else f"{{{anchor}}}"


@lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, str], ...]:
    """The packages whose headers every module uses."""
    package = os.path.dirname(os.path.abspath(kjit.__file__))
    # A package may be reached through a link: both paths are its own.
    folders = [("kjit", os.path.realpath(package)), ("kjit", package), ("tvm_ffi", str(tvm_ffi_include().parent))]
    return tuple(dict.fromkeys(folders))


@lru_cache(maxsize=1024)
def _anchors(installed: tuple[tuple[str, str], ...], files: tuple[str, ...], include_paths: tuple[str, ...]) -> Anchors:
    """The anchors for these sources and include folders; equal arguments give the same object."""
    homes = (*map(os.path.dirname, files), *include_paths)
    folders = list(installed)
    taken = [folder for _, folder in folders]
    projects = 0
    asked: list[Look] = []
    for home in homes:
        if any(home == folder or home.startswith(f"{folder}/") for folder in taken):
            continue
        project, answers = _project(home)
        asked += answers
        folders.append((f"project{projects or ''}", project))
        taken.append(project)
        projects += 1
    return Anchors(folders, asked)


_NO_STEP = re.compile(r"/(?:\.?/)+")


def straight(path: str) -> str:
    """`path` without `//` and `/./`. A `..` stays: after a link it means another folder."""
    if "//" in path or "/./" in path:
        path = _NO_STEP.sub("/", path)
    return path.removesuffix("/.").rstrip("/") or path[:1]


def has_any(folder: str, names: Iterable[str]) -> bool:
    """Whether one of these files is in the folder."""
    # Not Path.exists, which raises if a folder is not readable.
    return any(looks.exists(f"{folder}/{name}") for name in names)


@lru_cache(maxsize=1024)
def _project(folder: str) -> tuple[str, list[Look]]:
    """The nearest parent folder with one of `PROJECT_FILES`, else `folder` itself; and the file system's answers."""
    with looks.noted() as taken:
        parent = folder
        while not has_any(parent, PROJECT_FILES):
            above = os.path.dirname(parent)
            if above == parent:
                parent = folder
                break
            parent = above
    return parent, taken
