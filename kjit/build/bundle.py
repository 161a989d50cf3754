"""Which library that was built ahead of use, and is shipped beside its wrapper, serves a variant here?

    <package>/prebuilt/index.json
    <package>/prebuilt/<op>-<digest>.so

`kjit build --out <package>/prebuilt` writes such a bundle; this is the one file that knows what is in it. It is asked
before the cache, and it must answer on a machine that has no compiler. So what identifies a module here is what its
wrapper says and what is on the disk, and nothing of a toolchain: name, arguments, exports, flags and names of sources;
the contents of the op's own files, as far as they are there; the GPU or the CPU; the versions of kjit and tvm-ffi.
Everything that differs is told, a line each.

Where the files lie does not count, as it is another place on every machine; two modules that differ in nothing else
cannot be told apart, and are refused when a bundle is written. The op's own files are named from where its first source
is, and what comes from an include folder outside of its project from that folder, which the wrapper knows. Headers of
installed packages are not compared: the library carries what it was compiled from, and they are nobody's edit. Nor is
it noticed when a new header comes before another one of the same name, which the cache watches: whoever builds a bundle
has just compiled it.

An index is read once a process, unless it is replaced. The library's size and checksums stand in it, as in the cache's
records, and are compared in the same way; so are the op's own files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import kjit
from kjit.build import cpu
from kjit.build.artifact import describe, read_library
from kjit.build.flags import map_folders
from kjit.build.folders import NO_SPACE, own_users, weakness_of
from kjit.build.headers import Reads, read_state
from kjit.build.key import PROJECT_FILES, Anchors, differences, digest, digest_of, has_any
from kjit.build.portable import differences_of_machines, glibc_here, glibc_of, numbers_of, this_machine
from kjit.build.store import Artifact
from kjit.errors import KjitError, UsageError
from kjit.spec import CudaArch, Spec, Target, Variant

FOLDER = "prebuilt"
"""Where a bundle is looked for: the folder of this name beside the wrapper, or in a package above it."""

_INDEX = "index.json"
_FORMAT = 3
_LIBRARY = re.compile(r"\w+-[0-9a-f]{16}\.so")
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
_SHOWN = 4

_File = tuple[str | int, str, str]
"""A file that was read: anchor, path and hash. The anchor is `source` (the folder of the op's first source), `kjit`, or
the number of a folder in the spec's `extra_include_paths`."""


@dataclass(frozen=True)
class Refusal:
    """Why a bundle does not serve a variant.

    Attributes:
        reasons: what differs, a line each.
        is_surprising: it holds this module, or should: not merely one that was never put into it.
    """

    bundle: str
    reasons: tuple[str, ...]
    is_surprising: bool = True

    def __str__(self) -> str:
        return "".join(f"\n  the bundle '{self.bundle}' does not fit: {reason}" for reason in self.reasons)


@dataclass(frozen=True)
class Lookup:
    """The answer to `find`: a library that fits (its path), and the bundles that were asked before and refused."""

    library: str | None
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class Written:
    """A bundle that was written.

    Attributes:
        size: bytes of all libraries.
        glibc: the oldest C library that they run with, `2.34`; None where they do not say.
    """

    folder: Path
    modules: int
    libraries: int
    size: int
    glibc: str | None


def find(variant: Variant, wrapper: str | None) -> Lookup:
    """Look for the library of `variant` in the bundles beside its wrapper.

    Args:
        wrapper: the path of the file that asks; None (a notebook) has no bundle.
    """
    if wrapper is None or variant.target.is_simulated:
        return Lookup(None, ())
    if not os.path.isabs(wrapper):
        wrapper = os.path.abspath(wrapper)  # `__file__` is as it was named to runpy
    refusals: list[Refusal] = []
    for folder in _places(os.path.dirname(wrapper)):
        try:
            status = os.stat(f"{folder}/{_INDEX}")
        except OSError:
            continue
        open_to_others = _open_to_others(folder, status)
        if open_to_others is not None:
            refusals.append(Refusal(folder, (open_to_others,)))
            continue
        found = _read(folder, status.st_mtime_ns, status.st_size, status.st_ino).find(variant)
        if isinstance(found, str):
            return Lookup(found, tuple(refusals))
        refusals.append(found)
    return Lookup(None, tuple(refusals))


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


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than a bundle.

    A bundle is known by its index, of whatever form; where that is damaged or missing, by its libraries if there is
    nothing else.

    Raises:
        UsageError: it does, or it is a file.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"no bundle can be written to '{folder}': {error.strerror}.") from None
    foreign = [name for name in names if _LIBRARY.fullmatch(name) is None and name != _INDEX]
    is_named = _INDEX in names and _is_index(folder / _INDEX)
    if is_named or (not foreign and names != [_INDEX]):
        return
    found = f"'{min(foreign)}' is in it" if foreign else f"its {_INDEX} is none of kjit's"
    raise UsageError(
        f"'{folder}' is there, and is no bundle ({found}); nothing is written.",
        hint=f"name a folder of its own, for example kernels/{FOLDER}",
    )


def write(folder: Path, built: Iterable[tuple[Variant, Artifact]]) -> Written:
    """Write the bundle of these artifacts to `folder`, in the place of the one that is there.

    A program that starts meanwhile finds the old one or the new one: the index is replaced last, and only then go the
    libraries that the old one named.

    Raises:
        UsageError: two modules cannot be told apart, or `folder` holds something else.
        KjitError: it cannot be written, or an artifact changed meanwhile.
    """
    check_folder(folder)
    writer = _Writer()
    for variant, artifact in built:
        writer.add(variant, artifact)
    before = _libraries_named_in(folder)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in writer.contents.items():
            if not _holds(folder / name, content):
                made.append(folder / name)
                _replace(folder / name, content)
        _replace(folder / _INDEX, json.dumps(writer.index(), indent=1, sort_keys=True).encode() + b"\n")
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise KjitError(
            f"the bundle '{folder}' cannot be written: {error.strerror}.",
            hint="free some space" if error.errno in NO_SPACE else "name a folder of yours",
        ) from None
    for name in before - writer.contents.keys():
        with contextlib.suppress(OSError):  # it is of no use, and does no harm
            (folder / name).unlink()
    needs = [library["glibc"] for module in writer.modules.values() for library in module["libraries"]]
    return Written(
        folder,
        modules=len(writer.modules),
        libraries=len(writer.contents),
        size=sum(map(len, writer.contents.values())),
        glibc=max(filter(None, needs), key=numbers_of, default=None),
    )


class _Bundle:
    """An index that was read."""

    def __init__(self, folder: str, document: Any) -> None:
        """Raises KeyError, TypeError or ValueError where `document` is no index."""
        self._folder = folder
        self._differs = differences_of_machines(document["built with"])
        self._kjit_is_same = document["built with"]["kjit"] == kjit.__version__
        self._files: list[_File] = [(anchor, path, hash_) for anchor, path, hash_ in document["files"]]
        self._by_op: dict[str, list[dict[str, Any]]] = {}
        self._modules: dict[str, dict[str, Any]] = {}
        for module in document["modules"]:
            self._by_op.setdefault(module["op"], []).append(module)
            self._modules[digest_of([module["op"], module["identity"]])] = module

    def find(self, variant: Variant) -> str | Refusal:
        """The library that serves `variant` here, or all that stands against it."""
        spec = variant.spec
        reasons = [*self._differs]
        try:
            identity = _identity(spec)
            module = self._modules.get(digest_of([spec.name, identity]))
            if module is None:
                return self._without(spec, identity)
            reasons += self._edited(module, spec)
            library = _choose(module["libraries"], variant.target)
            if isinstance(library, list):
                reasons += library
            elif not reasons:
                if _LIBRARY.fullmatch(library["file"]) is None:
                    return Refusal(
                        self._folder, (f"its index names '{library['file']}', which is no file of a bundle",)
                    )
                path = f"{self._folder}/{library['file']}"
                damage = self._damage(path, library)
                if damage is None:
                    return path
                reasons.append(damage)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            reasons.append(_no_index(error))
        return Refusal(self._folder, tuple(reasons))

    def _damage(self, path: str, said: Mapping[str, Any]) -> str | None:
        name = os.path.basename(path)
        try:
            read = read_library(path)
            weak = _weakness(read.status, os.stat(os.path.dirname(self._folder)))
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if weak is not None:
            return f"{name} {weak}"
        difference = read.difference(said)
        return None if difference is None else f"{name} is damaged: it {difference}"

    def _without(self, spec: Spec, identity: Mapping[str, object]) -> Refusal:
        """What this holds instead of a module."""
        modules = self._by_op.get(spec.name, [])
        for module in modules:
            if module["identity"].get("arguments") == list(spec.args):
                lines = differences({"module": module["identity"]}, {"module": identity})
                return Refusal(self._folder, (*self._differs, *(lines or ["it was built from another description"])))
        labels = [module["label"] for module in modules]
        more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
        reason = f"it has {', '.join(labels[:_SHOWN])}{more}, and not {spec.label}"
        if not modules:
            reason = f"{spec.name} is not in it"
        return Refusal(self._folder, (*self._differs, reason), is_surprising=bool(self._differs))

    def _edited(self, module: Mapping[str, Any], spec: Spec) -> list[str]:
        lines = []
        folders: dict[str | int, str] = {"source": _home(spec), **dict(enumerate(spec.extra_include_paths))}
        if self._kjit_is_same:  # else its version tells
            folders["kjit"] = _kjit_home()
        for index in module["files"]:
            anchor, path, expected = self._files[index]
            folder = folders.get(anchor)
            if folder is None:
                continue  # an include folder that the wrapper does not name here
            here = _place(folder, path)
            now = _digest_of(here)
            if now is not None and now != expected:
                lines.append(f"{self._shown(anchor, path, here)} changed since it was built")
        return lines

    def _shown(self, anchor: str | int, path: str, here: str) -> str:
        if anchor == "kjit":
            return f"{{kjit}}/{path}"
        relative = os.path.relpath(here, os.path.dirname(self._folder))
        return here if relative.startswith("..") else relative


class _Writer:
    """The parts of a bundle, in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.modules: dict[str, dict[str, Any]] = {}
        self._files: dict[_File, int] = {}

    def add(self, variant: Variant, artifact: Artifact) -> None:
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
        self.contents[name] = content
        identity = _identity(spec)
        files = sorted(self._files.setdefault(row, len(self._files)) for row in _files_of(spec, artifact))
        module = self.modules.setdefault(
            digest_of([spec.name, identity]),
            {"op": spec.name, "label": spec.label, "identity": identity, "files": files, "libraries": []},
        )
        for library in module["libraries"]:
            if library["target"] == str(variant.target):
                if library["digest"] == hash_:
                    return
                raise UsageError(
                    f"{spec.label} is declared twice, from different files and with the same name, arguments, exports "
                    "and flags: in a bundle the two cannot be told apart.",
                    hint="give them different arguments (the strings after the name in kjit.Spec)",
                )
        module["files"] = sorted({*module["files"], *files})
        module["libraries"].append(
            {
                "file": name,
                **describe(content),
                "target": str(variant.target),
                "archs": [arch.digits for arch in variant.target.archs],
                "level": variant.target.level,
                "glibc": glibc_of(content),
            }
        )

    def index(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "built with": this_machine(),
            "files": list(self._files),
            "modules": sorted(self.modules.values(), key=lambda module: json.dumps(module["identity"])),
        }


@lru_cache(maxsize=256)
def _places(folder: str) -> tuple[str, ...]:
    """Where bundles of a wrapper in `folder` may be: beside it, and in the packages that it is in."""
    places = []
    while True:
        places.append(f"{folder}/{FOLDER}")
        if not os.path.exists(f"{folder}/__init__.py"):
            return tuple(places)
        folder = os.path.dirname(folder)


def _open_to_others(folder: str, index: os.stat_result) -> str | None:
    """Why a bundle is not trusted: others can change it who cannot change the package that it is in, whose code is
    run anyway."""
    try:
        package, bundle = os.stat(os.path.dirname(folder)), os.stat(folder)
    except OSError:
        return None  # gone meanwhile, as its index will be
    for what, status in (("its folder", bundle), ("its index", index)):
        if (weak := _weakness(status, package)) is not None:
            return f"{what} {weak}"
    return None


def _weakness(status: os.stat_result, package: os.stat_result) -> str | None:
    """As `folders.weakness`, where whoever can change the folder of the package is trusted."""
    trusted = 0
    if package.st_mode & stat.S_IWOTH:
        trusted = stat.S_IWOTH | stat.S_IWGRP
    elif status.st_gid == package.st_gid:
        trusted = package.st_mode & stat.S_IWGRP
    return weakness_of(status.st_mode & ~trusted, status.st_uid, (*own_users(), package.st_uid))


@lru_cache(maxsize=64)
def _read(folder: str, mtime_ns: int, size: int, inode: int) -> _Bundle | _Unreadable:
    del mtime_ns, size, inode  # only the cache's key: a replaced index is read again
    try:
        with open(f"{folder}/{_INDEX}", "rb") as file:
            document = json.loads(file.read())
        if document["format"] != _FORMAT:
            written = document["built with"]["kjit"]
            return _Unreadable(folder, f"it was written by kjit {written}, in a form that this one does not know")
        return _Bundle(folder, document)
    except OSError as error:
        return _Unreadable(folder, f"its index cannot be read ({error.strerror})")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return _Unreadable(folder, _no_index(error))


@dataclass(frozen=True)
class _Unreadable:
    """A bundle without an index that can be used."""

    folder: str
    reason: str

    def find(self, variant: Variant) -> Refusal:
        del variant  # it serves none
        return Refusal(self.folder, (self.reason,))


def _no_index(error: Exception) -> str:
    return f"its index is damaged ({type(error).__name__}: {error})"


def _identity(spec: Spec) -> dict[str, object]:
    """What tells a module from others of its op, wherever its files are."""
    return {
        "arguments": list(spec.args),
        "CUDA sources": [os.path.basename(path) for path in spec.cuda_files],
        "C++ sources": [os.path.basename(path) for path in spec.cpp_files],
        "CUDA exports": [list(export) for export in spec.cuda_wrappers],
        "C++ exports": [list(export) for export in spec.cpp_wrappers],
        "flags for c++": _without_folders(spec.extra_cflags),
        "flags for nvcc": _without_folders(spec.extra_cuda_cflags),
        "flags for the link": _without_folders(spec.extra_ldflags),
        "simd": spec.simd,
    }


def _without_folders(words: Iterable[str]) -> list[str]:
    """Without the folders that compilers search; a path in any other flag may end up in the library."""
    return map_folders(words, lambda _: None)


def _home(spec: Spec) -> str:
    """The folder that paths of the op's own files are relative to: that of its first source."""
    files = spec.cuda_files or spec.cpp_files
    return os.path.dirname(files[0]) if files else ""


def _files_of(spec: Spec, artifact: Artifact) -> list[_File]:
    """The op's own files and kjit's headers that the artifact was built from."""
    record: Any = artifact.record
    home = _home(spec)
    module = record["inputs"]["module"]
    hashes = [hash_ for _, hash_ in (*module["CUDA sources"], *module["C++ sources"])]
    rows: list[_File] = [
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
        if path is None or header.anchor == "tvm_ffi" or installed.has(path):
            continue
        number = None if is_own else _include_folder(spec, path)
        if number is not None:
            rows.append((number, os.path.relpath(path, spec.extra_include_paths[number]), header.digest))
        elif home:
            rows.append(("source", os.path.relpath(path, home), header.digest))
    return rows


def _include_folder(spec: Spec, path: str) -> int | None:
    """The number of the include folder that a header lies in, the innermost one; None where it is in none of them."""
    folders = spec.extra_include_paths
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


@lru_cache(maxsize=4096)
def _place(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


@lru_cache(maxsize=1)
def _kjit_home() -> str:
    return os.path.dirname(os.path.abspath(kjit.__file__))


def _digest_of(path: str) -> str | None:
    """The hash of a file, None where it is not there. It is read again when it may have changed."""
    try:
        return read_state(path, os.stat(path)).digest
    except OSError:
        return None


def _choose(libraries: list[dict[str, Any]], target: Target) -> dict[str, Any] | list[str]:
    """The library with the best code for `target` here, or what stands against it, a line each."""
    reasons = []
    fitting: list[tuple[Any, dict[str, Any]]] = []
    if target.arch is not None:
        archs = [(CudaArch.parse(digits), library) for library in libraries for digits in library["archs"]]
        fitting = [(arch.closeness, library) for arch, library in archs if arch.serves(target.arch)]
        if not fitting:
            has = ", ".join(str(arch) for arch, _ in sorted(archs, key=lambda pair: pair[0])) or "no GPU"
            reasons.append(f"it has code for {has}, and none of it for {target.arch}")
    else:
        here = cpu.levels_here()
        fitting = [(here.index(each["level"]), each) for each in libraries if each["level"] in here]
        if not fitting:
            has = ", ".join(library["level"] for library in libraries if library["level"]) or "no CPU"
            reasons.append(f"it has code for {has}, and this CPU has {here[-1] if here else 'none of these levels'}")
    if not fitting:
        return reasons
    best = max(fitting, key=lambda pair: pair[0])[1]
    needed, glibc = best["glibc"], glibc_here()
    if needed is not None and glibc is not None and numbers_of(needed) > numbers_of(glibc):
        return [f"it needs glibc {needed} or newer, and this is glibc {glibc}"]
    return best


def _is_index(path: Path) -> bool:
    """Whether kjit wrote this file, any version of it."""
    try:
        document = json.loads(path.read_bytes())
        return bool(document["format"] and document["built with"]["kjit"])
    except (KeyError, OSError, TypeError, ValueError):
        return False


def _libraries_named_in(folder: Path) -> set[str]:
    """The files of the bundle that is there, as its index names them."""
    try:
        document = json.loads((folder / _INDEX).read_bytes())
        names = {library["file"] for module in document["modules"] for library in module["libraries"]}
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return set()  # none, or damaged: what it named stays
    return {name for name in names if isinstance(name, str) and _LIBRARY.fullmatch(name)}


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
