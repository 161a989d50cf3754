"""Artifacts that no current source can hit.

Artifacts of one project (and of kjit's own ops) are stale if

- they were built by another version of kjit or of tvm-ffi;
- they were built by a compiler that was removed or replaced;
- they were built from sources or headers that were removed or changed.

Damaged artifacts of any project are stale too. All others stay, including artifacts of another project, or of a project
that was moved since, and of variants that are no longer declared, which can still be requested at run time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import kjit
from kjit.engine.cache.artifact import DAMAGED, Artifact
from kjit.engine.cache.contents import Entry
from kjit.engine.cache.store import Store
from kjit.engine.key.headers import compare
from kjit.engine.key.key import tvm_ffi_version
from kjit.engine.key.paths import shown
from kjit.engine.toolchain.memo import is_unchanged
from kjit.runtime.manifest import FileState, absolute


def find_stale(store: Store, project: Path) -> Iterator[tuple[Entry, str]]:
    """The stale artifacts of `store`, each with the reason.

    Args:
        project: the folder of the project.
    """
    homes = [os.path.realpath(folder) for folder in (os.path.dirname(kjit.__file__), project)]
    for entry in store.entries():
        artifact = store.read(entry)
        if isinstance(artifact, str):
            if artifact.startswith(DAMAGED):
                yield entry, artifact
        elif artifact.is_of(homes) and (reason := next(_reasons(artifact), None)) is not None:
            yield entry, reason


def _reasons(artifact: Artifact) -> Iterator[str]:
    """The reasons why an artifact is stale."""
    for name, version in (("kjit", kjit.__version__), ("tvm-ffi", tvm_ffi_version())):
        was = artifact.inputs["versions"].get(name)
        if was != version:
            yield f"{name} was {was} and is {version}"
    yield from _other_compilers(artifact.inputs["toolchain"])
    module = artifact.inputs["module"]
    for written, digest in (*module["CUDA sources"], *module["C++ sources"]):
        path = absolute(written)
        if not os.path.exists(path):
            yield f"{shown(written, artifact.project)} is gone"
        elif FileState.read(path).digest != digest:
            yield f"{shown(written, artifact.project)} changed"
    difference = compare(artifact.reads, artifact.project)
    if isinstance(difference, str):
        yield difference


def _other_compilers(identity: object) -> Iterator[str]:
    """The compilers of a toolchain's identity that have changed."""
    if not isinstance(identity, Mapping):
        return
    if {"path", "size", "mtime_ns"} <= identity.keys():
        whole = (str(identity["path"]), identity["size"], identity["mtime_ns"])
        for path, size, mtime_ns in (whole, *identity.get("parts", ())):
            if not is_unchanged((path, size, mtime_ns)):
                yield f"'{path}' {'was replaced' if os.path.exists(path) else 'is gone'}"
        return
    for part in identity.values():
        yield from _other_compilers(part)
