"""Cache keys: a hash of everything known before a compile that can change its result.

The hash is over two halves, the request and the toolchain (`kjit.runtime.manifest`, which computes it without the
compiling side). They are also documents, `inputs`, which are kept in the artifact's record, so that a miss can report
the differences (differences.py). The headers, which are known only after a compile, are handled by headers.py.

The paths of sources are part of the key: they may be in the library (`__FILE__`, debug information). So a library is
shared by all processes, users and machines with the project at the same path; kjit and tvm-ffi may be in another
environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import kjit
from kjit.engine.key.paths import projects_of
from kjit.engine.toolchain.build_flags import link_flags
from kjit.engine.toolchain.locations import tvm_ffi_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import UsageError
from kjit.runtime import tvm_ffi_version_in
from kjit.runtime.bundle import digest_of
from kjit.runtime.manifest import FORMAT, FileState, folder_of, key_of, module_digest, written
from kjit.spec import Spec, Variant


@dataclass(frozen=True)
class Key:
    """The key by which a variant's artifact is looked up.

    Attributes:
        key1: the hash of everything in `inputs`, hexadecimal.
        source_key: the half about the spec, without the compilers.
        sources: the direct sources, as read for this key.
        toolchain: the compilers.
    """

    variant: Variant
    key1: str
    source_key: str
    sources: tuple[FileState, ...]
    toolchain: Toolchain

    @classmethod
    def of(cls, variant: Variant, toolchain: Toolchain) -> Key:
        """The key of `variant` when built with `toolchain`.

        Raises:
            UsageError: a source does not exist.
        """
        spec = variant.spec
        sources = tuple(_source(spec, path) for path in (*spec.cuda_files, *spec.cpp_files))
        source_key = module_digest(spec, str(variant.target), sources)
        return cls(variant, key_of(source_key, toolchain_digest(toolchain)), source_key, sources, toolchain)

    @property
    def folder(self) -> str:
        """The folder of its artifacts, relative to that of the layout."""
        return folder_of(self.variant, self.key1)

    @property
    def project(self) -> str:
        """The folder of the project; empty if there is none."""
        return next(iter(projects_of(self.variant.spec)), "")

    @property
    def inputs(self) -> Mapping[str, object]:
        """The documents that the key stands for."""
        return {"module": _module(self.variant, self.sources), **surroundings(self.toolchain)}


def toolchain_digest(toolchain: Toolchain) -> str:
    """The half of keys about compilers."""
    return _digest_of(toolchain, kjit.__version__, tvm_ffi_version())


@lru_cache(maxsize=64)
def _digest_of(toolchain: Toolchain, *versions: str) -> str:
    del versions  # only part of the key of lru_cache: `surroundings` has them
    return digest_of(surroundings(toolchain))


def surroundings(toolchain: Toolchain) -> Mapping[str, object]:
    """Compilers, versions, and the flags that all modules get, as a document."""
    plain = Spec("module", cpp_files=["/module.cpp"], cuda_files=["/module.cu"])
    flags = {"link": link_flags(toolchain, plain)}
    for compiler in toolchain.compilers.values():
        flags |= compiler.options(toolchain, plain)
    return {
        "flags": {tool: [_without_homes(word) for word in words] for tool, words in flags.items()},
        "toolchain": toolchain.identity(),
        "versions": {"format": FORMAT, "kjit": kjit.__version__, "tvm-ffi": tvm_ffi_version()},
    }


@lru_cache(maxsize=1)
def tvm_ffi_version() -> str:
    """The version of tvm-ffi, without importing it."""
    return tvm_ffi_version_in(str(tvm_ffi_include().parent))


def _without_homes(word: str) -> str:
    """A flag of kjit's own; one that names a folder of kjit or tvm-ffi is the same in each environment."""
    at = word.find("/")
    return word if at < 0 else f"{word[:at]}{written(word[at:])}"


def _module(variant: Variant, sources: tuple[FileState, ...]) -> dict[str, object]:
    """The part of the inputs that is about the spec."""
    spec = variant.spec
    states = [[written(source.path), source.digest] for source in sources]
    count = len(spec.cuda_files)
    return {
        "name": spec.name,
        "arguments": list(spec.args),
        "target": str(variant.target),
        "CUDA sources": states[:count],
        "C++ sources": states[count:],
        "CUDA exports": [list(export) for export in spec.cuda_wrappers],
        "C++ exports": [list(export) for export in spec.cpp_wrappers],
        "extra flags for": {
            "c++": list(spec.extra_cflags),
            "nvcc": list(spec.extra_cuda_cflags),
            "link": list(spec.extra_ldflags),
        },
        "include folders": list(map(written, spec.extra_include_paths)),
    }


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
