"""Artifacts that no current source can hit.

Of the artifacts of one project (and of kjit's own ops) those are stale that

- another version of kjit or of tvm-ffi built;
- a compiler built that is gone from its path, or was replaced there;
- are of a declared variant whose source, exports or flags are others today;
- were built from sources or headers that are gone or changed, declared or not.

And damaged ones, whatever they belong to. Everything else stays: what another project built is for that project to
judge, and so is what was built before its folder was moved. A second checkout of the project that shares artifacts with
this one may have to build those again that only it could still use; to know better, every hit would have to be written
down.

What is compared is what was recorded. A variant that no wrapper declares any more, with sources that are as they were,
can still be asked for at run time and is not stale.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import kjit
from kjit.engine.cache.artifact import DAMAGED, Artifact
from kjit.engine.cache.store import Entry, Store
from kjit.engine.key.anchors import Anchors
from kjit.engine.key.headers import Reads
from kjit.engine.key.key import FileState, source_key_of, tvm_ffi_version
from kjit.engine.toolchain.memo import is_unchanged
from kjit.errors import UsageError
from kjit.spec import Side, Spec

_SIDES: tuple[tuple[str, Side], ...] = (("cuda", "cuda"), ("sim", "cuda"), ("cpu", "cpu"))


def find_stale(store: Store, project: Path | None, declared: Iterable[Spec]) -> Iterator[tuple[Entry, str]]:
    """The stale artifacts of `store`, each with the reason.

    Args:
        project: the folder of the project; None for kjit's own ops only.
        declared: what the wrappers of the project declare today.
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
    inputs = artifact.record["inputs"]
    assert isinstance(inputs, dict)  # checked when it was read
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
    """Of the compilers in a toolchain's identity, those that are not as they were."""
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
        with contextlib.suppress(UsageError):  # a source is gone: then it has no key
            if source_key_of(spec, artifact.target) == artifact.record["source_key"]:
                return None
    return "its source, exports or flags are others today" if specs else None


def _other_files(artifact: Artifact, module: object) -> str | None:
    anchors = Anchors.of_project(artifact.project)
    sources = [*module.get("CUDA sources", ()), *module.get("C++ sources", ())] if isinstance(module, Mapping) else []
    reads = artifact.record["reads"]
    assert isinstance(reads, dict)  # checked when it was read
    try:
        known = Reads.from_json(reads)
        others = {*(header.anchor for header in known.headers), *(place.anchor for place in known.places)}
        if any(anchors.absolute(anchor, "") is None for anchor in others):
            return None  # from a second project, of which it is not known where it is
        for written, digest in sources:
            path = _place(str(written), anchors)
            if path is not None and _digest(path) != digest:
                return f"{written} {'changed' if os.path.exists(path) else 'is gone'}"
        found = known.compare(anchors)
    except (KeyError, TypeError, ValueError):
        return f"{DAMAGED} its record lists no headers"
    return found if isinstance(found, str) else None


def _place(written: str, anchors: Anchors) -> str | None:
    """Where a path is that `Anchors.written` wrote; None where its anchor is not known."""
    if not written.startswith("{"):
        return written
    anchor, _, path = written[1:].partition("}/")
    return anchors.absolute(anchor, path)


def _digest(path: str) -> str | None:
    try:
        return FileState.read(path).digest
    except OSError:
        return None
