"""Bundles: libraries built ahead of time and shipped beside a wrapper; the search for one that serves a variant.

    <package>/prebuilt/index.json
    <package>/prebuilt/<op>-<digest>.so

`kjit build --out <package>/prebuilt` writes such a bundle (bundle_writer.py). It is searched before the cache, and must
work on a machine without a compiler. So a module is identified by its wrapper and by files, without a toolchain: name,
arguments, exports, flags and names of sources; the contents of the op's own files, if they exist; the GPU or the CPU;
the versions of kjit and tvm-ffi. Each difference is reported.

The location of the files does not count, as it differs between machines; two modules that differ in nothing else cannot
be distinguished, and are rejected when a bundle is written. Each library lists the files that it was built from,
relative to the op's first source, and those of kjit. Headers of installed packages are not compared, as they are not
edited. A new header that shadows another one is not noticed, unlike in the cache. And a module's own location
(`__FILE__`) is that of its build.

An index is read once per process, unless it is replaced. It has the size and checksums of each library, as the records
in the cache do, and they are compared in the same way; so are the op's own files.

All of this is one look-up, and one module, because each module costs a process that loads a kernel some tenths of a
millisecond (tests/runtime/test_thin.py).
"""

from __future__ import annotations

import json
import os
import platform
import stat
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import kjit
from kjit import env
from kjit.runtime import (
    cpu_features,
    digest,
    digest_of_file,
    numbers_of,
    own_users,
    read_library,
    tvm_ffi_home,
    tvm_ffi_version,
    weakness_of,
)
from kjit.runtime.load import INDEX, bundle_folders
from kjit.spec import CudaArch, Spec, Target, Value, Variant

FORMAT = 6
_SHOWN = 4
_SETTLING_NS = 2_000_000_000  # a file may be written twice within one tick of its clock

Row = tuple[str, str]
"""A file that was read: its path and hash. The path is relative to the folder of the op's first source, or is in kjit:
`{kjit}/include/...`."""


class Refusal(Value):
    """Why a bundle does not serve a variant.

    Attributes:
        reasons: the differences, one line each.
        is_surprising: whether it has this module, or should have it.
    """

    __slots__ = _fields = ("bundle", "reasons", "is_surprising")

    bundle: str
    reasons: tuple[str, ...]
    is_surprising: bool

    def __init__(self, bundle: str, reasons: tuple[str, ...], is_surprising: bool = True) -> None:
        self._set(bundle, reasons, is_surprising)

    def __str__(self) -> str:
        return "".join(f"\n  the bundle '{self.bundle}' does not fit: {reason}" for reason in self.reasons)


class Lookup(Value):
    """The result of `find`: the path of a suitable library, and the bundles before it that do not serve the variant."""

    __slots__ = _fields = ("library", "refusals")

    library: str | None
    refusals: tuple[Refusal, ...]

    def __init__(self, library: str | None, refusals: tuple[Refusal, ...]) -> None:
        self._set(library, refusals)


def find(variant: Variant, wrapper: str | None) -> Lookup:
    """Find the library of `variant` in the bundles of its wrapper.

    Args:
        wrapper: the path of the requesting file; None for a notebook, which has no bundle.
    """
    if variant.target.is_simulated:
        return Lookup(None, ())
    refusals: list[Refusal] = []
    for folder in bundle_folders(wrapper):
        try:
            status = os.stat(f"{folder}/{INDEX}")
        except OSError:
            continue
        open_to_others = _open_to_others(folder, status)
        if open_to_others is not None:
            refusals.append(Refusal(folder, (open_to_others,)))
            continue
        index = _read(folder, status.st_mtime_ns, status.st_size, status.st_ino)
        found = Refusal(folder, (index,)) if isinstance(index, str) else index.find(variant)
        if isinstance(found, str):
            return Lookup(found, tuple(refusals))
        refusals.append(found)
    return Lookup(None, tuple(refusals))


class _Bundle:
    """A bundle with a valid index."""

    def __init__(self, folder: str, document: Any) -> None:
        """Raises KeyError, TypeError or ValueError if `document` is not an index."""
        self._folder = folder
        self._files: list[Row] = [(path, hash_) for path, hash_ in document["files"]]
        self._by_op: dict[str, list[dict[str, Any]]] = {}
        for library in document["libraries"]:
            self._by_op.setdefault(library["op"], []).append(library)

    def find(self, variant: Variant) -> str | Refusal:
        """The library that serves `variant` here, or the reasons why none does."""
        spec = variant.spec
        reasons: list[str] = []
        try:
            identity = identity_of(spec)
            libraries = [each for each in self._by_op.get(spec.name, ()) if each["identity"] == identity]
            if not libraries:
                return self._without(spec, identity)
            library = _choose(libraries, variant.target)
            for each in libraries if isinstance(library, list) else [library]:
                reasons += self._outdated(each, spec)
            reasons = list(dict.fromkeys(reasons))
            if isinstance(library, list):
                reasons += library
            elif not reasons:
                if not is_library(library["file"]):
                    return Refusal(
                        self._folder, (f"its index names '{library['file']}', which is not a file of a bundle",)
                    )
                path = f"{self._folder}/{library['file']}"
                damage = self._damage(path, library)
                if damage is None:
                    return path
                reasons.append(damage)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            reasons.append(_no_index(error))
        return Refusal(self._folder, tuple(reasons))

    def _damage(self, path: str, library: Mapping[str, Any]) -> str | None:
        name = os.path.basename(path)
        try:
            read = read_library(path)
            weak = _weakness(read.status, os.stat(os.path.dirname(self._folder)))
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if weak is not None:
            return f"{name} {weak}"
        difference = read.difference(library)
        return None if difference is None else f"{name} is damaged: it {difference}"

    def _without(self, spec: Spec, identity: Mapping[str, object]) -> Refusal:
        """The reason why a module is not in this bundle: the contents of the bundle, or the differences."""
        libraries = self._by_op.get(spec.name, [])
        for library in libraries:
            if library["identity"].get("arguments") == list(spec.args):
                from kjit.engine.key.differences import differences

                lines = differences({"module": library["identity"]}, {"module": identity})
                return Refusal(self._folder, tuple(lines) or ("it was built from another description",))
        labels = list(dict.fromkeys(library["label"] for library in libraries))
        more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
        reason = f"it has {', '.join(labels[:_SHOWN])}{more}, and not {spec.label}"
        return Refusal(self._folder, (reason if labels else f"{spec.name} is not in it",), is_surprising=False)

    def _outdated(self, library: Mapping[str, Any], spec: Spec) -> list[str]:
        """The differences between this machine and its files and those that a library was built with."""
        built_with = library["built with"]
        rows = [self._files[number] for number in library["files"]]
        # Another version of kjit has other headers, and is reported by itself.
        with_kjit = built_with["kjit"] == kjit.__version__
        return [*differences_of_machines(built_with), *changed_files(rows, spec, self._folder, with_kjit=with_kjit)]


def changed_files(rows: Iterable[Row], spec: Spec, bundle: str, *, with_kjit: bool) -> list[str]:
    """The files that a library was built from that exist here with another content, one sentence each.

    Args:
        bundle: its folder; files of the same package are shown relative to it.
        with_kjit: compare kjit's own headers, too.
    """
    lines = []
    home, package = home_of(spec), os.path.dirname(os.path.realpath(bundle))
    for path, expected in rows:
        is_of_kjit = path.startswith("{kjit}/")
        if is_of_kjit and not with_kjit:
            continue
        here = f"{_kjit_home()}{path[6:]}" if is_of_kjit else _place(home, path)
        now = _digest_of(here)
        if now is not None and now != expected:
            shown = path if is_of_kjit else here.removeprefix(f"{package}/")
            lines.append(f"{shown} changed since it was built")
    return lines


def _open_to_others(folder: str, index: os.stat_result) -> str | None:
    """Why a bundle is not trusted: somebody can change it who cannot change its package, whose code is run anyway."""
    try:
        package, bundle = os.stat(os.path.dirname(folder)), os.stat(folder)
    except OSError:
        return None  # removed meanwhile, with its index
    for what, status in (("its folder", bundle), ("its index", index)):
        if (weak := _weakness(status, package)) is not None:
            return f"{what} {weak}"
    return None


def _weakness(status: os.stat_result, package: os.stat_result) -> str | None:
    """Like `weakness`, but users who can change the folder of the package are trusted."""
    trusted = 0
    if package.st_mode & stat.S_IWOTH and not package.st_mode & stat.S_ISVTX:
        trusted = stat.S_IWOTH | stat.S_IWGRP
    elif status.st_gid == package.st_gid:
        trusted = package.st_mode & stat.S_IWGRP
    return weakness_of(status.st_mode & ~trusted, status.st_uid, (*own_users(), package.st_uid))


@lru_cache(maxsize=64)
def _read(folder: str, mtime_ns: int, size: int, inode: int) -> _Bundle | str:
    """The bundle in a folder, or what is wrong with its index."""
    del mtime_ns, size, inode  # only part of the key of lru_cache: a replaced index is read again
    try:
        with open(f"{folder}/{INDEX}", "rb") as file:
            document = json.loads(file.read())
        if document["format"] != FORMAT:
            written = document["kjit"]
            return f"it was written by kjit {written}, in a format that this version cannot read"
        return _Bundle(folder, document)
    except OSError as error:
        return f"its index cannot be read ({error.strerror})"
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        return _no_index(error)


def is_library(name: str) -> bool:
    """Whether this is a valid name of a library in a bundle, such as `scale-0123456789abcdef.so`."""
    op, _, rest = name.rpartition("-")
    is_hash = len(rest) == 19 and rest.endswith(".so") and set(rest[:16]) <= set("0123456789abcdef")
    return is_hash and op.isascii() and op.isidentifier()


def _no_index(error: Exception) -> str:
    return f"its index is damaged ({type(error).__name__}: {error})"


def identity_of(spec: Spec) -> dict[str, object]:
    """The identity of a module, without the location of its files."""
    return {
        "arguments": list(spec.args),
        "CUDA sources": [os.path.basename(path) for path in spec.cuda_files],
        "C++ sources": [os.path.basename(path) for path in spec.cpp_files],
        "CUDA exports": [list(export) for export in spec.cuda_wrappers],
        "C++ exports": [list(export) for export in spec.cpp_wrappers],
        # A path in any flag that is not a search path may end up in the library.
        "flags for c++": _flags(spec.extra_cflags, "c++"),
        "flags for nvcc": _flags(spec.extra_cuda_cflags, "nvcc"),
        "flags for the link": _flags(spec.extra_ldflags, "c++"),
    }


def home_of(spec: Spec) -> str:
    """The folder of the first source, without links, to which paths of files are relative."""
    files = spec.cuda_files or spec.cpp_files
    return os.path.realpath(os.path.dirname(files[0])) if files else ""


# The beginnings of flags that may add folders to search, directly or in a list or a file. Only those need the table of
# options, whose import would cost a process that loads a kernel some milliseconds.
_MAY_NAME_FOLDERS = ("-I", "-L", "-X", "-Wp", "-c", "-i", "-o", "--", "@")
_OF_NVCC = ("--expt-", "--use_fast_math")


def _flags(words: tuple[str, ...], dialect: Literal["c++", "nvcc"]) -> list[str]:
    """Flags without search paths."""
    if not any(word.startswith(_MAY_NAME_FOLDERS) and not word.startswith(_OF_NVCC) for word in words):
        return list(words)
    from kjit.engine.key.flags import without_folders

    return without_folders(words, dialect)


@lru_cache(maxsize=4096)
def _place(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


@lru_cache(maxsize=1)
def _kjit_home() -> str:
    return os.path.dirname(os.path.abspath(kjit.__file__))


def _digest_of(path: str) -> str | None:
    """The hash of a file; None if it does not exist. It is read again when it may have changed."""
    try:
        status = os.stat(path)
        return digest_of_file(path, status, is_settled=status.st_ctime_ns < time.time_ns() - _SETTLING_NS)
    except OSError:
        return None


def digest_of(document: object) -> str:
    """The hash of a JSON document."""
    return digest(_as_json(document).encode())


_as_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def _choose(libraries: list[dict[str, Any]], target: Target) -> dict[str, Any] | list[str]:
    """The library with the best code for `target` here, or the reasons why there is none, one line each."""
    reasons = []
    fitting: list[tuple[Any, dict[str, Any]]] = []
    if target.arch is not None:
        archs = [(CudaArch.parse(digits), library) for library in libraries for digits in library["archs"]]
        fitting = [(arch.closeness, library) for arch, library in archs if arch.serves(target.arch)]
        if not fitting:
            has = ", ".join(str(arch) for arch, _ in sorted(archs, key=lambda pair: pair[0])) or "no GPU"
            reasons.append(f"it has code for {has}, and none for {target.arch}")
    else:
        here = levels_here()
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


def this_machine() -> dict[str, str]:
    """The properties of this machine that are compared, by name."""
    return {
        "kjit": kjit.__version__,
        "tvm-ffi": _tvm_ffi_version(),
        "system": platform.system(),
        "machine": platform.machine(),
    }


def differences_of_machines(built: Mapping[str, str]) -> tuple[str, ...]:
    """Why a library does not run here that was built where `this_machine` was `built`, one line each.

    Raises:
        KeyError: `built` lacks a name.
    """
    lines = []
    here = this_machine()
    for name in ("kjit", "tvm-ffi"):
        if not _continues(built[name], here[name]):
            lines.append(f"it was built with {name} {built[name]}, and this is {name} {here[name]}")
    for name in ("system", "machine"):
        if built[name] != here[name]:
            lines.append(f"it was built for {built[name]}, and this is {here[name]}")
    return tuple(lines)


def _continues(built: str, here: str) -> bool:
    """Whether a library compiled with version `built` works with version `here`: of the same series, and not older."""
    return numbers_of(built)[:2] == numbers_of(here)[:2] and numbers_of(here) >= numbers_of(built)


@lru_cache(maxsize=1)
def glibc_here() -> str | None:
    """The version of glibc; None with another C library, whose loader decides."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return None
    return version if name == "glibc" else None


@lru_cache(maxsize=1)
def _tvm_ffi_version() -> str:
    home = tvm_ffi_home()
    return "" if home is None else tvm_ffi_version(home)


class Level:
    """An instruction set common to a generation of CPUs.

    Attributes:
        march: the value for `-march=`.
        features: the instruction sets in addition to those of the previous level, in Linux's names.
    """

    __slots__ = ("features", "march", "name")

    def __init__(self, name: str, features: str, march: str | None = None) -> None:
        self.name = name
        self.march = march or name
        self.features = frozenset(features.split())


LEVELS: Mapping[str, tuple[Level, ...]] = {
    "x86_64": (
        Level("x86-64-v2", "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"),
        Level("x86-64-v3", "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
        Level("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
    ),
    "aarch64": (
        Level("armv8-a", "fp asimd"),
        Level("armv8.2-a", "atomics asimdrdm fphp asimdhp asimddp crc32", "armv8.2-a+fp16+dotprod"),
    ),
}
"""The CPU levels of bundles by kind of machine, lowest first (see engine/toolchain/cpu.py)."""


def levels_here() -> tuple[str, ...]:
    """The levels whose libraries run on this CPU, lowest first, up to `KJIT_CPU_LEVEL` if that is set.

    Raises:
        UsageError: it is not a level.
    """
    features = cpu_features()
    named = env.cpu_level()
    known = LEVELS.get(platform.machine(), ())
    highest = next((level for level in known if level.name == named), None)
    if named is not None and highest is None:
        from kjit.engine.toolchain.cpu import find_level

        find_level(named)  # raises an error that lists the levels
    here = []
    for level in known:
        if not level.features <= features:
            break
        here.append(level.name)
        if level == highest:
            break
    return tuple(here)
