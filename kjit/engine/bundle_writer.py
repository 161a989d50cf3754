"""Writing bundles, and adding to existing ones.

A bundle is added to: a CI that builds one op after another ships all of them. What is built takes the place of what it
serves as well as the old, for the same module and target, and everything else stays as it is, with the versions and the
files that it was built from. What is doubtful in it is named and not removed: what another version built, what has no
file any more, what is older than its sources. Removing is asked for (`only`).

Writers wait for each other, by a lock on the folder. A program that starts meanwhile finds the old bundle or the new
one: the index is replaced last, and only then go the libraries that nothing names any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.engine.cache import locks
from kjit.engine.cache.artifact import describe
from kjit.engine.cache.folders import NO_SPACE
from kjit.engine.cache.store import Artifact
from kjit.engine.key.anchors import PROJECT_FILES, Anchors, has_any
from kjit.engine.key.headers import Reads
from kjit.engine.key.key import digest, digest_of
from kjit.engine.portable import differences_of_machines, glibc_of, numbers_of, this_machine
from kjit.engine.toolchain import cpu
from kjit.errors import KjitError, UsageError
from kjit.runtime.bundle import (
    FORMAT,
    Row,
    changed_files,
    home_of,
    identity_of,
    include_folders_of,
    is_library,
)
from kjit.runtime.load import BUNDLE, INDEX
from kjit.spec import CudaArch, Spec, Target, Variant

_INSTALLED = frozenset(
    f"{prefix}/{name}"
    for prefix in ("/usr", "/usr/local", sys.prefix, sys.base_prefix, os.environ.get("CONDA_PREFIX", "").rstrip("/"))
    if prefix
    for name in ("include", "lib", "lib64")
)
"""Folders of installed headers that are known by their names; those of other environments have a file that tells."""

_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/[^/]+")

_BEING_WRITTEN = re.compile(r"\.(.+)\.[0-9a-f]{8}")
"""The name of a file that `_replace` writes, until it has its own."""

# A library as it stands in an index, with its files as rows and not as their numbers.
_Library = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What a write does to the bundle that is there, each as `scale<fp32_t> cpu:x86-64-v2`.

    Attributes:
        replaced: libraries that others take the place of.
        kept: those of before that stay.
        removed: those of before that go, as was asked for.
        others: those modules of before that are not built now; kept or removed. `scale<fp32_t>`
        doubts: what is wrong with what stays, a sentence each.
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
        glibc: the oldest C library that they run with, `2.34`; None where they do not say.
        change: what became of the one that was there.
    """

    folder: Path
    modules: int
    libraries: int
    size: int
    glibc: str | None
    change: Change


def targets_of_bundle(targets: Iterable[Target]) -> list[Target]:
    """What to build so that a bundle serves `targets`: architectures of one major version share a library, and a
    library for the CPU is built for each level.

    Architectures of different major versions do not share one: the host part of a unit, too, is compiled for the
    architecture (`KJIT_CUDA_ARCH`), and would have to make do with what the oldest can.

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
        if target.kind == "cpu":
            made += [Target.cpu(level.name) for level in cpu.levels()]
    return [*(Target.cuda(*archs) for archs in majors.values()), *made]


def variants_of_bundle(variants: list[Variant]) -> list[Variant]:
    """The variants to build so that a bundle serves `variants`."""
    specs = dict.fromkeys(each.spec for each in variants)
    targets = {spec: [each.target for each in variants if each.spec == spec] for spec in specs}
    return [Variant(spec, target) for spec in specs for target in targets_of_bundle(targets[spec])]


def check_folder(folder: Path, *, only: bool = False) -> None:
    """Refuse a folder that holds something else than a bundle.

    A bundle is known by its index, of whatever form; where that is damaged or missing, by its libraries if there is
    nothing else.

    Args:
        only: what a bundle in it holds need not be understood, as it goes.

    Raises:
        UsageError: it does, it is a file, or a bundle that cannot be added to.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"no bundle can be written to '{folder}': {error.strerror}.") from None
    names = [name for name in names if not _is_being_written(name)]
    foreign = [name for name in names if not is_library(name) and name != INDEX]
    is_named = INDEX in names and _is_index(folder / INDEX)
    if is_named or (not foreign and names != [INDEX]):
        if not only:
            _read_index(folder)
        return
    found = f"'{min(foreign)}' is in it" if foreign else f"its {INDEX} is none of kjit's"
    raise UsageError(
        f"'{folder}' is there, and is no bundle ({found}); nothing is written.",
        hint=f"name a folder of its own, for example kernels/{BUNDLE}",
    )


def preview(folder: Path, variants: Iterable[Variant], *, only: bool = False) -> Change:
    """What `write` would do to the bundle in `folder`, if all of `variants` were built anew.

    Raises:
        UsageError: as `check_folder`.
    """
    check_folder(folder, only=only)
    new: dict[str, _Module] = {}
    for variant in variants:
        module = new.setdefault(_key_of(variant.spec), _Module.of(variant.spec))
        module.libraries.append({"target": str(variant.target), "archs": _archs(variant.target), "digest": ""})
    return _merge(folder, new, _known_modules(folder, only=only), only=only)


def ops_in(folder: Path) -> frozenset[str]:
    """The names of the ops that the bundle in `folder` holds modules of; none where there is no bundle."""
    try:
        return frozenset(module.op for module in _known_modules(folder, only=False).values())
    except UsageError:  # in a form that this kjit does not know
        return frozenset()


def write(folder: Path, built: Iterable[tuple[Variant, Artifact]], *, only: bool = False) -> Written:
    """Put these artifacts into the bundle in `folder`, which is made where there is none.

    Args:
        only: whatever else it holds is removed.

    Raises:
        UsageError: two modules cannot be distinguished, `folder` holds something else, or a bundle of another form.
        KjitError: it cannot be written, or an artifact changed meanwhile.
    """
    check_folder(folder, only=only)
    contents: dict[str, bytes] = {}
    new: dict[str, _Module] = {}
    for variant, artifact in built:
        _add(new, contents, variant, artifact)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locks.hold_folder(folder, "writes this bundle"):
            _remove_unfinished(folder)
            before = _known_modules(folder, only=only)
            named = _libraries_named_in(folder)
            change = _merge(folder, new, before, only=only)
            for name, content in contents.items():
                if not _holds(folder / name, content):
                    made.append(folder / name)
                    _replace(folder / name, content)
            _replace(folder / INDEX, json.dumps(_index_of(new), indent=1, sort_keys=True).encode() + b"\n")
            libraries = {library["file"]: library for module in new.values() for library in module.libraries}
            for name in named - libraries.keys():
                with contextlib.suppress(OSError):  # it is of no use, and does no harm
                    (folder / name).unlink()
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise KjitError(
            f"the bundle '{folder}' cannot be written: {error.strerror}.",
            hint="free some space" if error.errno in NO_SPACE else "name a folder of yours",
        ) from None
    return Written(
        folder,
        modules=len(new),
        libraries=len(libraries),
        size=sum(library["size"] for library in libraries.values()),
        glibc=max(filter(None, (library["glibc"] for library in libraries.values())), key=numbers_of, default=None),
        change=change,
    )


@dataclass
class _Module:
    """A module of a bundle; `spec` is known of those that are built now."""

    op: str
    label: str
    identity: Mapping[str, Any]
    libraries: list[_Library]
    spec: Spec | None = None

    @classmethod
    def of(cls, spec: Spec) -> _Module:
        return cls(spec.name, spec.label, identity_of(spec), [], spec)


def _key_of(spec: Spec) -> str:
    return digest_of([spec.name, identity_of(spec)])


def _archs(target: Target) -> list[str]:
    return [arch.digits for arch in target.archs]


def _merge(folder: Path, new: dict[str, _Module], before: Mapping[str, _Module], *, only: bool) -> Change:
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
            if any(_serves_as_well(each, library) for each in built):
                if all(each["digest"] != library["digest"] for each in built):
                    replaced.append(name)
            elif only:
                removed.append(name)
            else:
                kept.append(name)
                doubts += [f"{name}: {doubt}" for doubt in _doubts(folder, known, library)]
                stays = new.setdefault(key, _Module(module.op, module.label, module.identity, []))
                stays.libraries.append(library)
    nameless = sorted(_libraries_in(folder) - _libraries_named_in(folder))
    doubts += [f"{name}: no index names it" for name in nameless]
    return Change(*map(tuple, (replaced, kept, removed, others, doubts)))


def _serves_as_well(new: _Library, old: _Library) -> bool:
    """Whether `new` serves whatever `old` serves, of the same module."""
    return new["target"] == old["target"] or (bool(old["archs"]) and {*old["archs"]} <= {*new["archs"]})


def _doubts(folder: Path, module: _Module | None, library: _Library) -> Iterator[str]:
    """What is wrong with a library that stays."""
    yield from differences_of_machines(library["built with"])
    if not (folder / library["file"]).is_file():
        yield f"its file {library['file']} is missing"
    if module is not None and module.spec is not None:
        yield from changed_files(library["files"], module.spec, str(folder), with_kjit=True)


def _known_modules(folder: Path, *, only: bool) -> dict[str, _Module]:
    """What the bundle in `folder` holds, by the key of each module; nothing where there is none, or its index is
    damaged, or (`only`) of another form."""
    try:
        document = _read_index(folder)
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
            modules[key] = _Module(module["op"], module["label"], module["identity"], libraries)
            for library in libraries:
                if not {"file", "size", "digest", "glibc", "target", "archs"} <= library.keys():
                    return {}
        return modules
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}


def _read_index(folder: Path) -> dict[str, Any] | None:
    """The index in `folder`; None where there is none that can be read.

    Raises:
        UsageError: it is of a form that this kjit does not know.
    """
    try:
        document = json.loads((folder / INDEX).read_bytes())
        form, written = document["format"], document["built with"]["kjit"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    if form != FORMAT:
        raise UsageError(
            f"'{folder}' holds a bundle that kjit {written} wrote, in a format that this version cannot add to.",
            hint="--only replaces all of it",
        )
    return document if isinstance(document, dict) else None


def _index_of(modules: Mapping[str, _Module]) -> dict[str, Any]:
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
    return {
        "format": FORMAT,
        "built with": here,
        "files": rows,
        "modules": sorted(written, key=lambda module: json.dumps([module["op"], module["identity"]])),
    }


def _add(modules: dict[str, _Module], contents: dict[str, bytes], variant: Variant, artifact: Artifact) -> None:
    """Read an artifact, as a library of `modules` and a file of `contents`."""
    spec = variant.spec
    try:
        content = artifact.library.read_bytes()
    except OSError as error:
        raise KjitError(
            f"the library of {variant.label} went from the cache while the bundle was written ({error.strerror}).",
            hint="try again",
        ) from None
    hash_ = digest(content)
    if hash_ != artifact.record["digest"]:
        raise KjitError(f"the library of {variant.label} changed while the bundle was written.", hint="try again")
    name = f"{spec.name}-{hash_[:16]}.so"
    contents[name] = content
    module = modules.setdefault(_key_of(spec), _Module.of(spec))
    rows = _files_of(spec, artifact)
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
            "archs": _archs(variant.target),
            "level": variant.target.level,
            "glibc": glibc_of(content),
            "files": rows,
            "built with": this_machine(),
        }
    )


def _files_of(spec: Spec, artifact: Artifact) -> list[Row]:
    """The op's own files and kjit's headers that the artifact was built from."""
    record: Any = artifact.record
    home = home_of(spec)
    module = record["inputs"]["module"]
    hashes = [hash_ for _, hash_ in (*module["CUDA sources"], *module["C++ sources"])]
    rows: list[Row] = [
        ("source", os.path.relpath(path, home), hash_)
        for path, hash_ in zip((*spec.cuda_files, *spec.cpp_files), hashes, strict=True)
    ]
    anchors = Anchors.of(spec)
    own, _ = anchors.relative(home)
    installed = _Installed(home, (anchors.absolute(own, "") or "") if own else "")
    for header in Reads.from_json(record["reads"]).headers:
        if header.anchor == "kjit":
            rows.append(("kjit", header.path, header.digest))
            continue
        path = anchors.absolute(header.anchor, header.path)
        is_own = own != "" and header.anchor == own
        if path is None or header.anchor == "tvm_ffi" or installed.has(os.path.normpath(path)):
            continue
        number = None if is_own else _include_folder(spec, path)
        if number is not None:
            rows.append((number, _inside(path, include_folders_of(spec)[number]), header.digest))
        elif not header.anchor:
            rows.append(("", path, header.digest))
        elif home:
            rows.append(("source", _inside(path, home), header.digest))
    return rows


def _inside(path: str, folder: str) -> str:
    """`path` from `folder` on."""
    if path.startswith(f"{folder}/") and ".." in path.split("/"):
        return f"./{path[len(folder) + 1 :]}"
    return os.path.relpath(path, folder)


def _include_folder(spec: Spec, path: str) -> int | None:
    """The number of the include folder that a header lies in, the innermost one; None where it is in none of them."""
    folders = include_folders_of(spec)
    around = [number for number, folder in enumerate(folders) if path.startswith(f"{folder}/")]
    return max(around, key=lambda number: len(folders[number]), default=None)


class _Installed:
    """Which headers came with a package: another version of one, on another machine, is nobody's edit.

    An environment may lie in a project, and a project in an environment. So the innermost folder decides.
    """

    def __init__(self, home: str, project: str) -> None:
        """For an op whose first source is in `home`, in the folder `project`."""
        self._home = home
        # The op may be installed itself: its own package is as good as a project.
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


def _is_index(path: Path) -> bool:
    """Whether kjit wrote this file, any version of it."""
    try:
        document = json.loads(path.read_bytes())
        return bool(document["format"] and document["built with"]["kjit"])
    except (KeyError, OSError, TypeError, ValueError):
        return False


def _libraries_named_in(folder: Path) -> set[str]:
    """The files of the bundle that is there, as its index names them, of whatever form."""
    try:
        document = json.loads((folder / INDEX).read_bytes())
        names = {library["file"] for module in document["modules"] for library in module["libraries"]}
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return set()  # none, or damaged: what it named stays
    return {name for name in names if isinstance(name, str) and is_library(name)}


def _libraries_in(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder) if is_library(name)}
    except FileNotFoundError:
        return set()


def _is_being_written(name: str) -> bool:
    """Whether this is the name of a file that `_replace` has not put into its place yet."""
    named = _BEING_WRITTEN.fullmatch(name)
    return named is not None and (named[1] == INDEX or is_library(named[1]))


def _remove_unfinished(folder: Path) -> None:
    """Remove what a writer that was killed left half written; whoever holds the lock is the only one."""
    for name in filter(_is_being_written, os.listdir(folder)):
        with contextlib.suppress(OSError):  # it is of no use, and does no harm
            (folder / name).unlink()


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _replace(path: Path, content: bytes) -> None:
    being_written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        being_written.write_bytes(content)
        os.replace(being_written, path)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise
