"""Toolchains: the compilers, the architecture and the flags of a target, and their identity.

The search for compilers is in compilers.py, for CUDA in cuda.py, for NVRTC in nvrtc.py; the meaning of given flags is
in flags.py. A `Toolchain` is a value. It is found once per process and environment, then costs a few `stat` calls, and
starts a subprocess only for a compiler that was never seen before.

Flags common to all ops are chosen here; those of an op come after them and take precedence.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from kjit import env
from kjit.engine.key.flags import for_host_compiler
from kjit.engine.toolchain import looks
from kjit.engine.toolchain.archs import check_arch
from kjit.engine.toolchain.compilers import Compiler, find_cxx, find_host_cxx
from kjit.engine.toolchain.cpu import find_level
from kjit.engine.toolchain.cuda import CudaHeaders, CudaToolkit, find_cuda, find_cuda_headers
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include, tvm_ffi_library
from kjit.engine.toolchain.memo import Stamp, is_unchanged, open_memo
from kjit.engine.toolchain.nvrtc import WRAPPED, Nvrtc, find_nvrtc, nvrtc_options
from kjit.errors import ToolchainError
from kjit.runtime import cpu_features, cpu_identity
from kjit.runtime.recall import COMPILER_ENVIRONMENT, NVCC_ENVIRONMENT, NVCC_FLAGS, Look, variables
from kjit.spec import CudaArch, Spec, Target

_log = logging.getLogger("kjit")

EXPORTS_SCRIPT = "exports.map"
"""The linker script that makes all symbols but the exports local: a file beside the link's output."""

SIMULATED = ("-DKJIT_SIM=1", "-DKJIT_CUDA_ARCH=900")
"""Flags of every unit of a simulated module: the simulated GPU is an sm_90."""

SIMULATED_UNIT = "-DKJIT_SIM_UNIT=1"
"""Suffixes of units with kernels, which the build rewrites."""

SIMULATOR_CHECKS = "-DKJIT_SIM_CHECK=1"

SIMULATOR_HEADER = "kjit_sim/sim.h"
"""Included first in a simulated CUDA unit; it defines what nvcc would define."""

# A process loads dozens of these libraries. With two segments instead of four, and no pages to protect after
# relocation, the kernel maps one in two thirds of the time. In exchange, some tables of pointers are not read-only;
# others are writable anyway, for lazy binding. An op's own flags take precedence (`-Wl,-z,relro`).
_QUICK_TO_MAP = ("-Wl,-z,noseparate-code", "-Wl,-z,norelro")


@dataclass(frozen=True)
class Toolchain:
    """The compilers for one target.

    Attributes:
        cxx: the C++ compiler; for CUDA also the one that nvcc calls for host code, and the linker's driver.
        cuda: the CUDA toolkit; None for the CPU and the simulator.
        cuda_headers: for the simulator, CUDA's headers.
        variables: the variables read by these compilers that are set, with their values.
        nvrtc: the compiler of device halves, if CUDA sources are compiled in two halves. `cuda` is then the toolkit of
            the headers and the runtime; its compiler is nvcc, as the fallback, or NVRTC again.
    """

    target: Target
    cxx: Compiler
    cuda: CudaToolkit | None
    cuda_headers: CudaHeaders | None = None
    variables: tuple[tuple[str, str], ...] = ()
    nvrtc: Nvrtc | None = None

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

    def looks(self) -> tuple[Look, ...] | None:
        """The questions to the disk, with answers, by which this was found; None if it depends on more than the disk,
        or the environment has changed since."""
        if self.cxx.may_change or self.cxx.variables:
            return None
        toolchain, _, taken = _discover(self.target, tuple(map(os.environ.get, variables(self.target.kind))))
        programs = [self.cxx.path, *([self.cuda.nvcc.path] if self.cuda is not None else [])]
        return (*taken, *open_memo().looks(programs)) if toolchain is self else None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Needed by every load, and composed of three dozen parts.
        return hash((self.target, self.cxx, self.cuda, self.cuda_headers, self.variables, self.nvrtc))

    @property
    def has_nvcc(self) -> bool:
        """Whether there is an nvcc."""
        return self.cuda is not None and self.cuda.nvcc.family == "nvcc"

    def with_nvcc(self) -> Toolchain:
        """The same toolchain with nvcc as the compiler of CUDA sources."""
        return replace(self, nvrtc=None)

    def identity(self) -> dict[str, object]:
        """Everything about the compilers that can change their output, as JSON."""
        cuda = self.cuda or self.cuda_headers
        return {
            "target": str(self.target),
            "cxx": self.cxx.identity(),
            "cuda": None if cuda is None else cuda.identity(),
            "cpu": cpu_identity() if self._is_native else None,
            "environment": self.environment(),
            **({} if self.nvrtc is None else {"NVRTC": self.nvrtc.identity()}),
        }

    def environment(self) -> dict[str, str]:
        """The variables read by these compilers that are set."""
        return dict(self.variables)

    def flags_from_environment(self) -> list[str]:
        """The flags that variables add to each command of nvcc."""
        environment = self.environment()
        return [word for name in NVCC_FLAGS for word in environment.get(name, "").split()]

    def cxx_flags(self, spec: Spec) -> list[str]:
        """The flags for a C++ unit of `spec`."""
        flags = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-DKJIT_PRECOMPILED"]
        if self.target.level is not None:
            flags.append(f"-march={find_level(self.target.level).march}")
        elif self._is_native:
            flags.append("-march=native")
            if self.cxx.family == "clang" and self.cxx.version >= (18, 0):
                # clang warns in each compile for a CPU with AVX10, about its own detection of that CPU.
                flags.append("-Wno-invalid-feature-combination")
        if self.target.kind == "cpu":
            flags += self._vector_flags
            # `omp simd` is effective without OpenMP's library.
            flags.append("-fopenmp" if self._has_openmp else "-fopenmp-simd")
        if self.target.arch is not None:
            flags.append(f"-DKJIT_CUDA_ARCH={self.target.arch.number}")
        if self.target.is_simulated:
            flags += self._simulated
        return [*flags, *spec.extra_cflags, *self._include_flags(spec.extra_include_paths)]

    @property
    def _vector_flags(self) -> list[str]:
        """Flags that allow vectorised loops over elements on the CPU, without changes of results."""
        # A square root that sets errno, or a comparison that may trap, is not vectorised.
        flags = ["-fno-math-errno", "-fno-trapping-math"]
        if platform.machine() == "x86_64":
            # The widest on any CPU: kjit/cpu.h converts halves in vectors of that size.
            flags.append("-mprefer-vector-width=512")
        if self.cxx.family == "gcc":
            # No replacement of copy loops by memcpy, which would hide their writes from kjit/streaming.h.
            flags.append("-fno-tree-loop-distribute-patterns")
        return flags

    def sim_flags(self, spec: Spec) -> list[str]:
        """The flags for a CUDA unit of `spec` that the C++ compiler compiles for the simulator.

        Raises:
            ValueError: this is a toolchain for another target.
        """
        if not self.target.is_simulated:
            raise ValueError(f"a toolchain for {self.target} is not one for the simulator")
        # Debug information, for source lines in debuggers and checks; addr2line reads version 4 better than 5.
        # Contraction of products and sums, as on a GPU. As there, a vector at a misaligned address is an error of the
        # launch rather than a crash, and so are variables that exceed a thread's stack, whose pages are touched in
        # order.
        flags = ["-std=c++20", "-O2", "-gdwarf-4", "-ffp-contract=fast", "-fsanitize=alignment", SIMULATED_UNIT]
        flags.append("-fstack-clash-protection")
        # A fault in a function of the C library is reported at its call.
        flags.append("-fno-optimize-sibling-calls")
        if _has_fma():
            flags.append("-mfma")
        flags += self._simulated
        if self.target.kind == "sim-check":
            flags += [SIMULATOR_CHECKS, "-fsanitize=thread", "-fno-omit-frame-pointer"]
            # Volatile accesses to global memory are not races: kernels communicate by them.
            flags += (
                ["--param", "tsan-distinguish-volatile=1"]
                if self.cxx.family == "gcc"
                else ["-mllvm", "-tsan-distinguish-volatile=1"]
            )
            # Else g++ inlines the copy, and it is not checked.
            flags += [f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset")]
        if self.cxx.family == "clang":
            flags.append("-Qunused-arguments")
        own = for_host_compiler(spec.extra_cuda_cflags)
        return [*flags, *own, *self._include_flags(spec.extra_include_paths)]

    def support_flags(self, *, with_cuda: bool) -> list[str]:
        """The flags for the precompiled part of kjit's headers (support.py), the same for all targets except the
        simulator's."""
        # -O1, as none of it is in a loop over elements, and the first build on a machine waits for it. A section per
        # function, so that a module contains only those that it uses.
        flags = ["-std=c++20", "-O1", "-ffunction-sections", "-fdata-sections"]
        if self.target.is_simulated:
            flags += self._simulated
        else:
            flags += ["-fPIC", "-fvisibility=hidden", "-DKJIT_PRECOMPILED"]
        return [*flags, *self._include_flags((), with_cuda=with_cuda or self.target.is_simulated)]

    def simulator_flags(self) -> list[str]:
        """The flags for the simulator's own sources."""
        flags = ["-std=c++20", "-O2", "-g1", *self._simulated]
        if self.target.kind == "sim-check":
            flags.append(SIMULATOR_CHECKS)
        return [*flags, *self._include_flags(())]

    def nvcc_flags(self, spec: Spec) -> list[str]:
        """The flags for a CUDA unit of `spec`.

        Raises:
            ValueError: this is a toolchain for the CPU.
        """
        arch = self.target.arch
        if arch is None:
            raise ValueError("a toolchain for the CPU has no nvcc")
        return [
            "-std=c++20",
            "-O3",
            "--expt-relaxed-constexpr",
            "-ccbin",
            str(self.cxx.path),
            *(f"-gencode=arch=compute_{each.digits},code=sm_{each.digits}" for each in self.target.archs),
            f"-DKJIT_CUDA_ARCH={arch.number}",
            "-DKJIT_PRECOMPILED",
            "-Xcompiler",
            ",".join(["-fPIC", "-fvisibility=hidden", *self._names_as_written]),
            # Registers, shared memory and spills of each kernel, for `kjit build`'s table.
            "-Xptxas=-v",
            # Host and device preprocess the unit side by side.
            "-t",
            "2",
            *spec.extra_cuda_cflags,
            *_include_flags(spec.extra_include_paths, ()),
        ]

    def host_half_flags(self, spec: Spec) -> list[str]:
        """The flags for preprocessing and compiling the host half of a CUDA unit of `spec`.

        Raises:
            ValueError: this is no toolchain with NVRTC.
        """
        return [
            *self._of_both_halves,
            "-D__NVCC__=1",
            *("-O3", "-fPIC", "-fvisibility=hidden"),
            # CUB gives members the names of classes, which nvcc's front end accepts.
            *(["-Wno-changes-meaning"] if self.cxx.family == "gcc" and self.cxx.version >= (13, 0) else []),
            # Kernels have no bodies there, and what has been preprocessed needs no folders.
            *(
                ["-Wno-undefined-internal", "-Wno-undefined-inline", "-Qunused-arguments"]
                if self.cxx.family == "clang"
                else []
            ),
            *for_host_compiler([*spec.extra_cuda_cflags, *self.flags_from_environment()]),
            *self._include_flags(spec.extra_include_paths),
            "-include",
            str(kjit_include() / "kjit_rtc" / "host.h"),
        ]

    def device_half_flags(self, spec: Spec, arch: CudaArch) -> list[str]:
        """The flags for preprocessing, by the C++ compiler, the device half of a CUDA unit of `spec` for `arch`.

        Raises:
            ValueError: this is no toolchain with NVRTC.
        """
        flags = [*spec.extra_cuda_cflags, *self.flags_from_environment()]
        macros = [f"-D__CUDA_ARCH__={arch.number}", "-D__CUDACC_RTC__=1"]
        if arch.suffix == "a":
            macros += [f"-D__CUDA_ARCH_FEAT_SM{arch.digits[:-1]}_ALL", f"-D__CUDA_ARCH_SPECIFIC__={arch.number}"]
        if arch.suffix:
            macros.append(f"-D__CUDA_ARCH_FAMILY_SPECIFIC__={arch.number}")
        if any(flag.lstrip("-") == "use_fast_math" for flag in flags):
            macros.append("-D__USE_FAST_MATH__=1")
        stand_ins = kjit_include() / "kjit_rtc"
        return [
            *self._of_both_halves,
            *macros,
            # NVRTC has no `std::type_info`.
            "-fno-rtti",
            *for_host_compiler(flags),
            *(f"-I{path}" for path in spec.extra_include_paths),
            # Not -isystem: a compiler wrapper may use that for its own library, before these.
            f"-I{stand_ins / 'std'}",
            *self._include_flags(()),
            "-include",
            str(stand_ins / "device.h"),
        ]

    def nvrtc_options(self, spec: Spec, arch: CudaArch) -> list[str]:
        """The options with which NVRTC compiles the preprocessed device half.

        Raises:
            OnlyNvccError: a flag is for nvcc alone.
        """
        own = nvrtc_options([*spec.extra_cuda_cflags, *self.flags_from_environment()])
        return [*_nvrtc_options(arch), *own]

    def flags_of_halves(self, spec: Spec) -> dict[str, list[str]]:
        """All flags for the halves of a CUDA unit of `spec`, by purpose, including those for the fallback to nvcc."""
        flags = {"the host half": self.host_half_flags(spec)}
        for arch in self.target.archs:
            flags[f"the device half of sm_{arch.digits}"] = self.device_half_flags(spec, arch)
            flags[f"NVRTC for sm_{arch.digits}"] = _nvrtc_options(arch)
        return flags

    @property
    def _of_both_halves(self) -> list[str]:
        """The macros that nvcc defines, and those that kjit defines for nvcc."""
        if self.nvrtc is None or self.target.arch is None:
            raise ValueError(f"a toolchain for {self.target} without NVRTC")
        major, minor = self.nvrtc.version
        return [
            "-std=c++20",
            f"-DKJIT_CUDA_ARCH={self.target.arch.number}",
            "-DKJIT_PRECOMPILED",
            "-D__CUDACC__=1",
            f"-D__CUDACC_VER_MAJOR__={major}",
            f"-D__CUDACC_VER_MINOR__={minor}",
            "-D__CUDACC_VER_BUILD__=0",
            f"-D__CUDA_API_VER_MAJOR__={major}",
            f"-D__CUDA_API_VER_MINOR__={minor}",
            f"-D__CUDA_ARCH_LIST__={','.join(str(arch.number) for arch in self.target.archs)}",
            "-D__CUDACC_RELAXED_CONSTEXPR__=1",
            "-D__CUDACC_DEVICE_ATOMIC_BUILTINS__=1",
            "-D__NVCC_DIAG_PRAGMA_SUPPORT__=1",
        ]

    def link_flags(self, spec: Spec) -> list[str]:
        """The flags after the objects in the link of `spec`'s library.

        Libraries are named by soname, and no path is stored: tvm-ffi and the CUDA runtime are already in the process
        that loads the module. An undefined symbol is an error of the build, not of a later call.
        """
        tvm_ffi = tvm_ffi_library()
        flags = ["-shared", "-Wl,--as-needed", "-Wl,--no-undefined", f"-Wl,--version-script={EXPORTS_SCRIPT}"]
        if (spec.cpp_wrappers or not spec.cpp_files) and (spec.cuda_wrappers or not spec.cuda_files):
            # Remove functions of kjit's headers that no export reaches: the code of a unit with exports is one section.
            # Not if a source exports for itself: one without an export would silently be dropped.
            flags.append("-Wl,--gc-sections")
        flags += _QUICK_TO_MAP
        if self.nvrtc is not None:
            flags += [f"-Wl,--wrap={name}" for name in WRAPPED]
        if self._has_openmp:
            flags.append("-fopenmp")
        if self.target.is_simulated:
            # The simulator's CUDA runtime takes precedence over one in the process.
            flags += ["-Wl,-Bsymbolic", "-pthread", "-ldl", "-lrt"]
        if spec.extra_ldflags:
            # A symbol missing in an op's own library is an error of the load, rather than a crash in a later call.
            flags.append("-Wl,-z,now")
        flags += spec.extra_ldflags
        flags += [f"-L{tvm_ffi.parent}", "-ltvm_ffi"]
        if self.cuda is not None:
            # Folders for an op's own -lcublas or -lcuda.
            flags += [f"-L{self.cuda.lib_dir}", f"-L{self.cuda.lib_dir / 'stubs'}", str(self.cuda.cudart)]
        return flags

    def library_dirs(self) -> list[Path]:
        """The folders of headers that are not an op's own: those of compilers, CUDA, tvm-ffi and kjit."""
        compilers = (path.resolve().parent.parent for path in (self.cxx.path, *self._cuda_include_dirs))
        prefixes = dict.fromkeys((*compilers, Path("/usr")))  # clang uses GCC's library, wherever it is installed
        folders = [prefix / name for prefix in prefixes for name in ("include", "lib", "lib64", "targets")]
        return [*folders, *self._cuda_include_dirs, tvm_ffi_include(), kjit_include()]

    @property
    def _cuda_include_dirs(self) -> tuple[Path, ...]:
        cuda = self.cuda or self.cuda_headers
        return () if cuda is None else cuda.include_dirs

    def _include_flags(self, own: Sequence[str], *, with_cuda: bool = True) -> list[str]:
        cuda = self._cuda_include_dirs if with_cuda else ()
        return [*self._names_as_written, *_include_flags(own, cuda, simulated=self.target.is_simulated)]

    @property
    def _names_as_written(self) -> list[str]:
        """By default GCC lists `/app/pkg/../inc/a.h` of a system folder as `/app/inc/a.h`, which hides that it moves
        with `pkg`."""
        return ["-fno-canonical-system-headers"] if self.cxx.family == "gcc" else []

    @property
    def _simulated(self) -> list[str]:
        """The flags of every unit of a simulated module."""
        flags = ["-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing"]
        if self.cxx.family == "gcc":
            # Each module has `__shared__` variables of its own.
            flags.append("-fno-gnu-unique")
        return [*flags, "-DKJIT_PRECOMPILED", *SIMULATED, "-include", SIMULATOR_HEADER]

    @property
    def _is_native(self) -> bool:
        return self.target.kind == "cpu" and self.target.level is None and "native" in self.cxx.features

    @property
    def _has_openmp(self) -> bool:
        return self.target.kind == "cpu" and "openmp" in self.cxx.features


@lru_cache(maxsize=1)
def _has_fma() -> bool:
    """Whether this is an x86 CPU with fused multiply-add, which compilers use there only on request."""
    return platform.machine() == "x86_64" and "fma" in cpu_features()


@lru_cache(maxsize=64)
def _discover(target: Target, values: tuple[str | None, ...]) -> tuple[Toolchain, tuple[Stamp, ...], tuple[Look, ...]]:
    """The toolchain for `target` with these values of `variables`, the files that it depends on, and the questions to
    the disk."""
    with looks.noted() as taken:
        toolchain, stamps = _discover_now(target, values)
    return toolchain, stamps, tuple(dict.fromkeys(taken))


def _discover_now(target: Target, values: tuple[str | None, ...]) -> tuple[Toolchain, tuple[Stamp, ...]]:
    cuda = headers = nvrtc = None
    if target.kind == "cpu":
        cxx = find_cxx()
    elif target.is_simulated:
        cxx, headers = find_cxx(), find_cuda_headers()
    else:
        cuda = find_cuda()
        cxx = find_host_cxx(cuda.nvcc)
        for arch in target.archs:
            check_arch(arch, cuda)
        if env.cuda_compiler() == "nvrtc" or cuda.nvcc.family == "nvrtc":
            nvrtc = find_nvrtc(cuda.version, [cuda.lib_dir])
        elif env.cuda_compiler() == "auto":
            nvrtc = _nvrtc_beside(cuda)
    stamps: list[Stamp] = [(str(cxx.path), cxx.size, cxx.mtime_ns)]
    if cuda is not None:
        stamps += [(str(cuda.nvcc.path), cuda.nvcc.size, cuda.nvcc.mtime_ns), *cuda.stamps]
    if headers is not None:
        stamps += headers.stamps
    if nvrtc is not None:
        stamps += nvrtc.stamps
    read = COMPILER_ENVIRONMENT if cuda is None else (*COMPILER_ENVIRONMENT, *NVCC_ENVIRONMENT)
    named = dict(zip(variables(target.kind), values, strict=True))
    set_ = tuple((name, value) for name in read if (value := named[name]))
    return Toolchain(target, cxx, cuda, headers, set_, nvrtc), tuple(stamps)


def _nvrtc_beside(cuda: CudaToolkit) -> Nvrtc | None:
    """NVRTC if it can replace nvcc; else None, and the reason is logged."""
    try:
        return find_nvrtc(cuda.version, [cuda.lib_dir])
    except ToolchainError as error:
        _log.info("nvcc compiles CUDA sources: %s", error.message)
        return None


def _nvrtc_options(arch: CudaArch) -> list[str]:
    return [
        "--std=c++20",
        f"--gpu-architecture=sm_{arch.digits}",
        # As for nvcc: registers, shared memory and spills of each kernel.
        "--ptxas-options=-v",
        "--device-int128",
        # The preprocessed unit contains `std::move` of its own library.
        "--no-source-include",
        "--builtin-move-forward=false",
    ]


def _include_flags(own: Sequence[str], cuda: Sequence[Path], *, simulated: bool = False) -> list[str]:
    """Header search: the op's folders, the simulator's stand-ins for some of CUDA's, kjit's, tvm-ffi's, CUDA's.

    All but the op's own are system folders, so that `-Wall` in an op's flags applies to the op only.
    """
    stand_ins = (kjit_include() / "kjit_sim" / "cuda",) if simulated else ()
    system = (*stand_ins, kjit_include(), tvm_ffi_include(), *(path for path in cuda if path != Path("/usr/include")))
    flags = [f"-I{path}" for path in own]
    for path in system:
        flags += ["-isystem", str(path)]
    return flags
