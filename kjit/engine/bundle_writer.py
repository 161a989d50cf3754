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
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kjit.engine.bundle_files import files_of
from kjit.engine.bundle_index import (
    Library,
    Module,
    archs_of,
    index_of,
    is_index,
    key_of,
    libraries_named_in,
    modules_in,
    read_index,
)
from kjit.engine.cache import locks
from kjit.engine.cache.artifact import describe
from kjit.engine.cache.folders import NO_SPACE
from kjit.engine.cache.store import Artifact
from kjit.engine.portable import differences_of_machines, glibc_of, numbers_of, this_machine
from kjit.engine.toolchain import cpu
from kjit.errors import KjitError, UsageError
from kjit.runtime import digest
from kjit.runtime.bundle import changed_files, is_library
from kjit.runtime.load import BUNDLE, INDEX
from kjit.spec import CudaArch, Spec, Target, Variant

_BEING_WRITTEN = re.compile(r"\.(.+)\.[0-9a-f]{8}")
"""The temporary name of a file that `_replace` writes."""


@dataclass(frozen=True)
class Change:
    """The changes of a write to an existing bundle: its libraries, each as `scale<fp32_t> cpu:x86-64-v2`.

    Attributes:
        replaced: those that new libraries replace.
        kept: those that stay.
        removed: those that are removed, on request.
        others: the modules that are not built now, kept or removed: `scale<fp32_t>`.
        doubts: what is wrong with the libraries that stay, one sentence each.
    """

    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
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
    """Reject a folder that contains anything but a bundle.

    A bundle is recognised by its index, in any format; if that is damaged or missing, by the fact that there are only
    libraries.

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
    names = [name for name in names if not _is_being_written(name)]
    foreign = [name for name in names if not is_library(name) and name != INDEX]
    is_named = INDEX in names and is_index(folder / INDEX)
    if is_named or (not foreign and names != [INDEX]):
        if not only:
            read_index(folder)
        return
    found = f"it contains '{min(foreign)}'" if foreign else f"its {INDEX} was not written by kjit"
    raise UsageError(
        f"'{folder}' exists and is not a bundle ({found}); nothing is written.",
        hint=f"name a folder of its own, for example kernels/{BUNDLE}",
    )


def preview(folder: Path, variants: Iterable[Variant], *, only: bool = False) -> Change:
    """The changes that `write` would make to the bundle in `folder` if all of `variants` were built.

    Raises:
        UsageError: as for `check_folder`.
    """
    check_folder(folder, only=only)
    new: dict[str, Module] = {}
    for variant in variants:
        module = new.setdefault(key_of(variant.spec), Module.of(variant.spec))
        module.libraries.append({"target": str(variant.target), "archs": archs_of(variant.target), "digest": ""})
    return _merge(folder, new, modules_in(folder, only=only), only=only)


def ops_in(folder: Path) -> frozenset[str]:
    """The names of the ops with modules in the bundle in `folder`; none if there is no bundle."""
    try:
        return frozenset(module.op for module in modules_in(folder).values())
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
    new: dict[str, Module] = {}
    for variant, artifact in built:
        _add(new, contents, variant, artifact)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locks.hold_folder(folder.resolve(), "writes this bundle"):
            _remove_unfinished(folder)
            before = modules_in(folder, only=only)
            named = libraries_named_in(folder)
            change = _merge(folder, new, before, only=only)
            for name, content in contents.items():
                if not _holds(folder / name, content):
                    made.append(folder / name)
                    _replace(folder / name, content)
            _replace(folder / INDEX, index_of(new))
            libraries = {library["file"]: library for module in new.values() for library in module.libraries}
            for name in named - libraries.keys():
                with contextlib.suppress(OSError):  # it is useless and does no harm
                    (folder / name).unlink()
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise KjitError(
            f"the bundle '{folder}' cannot be written: {error.strerror}.",
            hint="free some space" if error.errno in NO_SPACE else "name a folder that you can write to",
        ) from None
    return Written(
        folder,
        modules=len(new),
        libraries=len(libraries),
        size=sum(library["size"] for library in libraries.values()),
        glibc=max(filter(None, (library["glibc"] for library in libraries.values())), key=numbers_of, default=None),
        change=change,
    )


def _merge(folder: Path, new: dict[str, Module], before: Mapping[str, Module], *, only: bool) -> Change:
    """Add to `new` what stays of `before`."""
    replaced: list[str] = []
    kept: list[str] = []
    removed: list[str] = []
    others: list[str] = []
    doubts: list[str] = []
    for key, module in before.items():
        known = new.get(key)
        if known is None:
            others.append(module.label)
        built = [] if known is None else list(known.libraries)
        for library in module.libraries:
            name = f"{module.label} {library['target']}"
            if any(_can_replace(each, library) for each in built):
                if all(each["digest"] != library["digest"] for each in built):
                    replaced.append(name)
            elif only:
                removed.append(name)
            else:
                kept.append(name)
                doubts += [f"{name}: {doubt}" for doubt in _doubts(folder, known, library)]
                stays = new.setdefault(key, Module(module.op, module.label, module.identity, []))
                stays.libraries.append(library)
    unnamed = sorted(_libraries_in(folder) - libraries_named_in(folder))
    doubts += [f"{name}: the index does not name it" for name in unnamed]
    return Change(*map(tuple, (replaced, kept, removed, others, doubts)))


def _can_replace(new: Library, old: Library) -> bool:
    """Whether `new` serves all requests that `old` serves, for the same module."""
    return new["target"] == old["target"] or (bool(old["archs"]) and {*old["archs"]} <= {*new["archs"]})


def _doubts(folder: Path, module: Module | None, library: Library) -> Iterator[str]:
    """The problems of a library that stays in a bundle, a sentence each."""
    yield from differences_of_machines(library["built with"])
    if not (folder / library["file"]).is_file():
        yield f"its file {library['file']} is missing"
    if module is not None and module.spec is not None:
        yield from changed_files(library["files"], module.spec, str(folder), with_kjit=True)


def _add(modules: dict[str, Module], contents: dict[str, bytes], variant: Variant, artifact: Artifact) -> None:
    """Add an artifact to `modules`, and its library to the files in `contents`."""
    spec = variant.spec
    try:
        content = artifact.library.read_bytes()
    except OSError as error:
        raise KjitError(
            f"the library of {variant.label} was removed from the cache while the bundle was written"
            f" ({error.strerror}).",
            hint="try again",
        ) from None
    hash_ = digest(content)
    if hash_ != artifact.summary["digest"]:
        raise KjitError(f"the library of {variant.label} changed while the bundle was written.", hint="try again")
    name = f"{spec.name}-{hash_[:16]}.so"
    contents[name] = content
    module = modules.setdefault(key_of(spec), Module.of(spec))
    rows = files_of(spec, artifact)
    for library in module.libraries:
        if library["target"] == str(variant.target):
            if library["digest"] == hash_:
                library["files"] = list(dict.fromkeys((*library["files"], *rows)))
                return
            raise UsageError(
                f"{spec.label} is declared twice, from different files and with the same name, arguments, exports "
                "and flags: in a bundle the two cannot be distinguished.",
                hint="give them different arguments (the strings after the name in kjit.Spec)",
            )
    module.libraries.append(
        {
            "file": name,
            **describe(content),
            "target": str(variant.target),
            "archs": archs_of(variant.target),
            "level": variant.target.level,
            "glibc": glibc_of(content),
            "files": rows,
            "built with": this_machine(),
        }
    )


def _libraries_in(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder) if is_library(name)}
    except FileNotFoundError:
        return set()


def _is_being_written(name: str) -> bool:
    """Whether `_replace` gives this name to a file until it is complete."""
    named = _BEING_WRITTEN.fullmatch(name)
    return named is not None and (named[1] == INDEX or is_library(named[1]))


def _remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files of writers that were killed: while the lock is held, there is no other writer."""
    for name in filter(_is_being_written, os.listdir(folder)):
        with contextlib.suppress(OSError):  # it is useless and does no harm
            (folder / name).unlink()


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _replace(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it."""
    being_written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        being_written.write_bytes(content)
        os.replace(being_written, path)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise
