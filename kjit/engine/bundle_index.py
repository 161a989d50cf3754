"""The index of a bundle: its modules and libraries, read for writing it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.engine.portable import this_machine
from kjit.errors import UsageError
from kjit.runtime.bundle import FORMAT, digest_of, identity_of, is_library
from kjit.runtime.load import INDEX
from kjit.spec import Spec, Target

# A library as it is in an index, but with its files as rows instead of their numbers.
Library = dict[str, Any]


@dataclass
class Module:
    """A module of a bundle; only those being built have a `spec`."""

    op: str
    label: str
    identity: Mapping[str, Any]
    libraries: list[Library]
    spec: Spec | None = None

    @classmethod
    def of(cls, spec: Spec) -> Module:
        """The module of a spec, without libraries."""
        return cls(spec.name, spec.label, identity_of(spec), [], spec)


def key_of(spec: Spec) -> str:
    """The key of the module of a spec in `modules_in`."""
    return digest_of([spec.name, identity_of(spec)])


def archs_of(target: Target) -> list[str]:
    """The architectures of a target, as an index lists them: `90a`."""
    return [arch.digits for arch in target.archs]


def modules_in(folder: Path, *, only: bool = False) -> dict[str, Module]:
    """The modules of the bundle in `folder`, by key; none if there is no bundle or its index is damaged.

    Args:
        only: the bundle is going to be replaced: one in an unknown format has no modules.

    Raises:
        UsageError: the bundle has an unknown format.
    """
    try:
        document = read_index(folder)
    except UsageError:
        if not only:
            raise
        return {}
    if document is None:
        return {}
    try:
        rows = [(anchor, path, hash_) for anchor, path, hash_ in document["files"]]
        modules = {}
        for module in document["modules"]:
            libraries = [
                {
                    **library,
                    "files": [rows[number] for number in library["files"]],
                    "built with": library.get("built with", document["built with"]),
                }
                for library in module["libraries"]
            ]
            key = digest_of([module["op"], module["identity"]])
            modules[key] = Module(module["op"], module["label"], module["identity"], libraries)
            for library in libraries:
                if not {"file", "size", "digest", "glibc", "target", "archs"} <= library.keys():
                    return {}
        return modules
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        return {}


def read_index(folder: Path) -> dict[str, Any] | None:
    """The index in `folder`; None if there is none that can be read.

    Raises:
        UsageError: its format is unknown to this version of kjit.
    """
    try:
        document = json.loads((folder / INDEX).read_bytes())
        form, written = document["format"], document["built with"]["kjit"]
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return None
    if form != FORMAT:
        raise UsageError(
            f"'{folder}' is a bundle written by kjit {written}, in a format that this version cannot add to.",
            hint="--only replaces all of it",
        )
    return document if isinstance(document, dict) else None


def index_of(modules: Mapping[str, Module]) -> bytes:
    """The content of the index of a bundle with these modules."""
    here = this_machine()
    every = {tuple(row) for module in modules.values() for library in module.libraries for row in library["files"]}
    rows = sorted(every, key=lambda row: tuple(map(str, row)))
    numbers = {row: number for number, row in enumerate(rows)}
    written = []
    for module in modules.values():
        libraries = []
        for library in module.libraries:
            libraries.append({**library, "files": sorted(numbers[tuple(row)] for row in library["files"])})
            if library["built with"] == here:
                del libraries[-1]["built with"]
        written.append({"op": module.op, "label": module.label, "identity": module.identity, "libraries": libraries})
    document = {
        "format": FORMAT,
        "built with": here,
        "files": rows,
        "modules": sorted(written, key=lambda module: json.dumps([module["op"], module["identity"]])),
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def is_index(path: Path) -> bool:
    """Whether a file was written by kjit, in any version."""
    try:
        document = json.loads(path.read_bytes())
        return bool(document["format"] and document["built with"]["kjit"])
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return False


def libraries_named_in(folder: Path) -> set[str]:
    """The files of libraries in the index in `folder`, in any format; none if it is missing or damaged."""
    try:
        document = json.loads((folder / INDEX).read_bytes())
        names = {library["file"] for module in document["modules"] for library in module["libraries"]}
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return set()
    return {name for name in names if isinstance(name, str) and is_library(name)}
