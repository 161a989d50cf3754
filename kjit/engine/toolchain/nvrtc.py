"""NVRTC: the search for it, and the translation of nvcc's flags into its options.

NVRTC is CUDA's device compiler as a library: part of a toolkit, of torch's CUDA wheels, and of the package
`nvidia-cuda-nvrtc`. If it is installed, and `KJIT_CUDA_COMPILER` is not nvcc, a CUDA unit is compiled in two halves:
the device half by NVRTC and the host half by the C++ compiler (halves.py). Flags that only nvcc has are detected here;
other code that needs nvcc, by compile/kind.py. compile.py then uses nvcc, if there is one.

Only the process that compiles loads the library (device_compiler.py). Its version is taken from the file name of its
builtins.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit.engine.toolchain import cuda, probes
from kjit.engine.toolchain.compilers import Compiler, ask
from kjit.engine.toolchain.cuda import CudaToolkit, NoCudaError
from kjit.engine.toolchain.memo import Stamp, open_memo, stamp
from kjit.engine.toolchain.options import expand
from kjit.errors import ToolchainError

OLDEST = (12, 8)
"""The first release whose runtime launches kernels of a library by their handles on each device, as kjit does."""

INSTALL_NVRTC = "install it with `pip install 'kjit[nvrtc]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"
INSTALL_EITHER = """`pip install 'kjit[nvrtc]'` installs NVRTC, and `pip install 'kjit[cu13]'` nvcc; or set \
KJIT_CUDA_HOME to a CUDA toolkit"""

WRAPPED = (
    *(f"{name}{suffix}" for name in ("cudaLaunchKernel", "cudaLaunchKernelExC") for suffix in ("", "_ptsz")),
    *(f"cudaLaunchCooperativeKernel{suffix}" for suffix in ("", "_ptsz")),
    "cudaFuncGetAttributes",
    "cudaFuncGetName",
    "cudaFuncGetParamInfo",
    "cudaFuncSetAttribute",
    "cudaFuncSetCacheConfig",
    "cudaGetFuncBySymbol",
    "cudaGetKernel",
    "cudaOccupancyAvailableDynamicSMemPerBlock",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaOccupancyMaxActiveClusters",
    "cudaOccupancyMaxPotentialClusterSize",
)
"""The functions of CUDA's runtime that take a kernel; csrc/support/kernels.cpp has a wrapper for each."""

_ROOT = Path(__file__).resolve().parents[3]

PROGRAMS = (
    str(_ROOT / "kjit" / "cpp_text.py"),
    *(
        str(_ROOT / "kjit" / "engine" / "compile" / f"{name}.py")
        for name in (
            "device_compiler",
            "host_compiler",
            "kernels_object",
            "halves",
            "kind",
            "math_names",
            "helper",
            "precompiled",
        )
    ),
)
"""The programs that cut, compile and join the halves of a CUDA unit, and what they import."""

_PACKAGE = re.compile(r"nvidia_cuda_nvrtc(?:_cu\d+)?-(\d+)\.(\d+)\.(\d+)\.dist-info")
_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC on disk.

    Attributes:
        library: the library.
        builtins: the library of its builtins.
        stamps: the sizes and times of both.
    """

    library: Path
    builtins: Path
    version: tuple[int, int]
    stamps: tuple[Stamp, ...]

    @property
    def label(self) -> str:
        """For display: `NVRTC 13.0`."""
        return f"NVRTC {self.version[0]}.{self.version[1]}"

    @property
    def build(self) -> int:
        """The third part of its version, from the name of its package beside it; 0 if there is none."""
        for parent in self.library.parents[:5]:
            for name in probes.names_in(parent):
                if (found := _PACKAGE.fullmatch(name)) is not None and (int(found[1]), int(found[2])) == self.version:
                    return int(found[3])
        return 0

    def identity(self) -> dict[str, object]:
        """Its identity as JSON."""
        return {"parts": [list(part) for part in self.stamps]}


def find_nvrtc(version: tuple[int, int], folders: Iterable[Path], host: Compiler | None = None) -> Nvrtc:
    """NVRTC of the same release as CUDA's headers: in one of `folders`, else in the wheels of this environment.

    Args:
        host: the compiler of host halves, if that is known.

    Raises:
        NoCudaError: there is none.
        ToolchainError: there is only one of another release, or it is too old, or `host` is not g++.
    """
    if host is not None and not host.traits.takes_host_halves:
        # NVRTC lacks clang's builtins, which headers use; clang rejects assembly for GPUs in the host half.
        raise ToolchainError(
            f"NVRTC compiles CUDA sources with g++ only, and the C++ compiler is {host.label} ('{host.path}').",
            hint="set CXX to g++; nvcc works with clang, too",
        )
    others: list[Nvrtc] = []
    for folder in dict.fromkeys((*folders, *_wheel_folders())):
        for found in _in(folder):
            if found.version == version:
                if version < OLDEST:
                    raise ToolchainError(
                        f"{found.label} in '{folder}' is too old: kjit needs {OLDEST[0]}.{OLDEST[1]} or newer.",
                        hint="set KJIT_CUDA_COMPILER to nvcc, or install a newer CUDA",
                    )
                return found
            others.append(found)
    release = f"{version[0]}.{version[1]}"
    if others:
        raise ToolchainError(
            f"{others[0].label} ('{others[0].library}') does not fit CUDA's headers, which are of {release}.",
            hint=f"pip install 'nvidia-cuda-nvrtc=={release}.*'",
        )
    raise NoCudaError(f"NVRTC of CUDA {release} was not found.", hint=INSTALL_NVRTC)


def _in(folder: Path) -> Iterator[Nvrtc]:
    if not probes.is_folder(folder):
        return
    names = set(probes.names_in(folder))
    for name in sorted(names):
        match = _BUILTINS.fullmatch(name)
        if match is not None and f"libnvrtc.so.{match[1]}" in names:
            library, builtins = folder / f"libnvrtc.so.{match[1]}", folder / name
            yield Nvrtc(library, builtins, (int(match[1]), int(match[2])), (stamp(library), stamp(builtins)))


def _wheel_folders() -> list[Path]:
    """The library folders of the wheels: of CUDA 13, and of CUDA 12, where each package has its own."""
    locations = probes.package_folders("nvidia")
    return [*(home / "lib" for home in cuda.header_homes()), *(Path(each, "cuda_nvrtc", "lib") for each in locations)]


def toolkit_without_nvcc() -> CudaToolkit:
    """CUDA's headers and runtime, with NVRTC as the compiler, for a machine without nvcc.

    Raises:
        NoCudaError: there are no headers, or no runtime, or no NVRTC.
        ToolchainError: parts have different versions.
    """
    headers, lacking = cuda.search_headers()
    cudart = None if headers is None else cuda.cudart_in(headers.home)
    if headers is None or cudart is None:
        lacking += "" if headers is None else f" ('{headers.home}' lacks libcudart.so)"
        raise NoCudaError(
            f"No CUDA compiler was found: no nvcc, and no headers for NVRTC{lacking}.", hint=INSTALL_EITHER
        )
    nvrtc = find_nvrtc(headers.version, [cudart.parent])
    stamps = (headers.stamps[0], stamp(cudart))
    compiler = _as_compiler(nvrtc)
    return CudaToolkit(headers.home, compiler, headers.origin, headers.include_dirs, cudart.parent, cudart, stamps)


def _as_compiler(nvrtc: Nvrtc) -> Compiler:
    archs = open_memo().recall(nvrtc.stamps[0], "archs", lambda: _ask_for_archs(nvrtc))
    _, size, mtime_ns = nvrtc.stamps[0]
    return Compiler(nvrtc.library, "nvrtc", nvrtc.version, nvrtc.label, size, mtime_ns, tuple(archs))


def _ask_for_archs(nvrtc: Nvrtc) -> list[str]:
    return ask([*command_of("device_compiler"), str(nvrtc.library), str(nvrtc.builtins)]).split()


def command_of(program: str) -> tuple[str, ...]:
    """The command that runs `main` of a module in `compile`, without a search for packages and with cached bytecode."""
    start = f"import sys; sys.path.append({str(_ROOT)!r}); from kjit.engine.compile.helper import run"
    return (sys.executable, "-I", "-S", "-c", f"{start}; sys.exit(run({program!r}, sys.argv[1:]))")


class OnlyNvccError(Exception):
    """Why only nvcc can compile a module, as the end of a sentence."""


def macros_of_nvcc(words: Sequence[str]) -> Iterator[str]:
    """The macros that nvcc defines because of its flags."""
    for flag, dialect in expand(words, "nvcc"):
        if dialect == "nvcc" and (macro := flag.option("nvcc").macro):
            yield macro


def nvrtc_options(words: Sequence[str]) -> list[str]:
    """NVRTC's options for those of nvcc's flags that affect device code.

    Raises:
        OnlyNvccError: NVRTC has no such option.
    """
    options: list[str] = []
    for flag, dialect in expand(words, "nvcc"):
        if dialect != "nvcc" or flag.meaning in _NOT_FOR_DEVICES:
            continue
        option = flag.option("nvcc")
        name, _, value = (flag.name, "", flag.value) if flag.name else flag.value.partition("=")
        if flag.meaning == "architecture":
            # Another one than the target's is rejected before (compile/refusals.py).
            is_known = "compute_" not in value.rpartition("code=")[2]
        else:
            is_known = option.nvrtc != ""
        if not is_known:
            raise OnlyNvccError(f"NVRTC has no option {' '.join(flag.words())}")
        if flag.meaning == "for a part":
            # A list, as for nvcc; NVRTC passes each value on as one word.
            options += [f"{option.long(name)}={word}" for word in re.split(r"[,\s]+", value) if word]
        elif option.nvrtc == "same":
            options.append(f"{option.long(name)}={value}" if value else option.long(name))
        elif option.nvrtc.startswith("-"):
            options.append(option.nvrtc)
    return options


# What is for the preprocessor or another program.
_NOT_FOR_DEVICES = ("headers", "header", "macro", "list", "options", "library", "libraries")
