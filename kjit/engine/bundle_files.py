"""The files that a library in a bundle was built from and that a bundle compares: the op's own and kjit's."""

from __future__ import annotations

import os
import re
import sys

from kjit.engine.cache.artifact import Artifact
from kjit.engine.key.paths import PROJECT_FILES, has_any, projects_of
from kjit.runtime.bundle import Row, home_of, include_folders_of
from kjit.spec import Spec

_INSTALLED = frozenset(
    f"{prefix}/{name}"
    for prefix in ("/usr", "/usr/local", sys.prefix, sys.base_prefix, os.environ.get("CONDA_PREFIX", "").rstrip("/"))
    if prefix
    for name in ("include", "lib", "lib64")
)
"""Folders of installed headers that are recognised by their names; other environments are recognised by a file."""

_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/[^/]+")


def files_of(spec: Spec, artifact: Artifact) -> list[Row]:
    """The op's own files and kjit's headers that the artifact was built from, with their hashes."""
    home = home_of(spec)
    module = artifact.inputs["module"]
    hashes = [hash_ for _, hash_ in (*module["CUDA sources"], *module["C++ sources"])]
    rows: list[Row] = [
        ("source", os.path.relpath(path, home), hash_)
        for path, hash_ in zip((*spec.cuda_files, *spec.cpp_files), hashes, strict=True)
    ]
    projects = projects_of(spec)
    project = next((each for each in projects if f"{home}/".startswith(f"{each}/")), "")
    installed = _Installed(home, project)
    paths, *_, digests = artifact.reads.headers
    for name, digest in zip(paths, digests, strict=True):
        anchor, _, rest = name.partition("}/")
        if anchor == "{kjit":
            rows.append(("kjit", rest, digest))
        if name.startswith("{") or installed.has(os.path.normpath(name)):
            continue
        is_own = project != "" and name.startswith(f"{project}/")
        is_of_project = any(name.startswith(f"{each}/") for each in projects)
        number = None if is_own else _include_folder(spec, name)
        if number is not None:
            rows.append((number, _inside(name, include_folders_of(spec)[number]), digest))
        elif not is_of_project:
            rows.append(("", name, digest))
        elif home:
            rows.append(("source", _inside(name, home), digest))
    return rows


def _inside(path: str, folder: str) -> str:
    """`path` relative to `folder`."""
    if path.startswith(f"{folder}/") and ".." in path.split("/"):
        return f"./{path[len(folder) + 1 :]}"
    return os.path.relpath(path, folder)


def _include_folder(spec: Spec, path: str) -> int | None:
    """The number of the innermost include folder that contains a header; None if none does."""
    folders = include_folders_of(spec)
    around = [number for number, folder in enumerate(folders) if path.startswith(f"{folder}/")]
    return max(around, key=lambda number: len(folders[number]), default=None)


class _Installed:
    """The headers of installed packages, whose versions differ between machines without anybody having edited them.

    An environment may be in a project, and a project in an environment. So the innermost folder decides.
    """

    def __init__(self, home: str, project: str) -> None:
        """For an op whose first source is in `home`, in the folder `project`."""
        self._home = home
        # The op itself may be installed: then its package counts as a project.
        package = _PACKAGE.match(home)
        self._own = {project, package[0] if package else home}
        self._known: dict[str, bool] = {}

    def has(self, path: str) -> bool:
        if _PACKAGES.search(os.path.relpath(path, self._home) if self._home else path):
            return True
        folder = os.path.dirname(path)
        if folder not in self._known:
            self._known[folder] = self._is_in_environment(folder)
        return self._known[folder]

    def _is_in_environment(self, folder: str) -> bool:
        while True:
            if folder in self._own or has_any(folder, PROJECT_FILES):
                return False
            above = os.path.dirname(folder)
            if has_any(folder, _ENVIRONMENT) or (folder in _INSTALLED and above not in self._own):
                return True
            if above == folder:
                return False
            folder = above
