"""Toolchains: the compilers and the architecture of a target, and their identity.

The search for compilers is in compilers.py, for CUDA in cuda.py, for NVRTC in nvrtc.py; what is done with them is in
unit_compilers.py, with the flags of build_flags.py. A `Toolchain` is a value. It is found once per process and
environment, then costs a few `stat` calls, and starts a subprocess only for a compiler that was never seen before.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from kjit import env
from kjit.engine.toolchain import probes
from kjit.engine.toolchain.archs import check_arch
from kjit.engine.toolchain.compilers import Compiler, find_cxx, find_host_cxx
from kjit.engine.toolchain.cuda import CudaToolkit, find_cuda, find_cuda_headers
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.engine.toolchain.memo import Stamp, is_unchanged
from kjit.engine.toolchain.nvrtc import Nvrtc, find_nvrtc
from kjit.engine.toolchain.options import Dialect
from kjit.engine.toolchain.unit_compilers import CxxUnits, NvccUnits, NvrtcUnits, SimulatedUnits, UnitCompiler
from kjit.errors import ToolchainError
from kjit.runtime import cpu_identity
from kjit.runtime.manifest import COMPILER_ENVIRONMENT, Probe, variables
from kjit.spec import NVCC_FLAGS, Side, Spec, Target, TargetKind

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Toolchain:
    """The compilers for one target.

    Attributes:
        cxx: the C++ compiler; for CUDA also the one that nvcc calls for host code, and the linker's driver.
        gpu: the compiler of sources for GPUs; None for the CPU.
        variables: the variables read by these compilers that are set, with their values.
    """

    target: Target
    cxx: Compiler
    gpu: UnitCompiler | None
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def for_target(cls, target: Target, *, thorough: bool = False) -> Toolchain:
        """The toolchain for `target`; searched again when the environment or a compiler has changed.

        Args:
            thorough: also when a program run by the C++ compiler has changed. For compiles; look-ups assume that these
                are unchanged during a process.

        Raises:
            ToolchainError: a compiler is missing or unfit (see `find_cxx` and `find_cuda`), or CUDA's headers are
                missing (see `find_cuda_headers`).
            UsageError: this CUDA does not know the target's architecture.
        """
        values = tuple(map(os.environ.get, variables(target.kind)))
        toolchain, stamps, _ = _discover(target, values)
        cxx = toolchain.cxx
        is_same = all(map(is_unchanged, stamps)) and (not cxx.variables or cxx.has_same_variables())
        if not is_same or (thorough and not cxx.has_same_parts()):
            _discover.cache_clear()
            toolchain, _, _ = _discover(target, values)
        return toolchain

    def probes(self) -> tuple[Probe, ...] | None:
        """The queries of the file system, with answers, that found this; None if it depends on more than the file
        system, or the environment has changed since."""
        if self.cxx.may_change or self.cxx.variables:
            return None
        toolchain, _, taken = _discover(self.target, tuple(map(os.environ.get, variables(self.target.kind))))
        return taken if toolchain is self else None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Needed by every load, and composed of three dozen parts.
        return hash((self.target, self.cxx, self.gpu, self.variables))

    @property
    def compilers(self) -> Mapping[Side, UnitCompiler]:
        """The compiler of each side of a spec that is built for the target."""
        return {each.side: each for each in (CxxUnits(), self.gpu) if each is not None}

    def given(self, spec: Spec) -> Iterator[tuple[Sequence[str], Dialect]]:
        """The flags that are not kjit's, in the dialect of the compiler that gets them."""
        for compiler in self.compilers.values():
            for words in compiler.given(spec, self.environment()).values():
                yield words, compiler.dialect

    @property
    def cuda(self) -> CudaToolkit | None:
        """The CUDA toolkit; None for the CPU and the simulator."""
        return None if self.gpu is None else self.gpu.toolkit

    @property
    def nvrtc(self) -> Nvrtc | None:
        """The compiler of device halves, if CUDA sources are compiled in two halves."""
        return None if self.gpu is None else self.gpu.nvrtc

    @property
    def has_nvcc(self) -> bool:
        """Whether there is an nvcc."""
        return self.cuda is not None and self.cuda.has_nvcc

    @property
    def chooses(self) -> bool:
        """Whether each CUDA unit is compiled by NVRTC or by nvcc, whichever is right for it."""
        return self.gpu is not None and self.gpu.instead is not None

    def with_nvcc(self) -> Toolchain:
        """The same toolchain with nvcc as the compiler of CUDA sources."""
        return replace(self, gpu=None if self.gpu is None else self.gpu.instead)

    @property
    def cuda_release(self) -> tuple[int, int, int]:
        """The release of CUDA's compiler: 13, 0, 88. The last number is 0 if NVRTC's package is unknown.

        Raises:
            ValueError: this is a toolchain without CUDA's compiler.
        """
        if self.cuda is None:
            raise ValueError(f"a toolchain for {self.target} has no CUDA compiler")
        if self.has_nvcc:
            found = re.search(r"\bV\d+\.\d+\.(\d+)", self.cuda.nvcc.version_text)
            build = 0 if found is None else int(found[1])
        else:
            build = 0 if self.nvrtc is None else self.nvrtc.build
        return (*self.cuda.version, build)

    def identity(self) -> dict[str, object]:
        """Everything about the compilers that can change their output, as JSON."""
        return {
            "target": str(self.target),
            "cxx": self.cxx.identity(),
            **({} if self.gpu is None else self.gpu.identity()),
            "cpu": cpu_identity() if self.is_native else None,
            "environment": self.environment(),
        }

    def environment(self) -> dict[str, str]:
        """The variables read by these compilers that are set."""
        return dict(self.variables)

    def flags_from_environment(self) -> list[str]:
        """The flags that variables add to each command of nvcc."""
        environment = self.environment()
        return [word for name in NVCC_FLAGS for word in environment.get(name, "").split()]

    def library_dirs(self) -> list[Path]:
        """The folders of headers that are not an op's own: those of compilers, CUDA, tvm-ffi and kjit."""
        compilers = (path.resolve().parent.parent for path in (self.cxx.path, *self.gpu_include_dirs))
        prefixes = dict.fromkeys((*compilers, Path("/usr")))  # clang uses GCC's library, wherever it is installed
        folders = [prefix / name for prefix in prefixes for name in ("include", "lib", "lib64", "targets")]
        return [*folders, *self.gpu_include_dirs, tvm_ffi_include(), kjit_include()]

    @property
    def gpu_include_dirs(self) -> tuple[Path, ...]:
        """The folders of the headers for GPUs; none for the CPU."""
        return () if self.gpu is None else self.gpu.include_dirs

    @property
    def is_native(self) -> bool:
        """Whether C++ is compiled for the CPU of this machine."""
        return self.gpu is None and self.target.level is None and "native" in self.cxx.features

    @property
    def has_openmp(self) -> bool:
        """Whether OpenMP's library is there for C++ on the CPU."""
        return self.gpu is None and "openmp" in self.cxx.features


@lru_cache(maxsize=64)
def _discover(target: Target, values: tuple[str | None, ...]) -> tuple[Toolchain, tuple[Stamp, ...], tuple[Probe, ...]]:
    """The toolchain for `target` with these values of `variables`, the files that it depends on, and the questions to
    the disk."""
    with probes.noted() as taken:
        toolchain, stamps = _discover_now(target, values)
    return toolchain, stamps, tuple(dict.fromkeys(taken))


def _discover_now(target: Target, values: tuple[str | None, ...]) -> tuple[Toolchain, tuple[Stamp, ...]]:
    cxx, gpu = _SEARCHES[target.kind](target)
    stamps = ((str(cxx.path), cxx.size, cxx.mtime_ns), *(() if gpu is None else gpu.stamps))
    named = dict(zip(variables(target.kind), values, strict=True))
    read = (*COMPILER_ENVIRONMENT, *target.data.environment)
    set_ = tuple((name, value) for name in read if (value := named[name]))
    return Toolchain(target, cxx, gpu, set_), stamps


def _for_cpu(_: Target) -> Found:
    return find_cxx(), None


def _for_simulator(_: Target) -> Found:
    return find_cxx(), SimulatedUnits(find_cuda_headers())


def _for_cuda(target: Target) -> Found:
    cuda = find_cuda()
    cxx = find_host_cxx()
    for arch in target.archs:
        check_arch(arch, cuda)
    asked = env.cuda_compiler()
    by_nvcc = NvccUnits(cuda)
    if asked == "nvcc":
        return cxx, by_nvcc
    try:
        nvrtc = find_nvrtc(cuda.version, [cuda.lib_dir], cxx)
    except ToolchainError as error:
        if asked == "nvrtc" or not cuda.has_nvcc:
            raise
        _log.info("nvcc compiles CUDA sources: %s", error.message)
        return cxx, by_nvcc
    return cxx, NvrtcUnits(cuda, nvrtc, by_nvcc if cuda.has_nvcc and asked == "auto" else None)


Found = tuple[Compiler, UnitCompiler | None]

_SEARCHES: Mapping[TargetKind, Callable[[Target], Found]] = {
    "cpu": _for_cpu,
    "cuda": _for_cuda,
    "sim": _for_simulator,
    "sim-check": _for_simulator,
}
"""The search for the compilers of each kind of target."""
