"""Writing bundles, and adding to existing ones.

A bundle is added to, so that a CI job which builds one op after another ships all of them. A new library replaces those
of the same module that it can serve for, and everything else stays, with the versions and files that it was built from.
What is doubtful in the rest is reported, but not removed: libraries built by another version, libraries without a file,
libraries older than their sources. They are removed on request (`only`).

Writers wait for each other, by a lock on the folder. A program that starts meanwhile finds the old bundle or the new
one: the index is replaced after the libraries are written, and libraries that it no longer names are removed last.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kjit
from kjit.engine.cache import locks
from kjit.engine.cache.artifact import describe
from kjit.engine.cache.folders import NO_SPACE, holds, write_file
from kjit.engine.cache.store import Artifact
from kjit.engine.key.paths import projects_of
from kjit.engine.toolchain import cpu
from kjit.errors import KjitError, UsageError
from kjit.runtime import numbers_of
from kjit.runtime.bundle import (
    FORMAT,
    Row,
    changed_files,
    differences_of_machines,
    home_of,
    identity_of,
    is_library,
    this_machine,
)
from kjit.runtime.load import BUNDLE, INDEX
from kjit.spec import CudaArch, Spec, Target, Variant

_BEING_WRITTEN = re.compile(r"(.+)\.[0-9a-f]{8}")
"""The temporary name of a file that `write_file` writes."""

_GLIBC_NEEDED = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")

_INSTALLED = frozenset(filter(None, ("/usr", sys.prefix, sys.base_prefix, os.environ.get("CONDA_PREFIX", ""))))
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/[^/]+")
_PACKAGES = re.compile(r"/(?:site|dist)-packages/")

# A library as it is in an index, but with its files as rows instead of their numbers.
Library = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """The changes of a write to an existing bundle: its libraries, each as `scale<fp32_t> cpu:x86-64-v2`.

    Attributes:
        replaced: those that new libraries replace.
        kept: those that stay.
        removed: those that are removed, on request.
        doubts: what is wrong with the libraries that stay, one sentence each.
    """

    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """A bundle that was written.

    Attributes:
        size: bytes of all libraries.
        glibc: the oldest C library that they run with, `2.34`; None if they do not depend on its version.
        change: the changes to the bundle that was there before.
    """

    folder: Path
    modules: int
    libraries: int
    size: int
    glibc: str | None
    change: Change


def targets_of_bundle(targets: Iterable[Target]) -> list[Target]:
    """The targets to build so that a bundle serves `targets`: architectures of one major version share a library, and a
    library for the CPU is built for each level.

    Architectures of different major versions do not share one: the host part of a unit is compiled for one architecture
    as well (`KJIT_CUDA_ARCH`), and would be limited to the features of the oldest.

    Raises:
        UsageError: a target is the simulator, or there are no levels for this kind of CPU.
    """
    majors: dict[int, list[CudaArch]] = {}
    made: list[Target] = []
    for target in targets:
        if target.is_simulated:
            raise UsageError(
                f"a bundle is for GPUs and CPUs, and '{target}' is neither.", hint="--target cuda, cpu, or both"
            )
        for arch in target.archs:
            majors.setdefault(arch.major, []).append(arch)
        if target.data.has_levels:
            made += [Target.cpu(level.name) for level in cpu.levels()]
    return [*(Target.cuda(*archs) for archs in majors.values()), *made]


def variants_of_bundle(variants: Iterable[Variant]) -> list[Variant]:
    """The variants to build so that a bundle serves `variants`.

    Raises:
        UsageError: as for `targets_of_bundle`.
    """
    targets: dict[Spec, list[Target]] = {}
    for each in variants:
        targets.setdefault(each.spec, []).append(each.target)
    return [Variant(spec, target) for spec, of_spec in targets.items() for target in targets_of_bundle(of_spec)]


def check_folder(folder: Path, *, only: bool = False) -> None:
    """Reject a folder that contains anything but a bundle; in a bundle, files of others may stay.

    Args:
        only: the bundle is going to be replaced, and may have an unknown format.

    Raises:
        UsageError: the folder contains something else, is a file, cannot be written, or has a bundle that cannot be
            added to.
    """
    existing = next((each for each in (folder, *folder.absolute().parents) if os.path.exists(each)), folder)
    if existing.is_dir() and not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(
            f"no bundle can be written to '{folder}': this user may not write to '{existing}'.",
            hint="name a folder that you can write to",
        )
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"no bundle can be written to '{folder}': {error.strerror}.") from None
    foreign = [name for name in names if not (is_library(name) or name == INDEX or _is_being_written(name))]
    if INDEX in names or not foreign:
        read_index(folder, only=only)
        return
    raise UsageError(
        f"'{folder}' exists and is not a bundle (it contains '{min(foreign)}'); nothing is written.",
        hint=f"name a folder of its own, for example kernels/{BUNDLE}",
    )


def read_index(folder: Path, *, only: bool = False) -> list[Library]:
    """The libraries of the bundle in `folder`; none if there is no index.

    Args:
        only: the bundle is going to be replaced: one in an unknown format has no libraries.

    Raises:
        UsageError: the index has an unknown format, is damaged, or was not written by kjit.
    """
    try:
        document = json.loads((folder / INDEX).read_bytes())
        if document["format"] == FORMAT:
            files = document["files"]
            return [
                {**each, "files": [tuple(files[number]) for number in each["files"]]} for each in document["libraries"]
            ]
        written = document["kjit"]
    except FileNotFoundError:
        return []
    except (OSError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        raise UsageError(
            f"'{folder}' exists and is not a bundle (its {INDEX} is damaged, or was not written by kjit); nothing is "
            "written.",
            hint=f"name a folder of its own, for example kernels/{BUNDLE}; or remove a damaged bundle",
        ) from None
    if only:
        return []
    raise UsageError(
        f"'{folder}' is a bundle written by kjit {written}, in a format that this version cannot add to.",
        hint="--only replaces all of it",
    )


def _index_of(libraries: Iterable[Library]) -> bytes:
    """The content of the index of a bundle with these libraries."""
    # Of those of one module the new ones stay first: of two for the same GPU, the first is loaded.
    libraries = sorted(libraries, key=_module)
    rows = sorted({row for library in libraries for row in library["files"]})
    numbers = {row: number for number, row in enumerate(rows)}
    written = [{**each, "files": sorted({numbers[row] for row in each["files"]})} for each in libraries]
    document = {"format": FORMAT, "kjit": kjit.__version__, "files": rows, "libraries": written}
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def preview(folder: Path, variants: Iterable[Variant], *, only: bool = False) -> Change:
    """The changes that `write` would make to the bundle in `folder` if all of `variants` were built.

    Raises:
        UsageError: as for `check_folder`.
    """
    check_folder(folder, only=only)
    new = [{**_described(each.spec, each.target), "digest": ""} for each in variants]
    specs = {_module(library): each.spec for library, each in zip(new, variants, strict=True)}
    return _merge(folder, new, read_index(folder, only=only), specs, only=only)[1]


def ops_in(folder: Path) -> frozenset[str]:
    """The names of the ops with modules in the bundle in `folder`; none if there is no bundle."""
    try:
        return frozenset(library["op"] for library in read_index(folder))
    except UsageError:  # its format is unknown
        return frozenset()


def write(folder: Path, built: Iterable[tuple[Variant, Artifact]], *, only: bool = False) -> Written:
    """Add artifacts to the bundle in `folder`, which is created if necessary.

    Args:
        only: remove everything else from the bundle.

    Raises:
        UsageError: two modules cannot be distinguished, or as for `check_folder`.
        KjitError: it cannot be written, or an artifact changed meanwhile.
    """
    check_folder(folder, only=only)
    contents: dict[str, bytes] = {}
    new: list[Library] = []
    specs: dict[str, Spec] = {}
    for variant, artifact in built:
        library = _add(new, contents, variant, artifact)
        specs[_module(library)] = variant.spec
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locks.hold_folder(folder.resolve(), "writes this bundle"):
            for name in filter(_is_being_written, os.listdir(folder)):  # of writers that were killed
                (folder / name).unlink()
            before = read_index(folder, only=only)
            libraries, change = _merge(folder, new, before, specs, only=only)
            for name, content in contents.items():
                if not holds(folder / name, content):
                    made.append(folder / name)
                    write_file(folder / name, content)
            write_file(folder / INDEX, _index_of(libraries))
            useless = {*os.listdir(folder)} if only else {library["file"] for library in before}
            for name in filter(is_library, useless - {library["file"] for library in libraries}):
                with contextlib.suppress(OSError):  # it does no harm
                    (folder / name).unlink()
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise KjitError(
            f"the bundle '{folder}' cannot be written: {error.strerror}.",
            hint="free some space" if error.errno in NO_SPACE else "name a folder that you can write to",
        ) from None
    files = {library["file"]: library for library in libraries}.values()
    return Written(
        folder,
        modules=len({*map(_module, libraries)}),
        libraries=len(files),
        size=sum(library["size"] for library in files),
        glibc=max(filter(None, (library["glibc"] for library in files)), key=numbers_of, default=None),
        change=change,
    )


def _described(spec: Spec, target: Target) -> Library:
    """The fields of a library about what was asked for."""
    return {
        "op": spec.name,
        "label": spec.label,
        "identity": identity_of(spec),
        "target": str(target),
        "archs": [arch.digits for arch in target.archs],
        "level": target.level,
    }


def _module(library: Library) -> str:
    """The module of a library: without target."""
    return json.dumps([library["op"], library["identity"]], sort_keys=True)


def _merge(
    folder: Path, new: list[Library], before: list[Library], specs: Mapping[str, Spec], *, only: bool
) -> tuple[list[Library], Change]:
    """The new libraries and what stays of those `before`."""
    libraries = list(new)
    replaced: list[str] = []
    kept: list[str] = []
    removed: list[str] = []
    doubts: list[str] = []
    for library in before:
        name = f"{library['label']} {library['target']}"
        instead = [each for each in new if _module(each) == _module(library) and _can_replace(each, library)]
        if instead:
            if all(each["digest"] != library["digest"] for each in instead):
                replaced.append(name)
        elif only:
            removed.append(name)
        else:
            kept.append(name)
            libraries.append(library)
            doubts += [f"{name}: {doubt}" for doubt in _doubts(folder, specs.get(_module(library)), library)]
    return libraries, Change(*map(tuple, (replaced, kept, removed, doubts)))


def _can_replace(new: Library, old: Library) -> bool:
    """Whether `new` serves all requests that `old` serves, for the same module."""
    return new["target"] == old["target"] or (bool(old["archs"]) and {*old["archs"]} <= {*new["archs"]})


def _doubts(folder: Path, spec: Spec | None, library: Library) -> Iterator[str]:
    """The problems of a library that stays in a bundle, a sentence each."""
    yield from differences_of_machines(library["built with"])
    if not (folder / library["file"]).is_file():
        yield f"its file {library['file']} is missing"
    if spec is not None:
        yield from changed_files(library["files"], spec, str(folder), with_kjit=True)


def _add(libraries: list[Library], contents: dict[str, bytes], variant: Variant, artifact: Artifact) -> Library:
    """Add an artifact to `libraries`, and its library to the files in `contents`."""
    spec = variant.spec
    try:
        content = artifact.library.read_bytes()
    except OSError as error:
        raise KjitError(
            f"the library of {variant.label} was removed from the cache while the bundle was written"
            f" ({error.strerror}).",
            hint="try again",
        ) from None
    new = {
        **_described(spec, variant.target),
        **describe(content),
        "glibc": glibc_of(content),
        "files": files_of(spec, artifact),
        "built with": this_machine(),
    }
    if new["digest"] != artifact.summary["digest"]:
        raise KjitError(f"the library of {variant.label} changed while the bundle was written.", hint="try again")
    new["file"] = f"{spec.name}-{new['digest'][:16]}.so"
    contents[new["file"]] = content
    for library in libraries:
        if library["target"] == new["target"] and _module(library) == _module(new):
            if library["digest"] == new["digest"]:
                library["files"] = list(dict.fromkeys((*library["files"], *new["files"])))
                return library
            raise UsageError(
                f"{spec.label} is declared twice, from different files and with the same name, arguments, exports "
                "and flags: in a bundle the two cannot be distinguished.",
                hint="give them different arguments (the strings after the name in kjit.Spec)",
            )
    libraries.append(new)
    return new


def files_of(spec: Spec, artifact: Artifact) -> list[Row]:
    """The files that the artifact was built from and that a bundle compares, with their hashes: the op's own and kjit's
    headers, and others except those of installed packages."""
    home = home_of(spec)
    module = artifact.inputs["module"]
    hashes = [hash_ for _, hash_ in (*module["CUDA sources"], *module["C++ sources"])]
    sources = (*spec.cuda_files, *spec.cpp_files)
    rows = [(os.path.relpath(os.path.realpath(path), home), hash_) for path, hash_ in zip(sources, hashes, strict=True)]
    # The op itself may be installed: then its package counts as a project.
    package = _PACKAGE.match(home)
    own = [*map(os.path.realpath, projects_of(spec)), *([package[0]] if package else [])]
    paths, *_, digests = artifact.reads.headers
    for name, hash_ in zip(paths, digests, strict=True):
        if name.startswith("{kjit}/"):
            rows.append((name, hash_))
        elif not name.startswith("{") and not _is_installed(real := os.path.realpath(name), own):
            rows.append((os.path.relpath(real, home), hash_))
    return rows


def _is_installed(path: str, own: Iterable[str]) -> bool:
    """Whether a header is of an installed package, whose version differs between machines without anybody having edited
    it. An environment may be in a project, and a project in an environment: the innermost folder decides."""

    def innermost(folders: Iterable[str]) -> int:
        return max((len(folder) for folder in folders if path.startswith(f"{folder}/")), default=0)

    inside = innermost(own)
    return innermost(_INSTALLED) > inside or _PACKAGES.search(path, inside) is not None


def glibc_of(content: bytes) -> str | None:
    """The newest version of the C library's symbols that a library requires; None if it requires none."""
    versions = [(int(major), int(minor)) for major, minor in _GLIBC_NEEDED.findall(content)]
    return "{}.{}".format(*max(versions)) if versions else None


def _is_being_written(name: str) -> bool:
    """Whether `write_file` gives this name to a file of a bundle until it is complete."""
    named = _BEING_WRITTEN.fullmatch(name)
    return named is not None and (named[1] == INDEX or is_library(named[1]))
