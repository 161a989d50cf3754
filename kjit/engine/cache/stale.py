"""Artifacts that no current source can hit.

Artifacts of one project (and of kjit's own ops) are stale if

- they were built by another version of kjit or of tvm-ffi;
- they were built by a compiler that was removed or replaced;
- they belong to a declared variant whose source, exports or flags have changed;
- they were built from sources or headers that were removed or changed, declared or not.

Damaged artifacts of any project are stale too. All others stay, including artifacts of another project, or of a project
that was moved since. A second checkout that shares artifacts with this one may have to rebuild some that only it could
still use; avoiding that would require recording every hit.

A variant that is no longer declared, with unchanged sources, can still be requested at run time and is not stale.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import kjit
from kjit.engine.cache.artifact import DAMAGED, Artifact
from kjit.engine.cache.contents import Entry
from kjit.engine.cache.store import Store
from kjit.engine.key.headers import compare
from kjit.engine.key.key import source_key_of, tvm_ffi_version
from kjit.engine.key.paths import shown
from kjit.engine.toolchain.memo import is_unchanged
from kjit.errors import UsageError
from kjit.runtime.manifest import FileState, absolute
from kjit.spec import Side, Spec

_SIDES: tuple[tuple[str, Side], ...] = (("cuda", "cuda"), ("sim", "cuda"), ("cpu", "cpu"))


def find_stale(store: Store, project: Path | None, declared: Iterable[Spec]) -> Iterator[tuple[Entry, str]]:
    """The stale artifacts of `store`, each with the reason.

    Args:
        project: the folder of the project; None for kjit's own ops only.
        declared: the current declarations of the project's wrappers.
    """
    homes = [os.path.realpath(folder) for folder in (os.path.dirname(kjit.__file__), project) if folder is not None]
    specs: dict[tuple[str, tuple[str, ...]], list[Spec]] = {}
    for spec in declared:
        specs.setdefault((spec.name, spec.args), []).append(spec)
    for entry in store.entries():
        artifact = store.read(entry)
        reason: str | None
        if isinstance(artifact, str):
            reason = artifact if artifact.startswith(DAMAGED) else None
        else:
            same = specs.get((artifact.op, tuple(artifact.arguments)), [])
            reason = _why_stale(artifact, same) if artifact.is_of(homes) else None
        if reason is not None:
            yield entry, reason


def _why_stale(artifact: Artifact, declared: list[Spec]) -> str | None:
    inputs = artifact.inputs
    return (
        _other_version(inputs.get("versions"))
        or next(_other_compilers(inputs.get("toolchain")), None)
        or _other_declaration(artifact, declared)
        or _other_files(artifact, inputs.get("module"))
    )


def _other_version(versions: object) -> str | None:
    now = {"kjit": kjit.__version__, "tvm-ffi": tvm_ffi_version()}
    for name, version in now.items():
        was = versions.get(name) if isinstance(versions, Mapping) else None
        if was != version:
            return f"{name} was {was} and is {version}"
    return None


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


def _other_declaration(artifact: Artifact, declared: list[Spec]) -> str | None:
    side = next((side for kind, side in _SIDES if artifact.target.startswith(kind)), None)
    specs = [spec.only(side) for spec in declared if side is not None and side in spec.kinds]
    for spec in specs:
        with contextlib.suppress(UsageError):  # a source is missing: then it has no key
            if source_key_of(spec, artifact.target) == artifact.summary["source_key"]:
                return None
    return "its source, exports or flags have changed" if specs else None


def _other_files(artifact: Artifact, module: object) -> str | None:
    sources = [*module.get("CUDA sources", ()), *module.get("C++ sources", ())] if isinstance(module, Mapping) else []
    try:
        for written, digest in sources:
            if _digest(absolute(written)) != digest:
                state = "changed" if os.path.exists(absolute(written)) else "is gone"
                return f"{shown(written, artifact.project)} {state}"
        found = compare(artifact.reads, artifact.project)
    except (LookupError, TypeError, ValueError):
        return f"{DAMAGED} its record lists no headers"
    return found if isinstance(found, str) else None


def _digest(path: str) -> str | None:
    try:
        return FileState.read(path).digest
    except OSError:
        return None
