"""The flags of each command of a build, for a toolchain and a spec.

Flags common to all ops are chosen here; those of an op come after them and take precedence. The meaning of given flags
is in key/flags.py.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.engine.key.flags import for_host_compiler
from kjit.engine.toolchain.cpu import find_level
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include, tvm_ffi_library
from kjit.engine.toolchain.nvrtc import Nvrtc, macros_of_nvcc, nvrtc_options
from kjit.runtime import cpu_features
from kjit.spec import CudaArch, Spec

if TYPE_CHECKING:
    from kjit.engine.toolchain.toolchain import Toolchain

EXPORTS_SCRIPT = "exports.map"
"""The linker script that makes all symbols except the exports local: a file beside the link's output."""

SIMULATED = ("-DKJIT_SIM=1", "-DKJIT_CUDA_ARCH=900")
"""Flags of every unit of a simulated module: the simulated GPU is an sm_90."""

SIMULATED_UNIT = "-DKJIT_SIM_UNIT=1"
"""The flag of simulated units with kernels, which the build rewrites."""

SIMULATOR_CHECKS = "-DKJIT_SIM_CHECK=1"

SIMULATOR_HEADER = "kjit_sim/sim.h"
"""Included first in a simulated CUDA unit; it defines what nvcc would define."""

# A process loads dozens of these libraries. With two segments instead of four, and no pages to protect after
# relocation, the kernel maps one in two thirds of the time. In exchange, some tables of pointers are not read-only;
# others are writable anyway, for lazy binding. An op's own flags take precedence (`-Wl,-z,relro`).
_QUICK_TO_MAP = ("-Wl,-z,noseparate-code", "-Wl,-z,norelro")


def cxx_flags(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The flags for a C++ unit of `spec`."""
    flags = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-DKJIT_PRECOMPILED"]
    if toolchain.gpu is None:
        flags += _flags_for_cpu(toolchain)
    if toolchain.target.arch is not None:
        flags.append(f"-DKJIT_CUDA_ARCH={toolchain.target.arch.number}")
    if toolchain.target.is_simulated:
        flags += _simulated(toolchain)
    return [*flags, *spec.extra_cflags, *_header_search(toolchain, spec.extra_include_paths)]


def sim_flags(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The flags for a CUDA unit of `spec` that the C++ compiler compiles for the simulator."""
    # Debug information, for source lines in debuggers and checks; addr2line reads version 4 better than 5.
    # Contraction of products and sums, as on a GPU. As on a GPU, a vector at a misaligned address is an error of the
    # launch, not a crash; so are variables that exceed a thread's stack, whose pages are touched in order.
    flags = ["-std=c++20", "-O2", "-gdwarf-4", "-ffp-contract=fast", "-fsanitize=alignment", SIMULATED_UNIT]
    flags.append("-fstack-clash-protection")
    # A fault in a function of the C library is reported at its call.
    flags.append("-fno-optimize-sibling-calls")
    # Otherwise it becomes puts, which is the C library's (kjit_sim/sim.h).
    flags.append("-fno-builtin-printf")
    if _has_fma():
        flags.append("-mfma")
    flags += _simulated(toolchain)
    if toolchain.target.is_checked:
        flags += [SIMULATOR_CHECKS, "-fsanitize=thread", "-fno-omit-frame-pointer"]
        # Volatile accesses to global memory are not races: kernels communicate by them.
        flags += toolchain.cxx.traits.volatile_is_no_race
        # Otherwise g++ inlines copies, unchecked. Such a call is redirected to the checker (kjit_sim/sim.h).
        flags += [f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset")]
    flags += [*toolchain.cxx.traits.accepts_unused, *_changed_meaning(toolchain)]
    own = for_host_compiler(spec.extra_cuda_cflags)
    return [*flags, *own, *_header_search(toolchain, spec.extra_include_paths)]


def support_flags(toolchain: Toolchain, *, with_cuda: bool) -> list[str]:
    """The flags for the precompiled part of kjit's headers (support.py), the same for all targets except the
    simulator's."""
    # -O1: none of it is in a loop over elements, and the first build on a machine waits for it. A section per function,
    # so that a module contains only those that it uses.
    flags = ["-std=c++20", "-O1", "-ffunction-sections", "-fdata-sections"]
    if toolchain.target.is_simulated:
        flags += _simulated(toolchain)
    else:
        flags += ["-fPIC", "-fvisibility=hidden", "-DKJIT_PRECOMPILED"]
    return [*flags, *_header_search(toolchain, (), with_cuda=with_cuda or toolchain.target.is_simulated)]


def simulator_flags(toolchain: Toolchain) -> list[str]:
    """The flags for the simulator's own sources.

    They include what they need of CUDA: with all of `SIMULATOR_HEADER` first, compiling them takes half as long again.
    """
    flags = ["-std=c++20", "-O2", "-g1", *_for_simulator(toolchain)]
    if toolchain.target.is_checked:
        flags.append(SIMULATOR_CHECKS)
    return [*flags, *_header_search(toolchain, ())]


def nvcc_flags(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The flags for a CUDA unit of `spec`."""
    return [
        "-std=c++20",
        "-O3",
        "--expt-relaxed-constexpr",
        "-ccbin",
        str(toolchain.cxx.path),
        *(f"-gencode=arch=compute_{each.digits},code=sm_{each.digits}" for each in toolchain.target.archs),
        f"-DKJIT_CUDA_ARCH={toolchain.target.archs[0].number}",
        "-DKJIT_PRECOMPILED",
        "-Xcompiler",
        ",".join(["-fPIC", "-fvisibility=hidden", *toolchain.cxx.traits.names_as_written]),
        # Registers, shared memory and spills of each kernel, for `kjit build`'s table.
        "-Xptxas=-v",
        # Host and device preprocess the unit in parallel.
        "-t",
        "2",
        *spec.extra_cuda_cflags,
        *_include_flags(spec.extra_include_paths, ()),
    ]


def host_half_flags(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The flags for preprocessing and compiling the host half of a CUDA unit of `spec`."""
    quiet = ["-Wno-attributes", "-Wno-unknown-pragmas", "-Wno-psabi", *_changed_meaning(toolchain)]
    return [*quiet, *_of_both_halves(toolchain, spec)]


def _changed_meaning(toolchain: Toolchain) -> list[str]:
    """The flag for members with the names of classes, which nvcc's front end accepts (CUB has some).

    Before 13, g++ has no flag for that alone; NVRTC has the same host code, and rejects what is wrong.
    """
    if toolchain.cxx.family != "gcc":
        return []
    return ["-Wno-changes-meaning" if toolchain.cxx.version >= (13, 0) else "-fpermissive"]


def device_half_flags(toolchain: Toolchain, spec: Spec, arch: CudaArch) -> list[str]:
    """The C++ compiler's flags for preprocessing the device half of a CUDA unit of `spec` for `arch`."""
    macros = [f"-D__CUDA_ARCH__={arch.number}", "-DCUDA_DOUBLE_MATH_FUNCTIONS"]
    if arch.suffix == "a":
        macros += [f"-D__CUDA_ARCH_FEAT_SM{arch.digits[:-1]}_ALL", f"-D__CUDA_ARCH_SPECIFIC__={arch.number}"]
    if arch.suffix:
        macros.append(f"-D__CUDA_ARCH_FAMILY_SPECIFIC__={arch.number}")
    return [*macros, *_of_both_halves(toolchain, spec)]


def nvrtc_flags(toolchain: Toolchain, spec: Spec, arch: CudaArch) -> list[str]:
    """NVRTC's options for compiling the preprocessed device half.

    Raises:
        OnlyNvccError: only nvcc has one of the flags.
    """
    own = nvrtc_options([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()])
    has_standard = any(option.startswith("--std=") for option in own)
    return [
        *(
            option
            for option in _nvrtc_options(toolchain.nvrtc, arch)
            if not (has_standard and option.startswith("--std="))
        ),
        *own,
    ]


def flags_of_halves(toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
    """All flags for the halves of a CUDA unit of `spec`, by purpose."""
    flags = {"the host half": host_half_flags(toolchain, spec)}
    for arch in toolchain.target.archs:
        flags[f"the device half of sm_{arch.digits}"] = device_half_flags(toolchain, spec, arch)
        flags[f"NVRTC for sm_{arch.digits}"] = _nvrtc_options(toolchain.nvrtc, arch)
    return flags


def link_flags(toolchain: Toolchain, spec: Spec) -> list[str]:
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
    if toolchain.has_openmp:
        flags.append("-fopenmp")
    if spec.extra_ldflags:
        # A symbol missing in an op's own library is an error of the load, rather than a crash in a later call.
        flags.append("-Wl,-z,now")
    flags += spec.extra_ldflags
    flags += [f"-L{tvm_ffi.parent}", "-ltvm_ffi"]
    return flags if toolchain.gpu is None else [*flags, *toolchain.gpu.link_flags()]


def _flags_for_cpu(toolchain: Toolchain) -> list[str]:
    """Flags that select the instructions of a CPU, and allow vectorised loops over elements without changes of
    results."""
    flags: list[str] = []
    if toolchain.target.level is not None:
        flags.append(f"-march={find_level(toolchain.target.level).march}")
    elif toolchain.is_native:
        flags.append("-march=native")
        since, quiet = toolchain.cxx.traits.quiet_about_cpu
        flags += quiet if toolchain.cxx.version >= since else ()
    # A square root that sets errno, or a comparison that may trap, is not vectorised.
    flags += ["-fno-math-errno", "-fno-trapping-math"]
    if platform.machine() == "x86_64":
        # The widest on any CPU: kjit/cpu.h converts half-precision numbers in vectors of that size.
        flags.append("-mprefer-vector-width=512")
    flags += toolchain.cxx.traits.keeps_copy_loops
    # `omp simd` is effective without OpenMP's library.
    return [*flags, "-fopenmp" if toolchain.has_openmp else "-fopenmp-simd"]


def _of_both_halves(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The flags with which nvcc has the C++ compiler preprocess a unit of `spec`, for the host and for a device."""
    own = [*spec.extra_cuda_cflags, *toolchain.flags_from_environment()]
    major, minor, build = toolchain.cuda_release
    return [
        *("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden"),
        *("-D__CUDACC__", "-D__NVCC__", "-D__CUDACC_RELAXED_CONSTEXPR__"),
        f"-D__CUDACC_VER_MAJOR__={major}",
        f"-D__CUDACC_VER_MINOR__={minor}",
        f"-D__CUDACC_VER_BUILD__={build}",
        f"-D__CUDA_API_VER_MAJOR__={major}",
        f"-D__CUDA_API_VER_MINOR__={minor}",
        f"-D__CUDA_ARCH_LIST__={','.join(str(arch.number) for arch in toolchain.target.archs)}",
        *("-D__NVCC_DIAG_PRAGMA_SUPPORT__=1", "-D__CUDACC_DEVICE_ATOMIC_BUILTINS__=1"),
        f"-DKJIT_CUDA_ARCH={toolchain.target.archs[0].number}",
        "-DKJIT_PRECOMPILED",
        *(f"-D{macro}" for macro in macros_of_nvcc(own)),
        *for_host_compiler(own),
        *(f"-I{path}" for path in spec.extra_include_paths),
        *_header_search(toolchain, ()),
        *("-include", "cuda_runtime.h"),
    ]


def _header_search(toolchain: Toolchain, own: Sequence[str], *, with_cuda: bool = True) -> list[str]:
    """The folders of headers for the C++ compiler."""
    cuda = toolchain.gpu_include_dirs if with_cuda else ()
    return [*toolchain.cxx.traits.names_as_written, *_include_flags(own, cuda, simulated=toolchain.target.is_simulated)]


def _simulated(toolchain: Toolchain) -> list[str]:
    """The flags of every unit of a simulated module."""
    return [*_for_simulator(toolchain), "-include", SIMULATOR_HEADER]


def _for_simulator(toolchain: Toolchain) -> list[str]:
    """The flags of simulated modules and of the simulator."""
    flags = ["-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing"]
    # Each module has `__shared__` variables of its own.
    return [*flags, *toolchain.cxx.traits.variables_per_module, "-DKJIT_PRECOMPILED", *SIMULATED]


def _nvrtc_options(nvrtc: Nvrtc | None, arch: CudaArch) -> list[str]:
    return [
        # Where there is a driver, NVRTC keeps machine code in the driver's cache, without the table of resources.
        *(["--no-cache"] if nvrtc is not None and nvrtc.version >= (13, 0) else []),
        "--std=c++20",
        f"--gpu-architecture=sm_{arch.digits}",
        # As for nvcc: registers, shared memory and spills of each kernel.
        "--ptxas-options=-v",
        "--device-int128",
        # The preprocessed unit contains CUDA's headers and the C++ library's, in place of NVRTC's own.
        "--no-source-include",
        "-D__CUDA_RUNTIME_H__",
        "--builtin-move-forward=false",
        "--builtin-initializer-list=false",
        # As in nvcc's front end: host code is accepted, constexpr functions are for the device too, names have dollars.
        *("-Xcudafe", "--dollar"),
        *("-Xcudafe", "--relaxed_constexpr"),
        *("-Xcudafe", f"--diag_suppress={','.join(_OF_HOST_CODE)}"),
    ]


# The errors of NVRTC about host code.
_OF_HOST_CODE = (
    "no_host_in_jit",
    "unannotated_function_in_jit",
    "unannotated_variable_in_jit",
    "unannotated_static_data_member_in_jit",
    "host_closure_class_in_jit",
)


@lru_cache(maxsize=1)
def _has_fma() -> bool:
    """Whether this is an x86 CPU with fused multiply-add, which compilers use there only on request."""
    return platform.machine() == "x86_64" and "fma" in cpu_features()


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
