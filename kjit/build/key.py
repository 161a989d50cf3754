"""By which key is an artifact found before anything was compiled?

The key is a hash over one document, `inputs`: everything known beforehand that can change the library. The document
itself is kept in the artifact's record, so that a miss can say what differs instead of "not found". What is only known
after a compile (the headers that were read) is the business of headers.py.

Paths inside a project, inside kjit and inside tvm-ffi are written relative to an anchor, so that a moved checkout, a
second clone and another virtual environment have the same key. Only paths that a compiler searches are rewritten: a
path inside `-DDATA="..."` ends up in the library and must stay part of the key as it is.

Half of the document is the same for most modules of a program: the compilers and the flags. Its hash is therefore taken
once for each set of them (`_surroundings`), and the document is put together only when somebody reads it: on a miss.

The trade-off: each source is read on every lookup (five microseconds), where its size and date would do most of the
time. In return an edited source can never be missed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import kjit
from kjit.build import looks
from kjit.build.flags import Dialect, map_paths
from kjit.build.toolchain import Toolchain, tvm_ffi_include
from kjit.errors import UsageError
from kjit.runtime import digest as digest
from kjit.runtime import read_file as read_file
from kjit.runtime import tvm_ffi_version_in
from kjit.runtime.bundle import digest_of as digest_of
from kjit.runtime.recall import Look
from kjit.spec import Spec, Variant

FORMAT = 4
"""Changes when the same inputs would be built differently, or a record is written differently."""

PROJECT_FILES = ("pyproject.toml", ".git")
"""What the folder of a project has one of."""

_AT_ONCE = 65536


@dataclass(frozen=True)
class FileState:
    """A file as it was when it was read.

    `ctime_ns` is the kernel's own date of the last change, which no tool sets back.
    """

    path: str
    size: int
    inode: int
    ctime_ns: int
    digest: str

    @classmethod
    def read(cls, path: str) -> FileState:
        """Read and hash the file.

        Raises:
            OSError: it cannot be read.
        """
        content, status = read_file(path)
        return cls(path, status.st_size, status.st_ino, status.st_ctime_ns, _digest_of_source(content))


class Anchors:
    """Names for the folders that may lie elsewhere tomorrow, and paths relative to them."""

    def __init__(self, folders: Iterable[tuple[str, str]], asked: Iterable[Look] = ()) -> None:
        """`folders` are `(name, folder)`; a name may have several folders, of which the first is where it is. `asked`
        is what the disk was asked to find them."""
        self.asked = tuple(asked)
        self._folders = tuple(folders)
        self._home = dict(reversed(self._folders))
        # The deepest first: kjit's own folder may lie inside a project.
        self._by_depth = sorted(((f"{folder}/", name) for name, folder in self._folders), key=lambda x: -len(x[0]))

    @classmethod
    def of_project(cls, folder: str) -> Anchors:
        """kjit, tvm-ffi, and one project in `folder`."""
        return cls([*_installed(), ("project", folder)])

    @classmethod
    def of(cls, spec: Spec) -> Anchors:
        """kjit, tvm-ffi, and the projects of the spec's sources and include folders in the order of the spec."""
        return _anchors(_installed(), (*spec.cuda_files, *spec.cpp_files), spec.extra_include_paths)

    def relative(self, path: str) -> tuple[str, str]:
        """`(anchor, path)`: relative to the anchor, or absolute with an empty anchor."""
        for prefix, name in self._by_depth:
            if path.startswith(prefix):
                return name, path[len(prefix) :]
            if path == prefix[:-1]:
                return name, ""
        return "", path

    def absolute(self, anchor: str, path: str) -> str | None:
        """The path that `relative` was given, as it is here; None if there is no such anchor here."""
        if not anchor:
            return path
        home = self._home.get(anchor)
        return None if home is None else f"{home}/{path}" if path else home

    @property
    def projects(self) -> list[str]:
        """The folders of the projects."""
        return [folder for name, folder in self._folders if name.startswith("project")]

    def written(self, path: str) -> str:
        """`{project}/csrc/scale.cuh`: for keys and for people."""
        anchor, rest = self.relative(path)
        return path if not anchor else f"{{{anchor}}}/{rest}" if rest else f"{{{anchor}}}"


@dataclass(frozen=True)
class Key:
    """What a variant's artifact is looked up by.

    Attributes:
        key1: the hash of everything in `inputs`, hexadecimal.
        source_key: the hash of its part `module`, without the compilers: equal on all machines.
        sources: the direct sources, as they were read for this key.
        module, surroundings: the two halves of `inputs`.
    """

    variant: Variant
    key1: str
    source_key: str
    anchors: Anchors
    sources: tuple[FileState, ...]
    module: Mapping[str, object]
    surroundings: Surroundings

    @classmethod
    def of(cls, variant: Variant, toolchain: Toolchain) -> Key:
        """The key of `variant` when built with `toolchain`.

        Raises:
            UsageError: a source is not there.
        """
        spec = variant.spec
        anchors = Anchors.of(spec)
        sources = _sources(spec)
        module = _module(spec, str(variant.target), anchors, sources)
        surroundings = _surroundings(spec, toolchain, anchors)
        source_key = digest_of(module)
        key1 = digest(f"{source_key}{surroundings.digest}".encode())
        return cls(variant, key1, source_key, anchors, sources, module, surroundings)

    @property
    def inputs(self) -> Mapping[str, object]:
        """The document that the keys are made from."""
        return {"module": self.module, **self.surroundings.document}


@dataclass(frozen=True)
class Surroundings:
    """What a module is built with: flags, compilers, versions; and the hash of that document."""

    document: Mapping[str, object]
    digest: str


def source_key_of(spec: Spec, target: str) -> str:
    """The `source_key` of a spec's keys for a target (as `str(Target)` writes it); no compiler is needed for it.

    Raises:
        UsageError: a source is not there.
    """
    return digest_of(_module(spec, target, Anchors.of(spec), _sources(spec)))


def _digest_of_source(content: bytes) -> str:
    """As `digest`, remembered: the variants of an op have the same sources."""
    return _remembered_digest(content) if len(content) <= _AT_ONCE else digest(content)


_remembered_digest = lru_cache(maxsize=64)(digest)


@lru_cache(maxsize=1)
def tvm_ffi_version() -> str:
    """The version of tvm-ffi, without importing it."""
    return tvm_ffi_version_in(str(tvm_ffi_include().parent))


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What changed from one `inputs` document to another, for people: one line each."""
    lines: list[str] = []
    # The complete flags repeat what the other sections say; they alone differ where kjit's defaults changed.
    for section in ("module", "toolchain", "versions", "flags"):
        before, after = old.get(section), new.get(section)
        if isinstance(before, dict) and isinstance(after, dict) and (section != "flags" or not lines):
            lines += _differences(before, after, "flags for " if section == "flags" else "")
    return lines


def _differences(old: Mapping[str, object], new: Mapping[str, object], prefix: str) -> list[str]:
    lines: list[str] = []
    for name in dict.fromkeys((*new, *old)):
        before, after = old.get(name), new.get(name)
        label = f"{prefix}{name}"
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            if "version" in after and before.get("version") == after["version"]:
                lines.append(_other_compiler(before, after))
            elif "version" in after:
                lines.append(f"the compiler was {_short(before.get('version'))} and is {_short(after['version'])}")
            else:
                lines += _differences(before, after, f"{label} ")
        elif isinstance(before, list) and isinstance(after, list):
            lines.append(_list_difference(label, before, after))
        else:
            lines.append(f"{label} was {_short(before)} and is {_short(after)}")
    return lines


def _other_compiler(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """What differs between two compilers of one version."""
    path = after.get("path")
    if any(before.get(name) != after.get(name) for name in ("path", "size", "mtime_ns")):
        return f"'{path}' was replaced"
    parts = [item for item in after.get("parts") or () if item not in (before.get("parts") or ())]  # type: ignore[attr-defined, operator]
    return f"'{path}' runs another {os.path.basename(parts[0][0])}" if parts else f"'{path}' runs another compiler"


def _few(names: list[str]) -> str:
    shown = 4
    return " ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _list_difference(label: str, before: list[object], after: list[object]) -> str:
    # A file and what identifies it is a list in the list.
    known = {str(item[0]): item for item in before if isinstance(item, list)}
    for item in after:
        if isinstance(item, list) and known.get(str(item[0]), item) != item:
            return f"{str(item[0]).removeprefix('{project}/')} changed"
    gone = _few([_short(item) for item in before if item not in after])
    come = _few([_short(item) for item in after if item not in before])
    if not gone and not come:
        return f"{label}: another order"
    return f"{label}:" + (f" without {gone}" if gone else "") + (f" with {come}" if come else "")


def _short(value: object) -> str:
    if isinstance(value, list):
        return str(value[0]) if value else "none"
    text = str(value).splitlines()[0] if value not in (None, "") else "none"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _module(spec: Spec, target: str, anchors: Anchors, sources: tuple[FileState, ...]) -> dict[str, object]:
    """The part of the inputs that is about the spec."""
    states = [[anchors.written(state.path), state.digest] for state in sources]
    count = len(spec.cuda_files)
    return {
        "name": spec.name,
        "arguments": list(spec.args),
        "target": target,
        "CUDA sources": states[:count],
        "C++ sources": states[count:],
        "CUDA exports": [list(export) for export in spec.cuda_wrappers],
        "C++ exports": [list(export) for export in spec.cpp_wrappers],
        "extra flags for": {
            "c++": _anchored(spec.extra_cflags, anchors),
            "nvcc": _anchored(spec.extra_cuda_cflags, anchors, "nvcc"),
            "link": _anchored(spec.extra_ldflags, anchors),
        },
        "include folders": [anchors.written(path) for path in spec.extra_include_paths],
    }


def _sources(spec: Spec) -> tuple[FileState, ...]:
    return tuple(_source(spec, path) for path in (*spec.cuda_files, *spec.cpp_files))


_SURROUNDINGS_KEPT = 256
_known_surroundings: dict[tuple[object, ...], Surroundings] = {}


def _surroundings(spec: Spec, toolchain: Toolchain, anchors: Anchors) -> Surroundings:
    """What `spec` is built with. Remembered by everything that it is made from: the environment is in `toolchain`."""
    own = (spec.extra_cflags, spec.extra_cuda_cflags, spec.extra_ldflags, spec.extra_include_paths)
    made_from = (toolchain, anchors, own, FORMAT, kjit.__version__, tvm_ffi_version())
    known = _known_surroundings.get(made_from)
    if known is not None:
        return known
    versions = {"format": FORMAT, "kjit": kjit.__version__, "tvm-ffi": tvm_ffi_version()}
    flags = {"c++": toolchain.cxx_flags(spec), "link": toolchain.link_flags(spec)}
    if toolchain.cuda is not None:
        flags["nvcc"] = toolchain.nvcc_flags(spec)
    if toolchain.nvrtc is not None:
        flags |= toolchain.flags_of_halves(spec)
    if toolchain.target.is_simulated:
        flags |= {"simulated CUDA": toolchain.sim_flags(spec), "simulator": toolchain.simulator_flags()}
    document = {
        "flags": {
            tool: _anchored(values, anchors, "nvcc" if tool == "nvcc" else "c++") for tool, values in flags.items()
        },
        "toolchain": toolchain.identity(),
        "versions": versions,
    }
    if len(_known_surroundings) >= _SURROUNDINGS_KEPT:
        _known_surroundings.clear()
    return _known_surroundings.setdefault(made_from, Surroundings(document, digest_of(document)))


def _source(spec: Spec, path: str) -> FileState:
    try:
        return FileState.read(path)
    except OSError as error:
        own = os.path.join(os.path.dirname(os.path.abspath(kjit.__file__)), "csrc", "")
        raise UsageError(
            f"the source '{path}' of module '{spec.name}' cannot be read ({error.strerror}).",
            hint=f"a relative path is one in kjit's own csrc: write Path(__file__).parent / '{path.removeprefix(own)}'"
            if path.startswith(own)
            else "correct the path where the module is declared",
        ) from None


def _anchored(words: Iterable[str], anchors: Anchors, dialect: Dialect = "c++") -> list[str]:
    return map_paths(words, lambda path: anchors.written(straight(path)), dialect)


@lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, str], ...]:
    """The packages whose headers every module uses."""
    package = os.path.dirname(os.path.abspath(kjit.__file__))
    # A package that is reached through a link is found by either name.
    folders = [("kjit", os.path.realpath(package)), ("kjit", package), ("tvm_ffi", str(tvm_ffi_include().parent))]
    return tuple(dict.fromkeys(folders))


@lru_cache(maxsize=1024)
def _anchors(installed: tuple[tuple[str, str], ...], files: tuple[str, ...], include_paths: tuple[str, ...]) -> Anchors:
    """The anchors for these sources and include folders; the same object for the same ones."""
    homes = (*map(os.path.dirname, files), *include_paths)
    folders = list(installed)
    taken = [folder for _, folder in folders]
    projects = 0
    asked: list[Look] = []
    for home in homes:
        if any(home == folder or home.startswith(f"{folder}/") for folder in taken):
            continue
        project, answers = _project(home)
        asked += answers
        folders.append((f"project{projects or ''}", project))
        taken.append(project)
        projects += 1
    return Anchors(folders, asked)


_NO_STEP = re.compile(r"/(?:\.?/)+")


def straight(path: str) -> str:
    """`path` without `//` and `/./`. A `..` stays: where the folder before it is a link, it leads elsewhere."""
    if "//" in path or "/./" in path:
        path = _NO_STEP.sub("/", path)
    return path.removesuffix("/.").rstrip("/") or path[:1]


def has_any(folder: str, names: Iterable[str]) -> bool:
    """Whether one of these is in the folder."""
    # Not Path.exists, which raises where a folder may not be looked into.
    return any(looks.exists(f"{folder}/{name}") for name in names)


@lru_cache(maxsize=1024)
def _project(folder: str) -> tuple[str, list[Look]]:
    """The nearest folder above with one of `PROJECT_FILES`, else `folder` itself; and what was asked for that."""
    with looks.noted() as taken:
        parent = folder
        while not has_any(parent, PROJECT_FILES):
            above = os.path.dirname(parent)
            if above == parent:
                parent = folder
                break
            parent = above
    return parent, taken
