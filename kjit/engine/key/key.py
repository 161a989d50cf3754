"""Cache keys: a hash of everything known before a compile that can change its result.

The hash is over one document, `inputs`, which is kept in the artifact's record, so that a miss can report the
differences (differences.py). The headers, which are known only after a compile, are handled by headers.py.

The folder of the project is part of the key: sources may contain their own paths (`__FILE__`, debug information), and
flags those of the project. A library is shared by all processes, users and machines with the project at the same path.
Paths of headers are relative to an anchor (anchors.py): kjit and tvm-ffi are in another folder in each environment.

Half of the document, the compilers and the flags, is the same for most modules of a program. Its hash is computed once
for each combination (`_surroundings`), and the document is assembled only when it is read: on a miss.

The trade-off: each source is read on every look-up (five microseconds), although its size and time would usually be
sufficient. In return, an edited source is never missed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import kjit
from kjit.engine.key.anchors import Anchors, straight
from kjit.engine.key.flags import Dialect, map_paths
from kjit.engine.toolchain.build_flags import (
    cxx_flags,
    flags_of_halves,
    link_flags,
    nvcc_flags,
    sim_flags,
    simulator_flags,
)
from kjit.engine.toolchain.locations import tvm_ffi_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import UsageError
from kjit.runtime import digest as digest
from kjit.runtime import read_file as read_file
from kjit.runtime import tvm_ffi_version_in
from kjit.runtime.bundle import digest_of as digest_of
from kjit.spec import Spec, Variant

FORMAT = 5
"""Changes when the same inputs would be built differently, or a record is written differently."""

_AT_ONCE = 65536


@dataclass(frozen=True)
class FileState:
    """A file at the time of reading.

    `ctime_ns` is the kernel's time of the last change, which no tool can set.
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


@dataclass(frozen=True)
class Key:
    """The key by which a variant's artifact is looked up.

    Attributes:
        key1: the hash of everything in `inputs`, hexadecimal.
        source_key: the hash of its part `module`, without the compilers: equal on all machines.
        sources: the direct sources, as read for this key.
        module: the half of `inputs` about the spec.
        surroundings: the other half.
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
            UsageError: a source does not exist.
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
        """The document that the keys are hashes of."""
        return {"module": self.module, **self.surroundings.document}


@dataclass(frozen=True)
class Surroundings:
    """Flags, compilers and versions as a document, and its hash."""

    document: Mapping[str, object]
    digest: str


def source_key_of(spec: Spec, target: str) -> str:
    """The `source_key` of a spec's keys for a target (in the form of `str(Target)`); needs no compiler.

    Raises:
        UsageError: a source does not exist.
    """
    return digest_of(_module(spec, target, Anchors.of(spec), _sources(spec)))


def _digest_of_source(content: bytes) -> str:
    """`digest` with a cache, because the variants of an op have the same sources."""
    return _remembered_digest(content) if len(content) <= _AT_ONCE else digest(content)


_remembered_digest = lru_cache(maxsize=64)(digest)


@lru_cache(maxsize=1)
def tvm_ffi_version() -> str:
    """The version of tvm-ffi, without importing it."""
    return tvm_ffi_version_in(str(tvm_ffi_include().parent))


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
    """The surroundings of `spec`, cached by everything that they are computed from (`toolchain` holds the
    environment)."""
    own = (spec.extra_cflags, spec.extra_cuda_cflags, spec.extra_ldflags, spec.extra_include_paths)
    made_from = (toolchain, anchors, own, FORMAT, kjit.__version__, tvm_ffi_version())
    known = _known_surroundings.get(made_from)
    if known is not None:
        return known
    versions = {"format": FORMAT, "kjit": kjit.__version__, "tvm-ffi": tvm_ffi_version()}
    flags = {"c++": cxx_flags(toolchain, spec), "link": link_flags(toolchain, spec)}
    if toolchain.cuda is not None:
        flags["nvcc"] = nvcc_flags(toolchain, spec)
    if toolchain.nvrtc is not None:
        flags |= flags_of_halves(toolchain, spec)
    if toolchain.target.is_simulated:
        flags |= {"simulated CUDA": sim_flags(toolchain, spec), "simulator": simulator_flags(toolchain)}
    document = {
        "flags": {
            tool: _anchored(values, anchors, "nvcc" if tool == "nvcc" else "c++") for tool, values in flags.items()
        },
        "projects": anchors.projects,
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
            hint="relative paths are in kjit's own csrc; for your own file, write "
            f"Path(__file__).parent / '{path.removeprefix(own)}'"
            if path.startswith(own)
            else "correct the path where the module is declared",
        ) from None


def _anchored(words: Iterable[str], anchors: Anchors, dialect: Dialect = "c++") -> list[str]:
    return map_paths(words, lambda path: anchors.written(straight(path)), dialect)
