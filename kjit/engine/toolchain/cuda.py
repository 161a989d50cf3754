"""CUDA toolkits: the search for one, a check that it is complete, and CUDA's headers for builds without a toolkit.

The first of: `KJIT_CUDA_HOME`, `CUDA_HOME`, the compiler from PyPI's wheels in this Python environment, nvcc on PATH,
`/usr/local/cuda`. If a toolkit that is named by a variable or installed in the environment does not work, that is an
error, and the next place is not tried.

The wheels are five packages that pip upgrades one by one. nvcc, crt and nvvm are one compiler, and runtime and cccl are
one set of headers: different minor versions fail deep inside ptxas or in a header. So the versions are compared (by the
names of the .dist-info folders: one directory listing, no imports).

The simulator uses the C++ compiler and needs only CUDA's headers. They are searched for in the same places, without
nvcc; an incomplete place is skipped unless a variable names it. Without nvcc, NVRTC compiles with these headers and the
runtime library beside them (nvrtc.py).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kjit import env
from kjit.engine.toolchain import probes
from kjit.engine.toolchain.compilers import Compiler, inspect
from kjit.engine.toolchain.memo import Stamp, open_memo, stamp
from kjit.errors import ToolchainError

Origin = Literal["KJIT_CUDA_HOME", "CUDA_HOME", "PyPI wheels", "PATH", "/usr/local/cuda"]

DEFAULT_HOME = Path("/usr/local/cuda")
INSTALL_HEADERS = "install them with `pip install 'kjit[sim]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"
INSTALL_CUDA = "install it with `pip install 'kjit[cu13]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"

_COMPILER_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
_HEADER_WHEELS = ("nvidia-cuda-runtime", "nvidia-cuda-cccl")
# Headers of each package that the simulator needs: nvidia-cuda-runtime, and -crt and -cccl.
_HEADERS_OF_RUNTIME = ("cuda_runtime_api.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")
SIMULATED_HEADERS = (*_HEADERS_OF_RUNTIME, "crt/host_defines.h", "nv/target")
STAND_INS = Path(__file__).resolve().parents[2] / "include" / "kjit_rtc" / "cuda"
"""Replacements for headers that torch's CUDA wheels lack: those of nvidia-cuda-crt, and one of nvidia-cuda-cccl."""


class NoCudaError(ToolchainError):
    """No CUDA is configured or installed, which is valid. A broken CUDA is a `ToolchainError`."""


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit on disk.

    Attributes:
        home: the folder with `bin/nvcc`.
        origin: where it was found.
        include_dirs: the folders of its headers; those of cccl (`<cuda/std/...>`, `<cub/...>`) are separate since CUDA
            13.
        cudart: the runtime library to link; wheels have only the versioned name.
        stamps: size and time of the programs that nvcc runs and of a header, which change with an upgrade of a package.
    """

    home: Path
    nvcc: Compiler
    origin: Origin
    include_dirs: tuple[Path, ...]
    lib_dir: Path
    cudart: Path
    stamps: tuple[Stamp, ...]

    @property
    def version(self) -> tuple[int, int]:
        """`(13, 0)`."""
        return self.nvcc.version

    @property
    def has_nvcc(self) -> bool:
        """Whether its compiler is nvcc, and not NVRTC alone."""
        return self.nvcc.family == "nvcc"

    @property
    def label(self) -> str:
        """For display: `CUDA 13.0`."""
        return f"CUDA {self.version[0]}.{self.version[1]}"

    def knows(self, digits: str) -> bool:
        """Whether its compiler supports `sm_<digits>` (`90a`).

        `a` code exists from 9.0 on and `f` code from 10.0 on with CUDA 12.9; nvcc lists plain architectures only.
        """
        plain = digits.rstrip("af")
        if plain not in self.nvcc.features:
            return False
        if digits.endswith("a"):
            return int(plain) >= 90
        return not digits.endswith("f") or (int(plain) >= 100 and self.version >= (12, 9))

    def identity(self) -> dict[str, object]:
        """Its identity as JSON."""
        return {"nvcc": self.nvcc.identity(), "parts": [list(part) for part in self.stamps]}


@dataclass(frozen=True)
class CudaHeaders:
    """CUDA's headers, without a compiler.

    Attributes:
        home: the folder of the CUDA that they belong to.
        origin: where they were found.
        stamps: size and time of some of them, which change with an upgrade.
    """

    home: Path
    include_dirs: tuple[Path, ...]
    origin: Origin
    stamps: tuple[Stamp, ...]

    @property
    def version(self) -> tuple[int, int]:
        """`(13, 0)`."""
        header = self.include_dirs[0] / "cuda_runtime_api.h"
        number = int(open_memo().recall(stamp(header), "version", lambda: [_release_in(header)])[0])
        return number // 1000, number % 1000 // 10

    def identity(self) -> dict[str, object]:
        """Their identity as JSON."""
        return {"parts": [list(part) for part in self.stamps]}


def _release_in(header: Path) -> str:
    match = re.search(r"^#define CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"'{header}' does not define CUDART_VERSION.", hint="reinstall CUDA's headers")
    return match[1]


def find_cuda_headers() -> CudaHeaders:
    """The headers of CUDA for simulated kernels; no nvcc is needed. Those of torch's CUDA wheels are completed by
    `STAND_INS`, if there are no complete ones.

    Raises:
        NoCudaError: there are none, or some are missing.
        ToolchainError: a variable names a folder without them.
    """
    found, lacking = search_headers()
    if found is not None:
        return found
    if (named := named_home()) is not None:
        raise ToolchainError(
            f"{named[1]} is '{named[0]}', which does not have CUDA's headers{lacking}.",
            hint=f"set {named[1]} to the folder of a CUDA toolkit, or unset it",
        )
    raise NoCudaError(f"The simulator needs CUDA's headers, and none were found{lacking}.", hint=INSTALL_HEADERS)


def search_headers() -> tuple[CudaHeaders | None, str]:
    """The headers of CUDA, and what the places without them lack."""
    completed: CudaHeaders | None = None
    lacking = ""
    for home, origin in homes():
        include_dirs = header_folders(home)
        missing = [name for name in SIMULATED_HEADERS if not any(probes.is_file(each / name) for each in include_dirs)]
        if not include_dirs:
            continue
        parts = [include_dirs[0] / name for name in ("cuda_runtime_api.h", "cuda_fp16.hpp")]
        stamps = tuple(stamp(part) for part in parts if probes.exists(part))
        if not missing:
            return CudaHeaders(home, include_dirs, origin, stamps), ""
        if any(name in _HEADERS_OF_RUNTIME for name in missing):
            lacking += f" ('{include_dirs[0]}' lacks {', '.join(missing)})"
        elif completed is None:
            completed = CudaHeaders(home, (*include_dirs, STAND_INS), origin, stamps)
    return completed, lacking


def find_cuda() -> CudaToolkit:
    """The CUDA toolkit to compile with. Without nvcc it is one with NVRTC, unless nvcc is configured.

    Raises:
        NoCudaError: there is none.
        ToolchainError: one named by a variable has no compiler, a part is missing, parts have different versions, or it
            is too old.
    """
    for home, origin in homes():
        if probes.is_file(home / "bin" / "nvcc"):
            return _toolkit(home, origin)
    try:
        if env.cuda_compiler() == "nvcc":
            raise NoCudaError("No CUDA compiler (nvcc) was found.", hint=INSTALL_CUDA)
        from kjit.engine.toolchain.nvrtc import toolkit_without_nvcc  # a circular import

        return toolkit_without_nvcc()
    except NoCudaError:
        named = named_home()
        if named is None or env.cuda_compiler() == "nvrtc":
            raise
        raise ToolchainError(
            f"{named[1]} is '{named[0]}', and there is no bin/nvcc in it.",
            hint=f"set {named[1]} to the folder of a CUDA toolkit, or unset it",
        ) from None


def named_home() -> tuple[Path, Origin] | None:
    """The CUDA folder named by a variable, with the variable."""
    if (home := env.cuda_home()) is not None:
        return home, "KJIT_CUDA_HOME"
    text = os.environ.get("CUDA_HOME", "").strip()
    return (env.absolute("CUDA_HOME", text), "CUDA_HOME") if text else None


def homes() -> Iterator[tuple[Path, Origin]]:
    """The folders where CUDA may be, in order: only one if a variable names it."""
    if (named := named_home()) is not None:
        yield named
        return
    yield from ((home, "PyPI wheels") for home in wheel_homes())
    yield from ((home, "PyPI wheels") for home in header_homes())
    if (on_path := probes.which("nvcc")) is not None:
        # It may be a link.
        places = [path.parent.parent for path in (Path(os.path.abspath(on_path)), Path(on_path).resolve())]
        yield next(filter(header_folders, places), places[0]), "PATH"
    yield DEFAULT_HOME, "/usr/local/cuda"


def wheel_homes() -> list[Path]:
    """The folders `nvidia/cuNN` of this Python environment with an nvcc, newest major version first."""
    return _wheel_folders("bin/nvcc")


def header_homes() -> list[Path]:
    """Like `wheel_homes`, for CUDA's headers."""
    return _wheel_folders("include/cuda_runtime_api.h")


def _wheel_folders(part: str) -> list[Path]:
    homes = [
        Path(location, name)
        for location in probes.package_folders("nvidia")
        if probes.is_folder(location)
        # Not Path.glob, which takes longer at the first load of a process than everything else here.
        for name in probes.names_in(location)
        if re.match(r"cu\d", name) and probes.is_file(f"{location}/{name}/{part}")
    ]
    return sorted(homes, key=lambda home: int(re.sub(r"\D", "", home.name) or 0), reverse=True)


def check_wheels(home: Path) -> None:
    """Compare the versions of the PyPI packages of the toolkit in `home` (`.../nvidia/cu13`).

    Raises:
        ToolchainError: two of them have different minor versions, or one is missing.
    """
    versions = wheel_versions(home)
    if "nvidia-cuda-nvcc" not in versions:
        return
    minor = _minor(versions["nvidia-cuda-nvcc"])
    pins = " ".join(f"'{name}=={minor}.*'" for name in (*_COMPILER_WHEELS, *_HEADER_WHEELS))
    repair = f"pip install {pins}"
    missing = [name for name in (*_COMPILER_WHEELS, *_HEADER_WHEELS) if name not in versions]
    if missing:
        raise ToolchainError(
            f"The CUDA compiler from PyPI in '{home}' is incomplete: {', '.join(missing)} is not installed.",
            hint=repair,
        )
    if len({_minor(version) for version in versions.values()}) > 1:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise ToolchainError(
            f"The CUDA packages from PyPI have different minor versions and do not work together: {found}.",
            hint=repair,
        )


def wheel_versions(home: Path) -> dict[str, str]:
    """The versions of the CUDA packages installed next to `home` (`.../site-packages/nvidia/cu13`), by name."""
    try:
        folders = probes.names_in(home.parent.parent)
    except OSError:
        return {}
    matches = [match for match in map(re.compile(r"(nvidia_\w+)-(.+)\.dist-info").fullmatch, folders) if match]
    versions = {match[1].replace("_", "-"): match[2] for match in matches}
    return {name: versions[name] for name in (*_COMPILER_WHEELS, *_HEADER_WHEELS) if name in versions}


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _toolkit(home: Path, origin: Origin) -> CudaToolkit:
    check_wheels(home)
    compiler = inspect(home / "bin" / "nvcc", "nvcc")
    include_dirs = header_folders(home)
    cudart = cudart_in(home)
    lacking = [] if include_dirs else ["headers (include/cuda_runtime.h)"]
    lacking += [part for part in ("bin/ptxas", "nvvm/bin/cicc") if not probes.is_file(home / part)]
    if cudart is None or lacking:
        raise ToolchainError(
            f"The CUDA in '{home}' has no {(*lacking, 'runtime library (libcudart.so)')[0]}.",
            hint="set KJIT_CUDA_HOME to the folder of the toolkit, if nvcc on PATH is a wrapper in another folder"
            if origin == "PATH"
            else f"reinstall it, or {INSTALL_CUDA}",
        )
    parts = (home / "bin" / "ptxas", home / "nvvm" / "bin" / "cicc", include_dirs[0] / "cuda_runtime_api.h", cudart)
    stamps = tuple(stamp(part) for part in parts if probes.exists(part))
    return CudaToolkit(home, compiler, origin, include_dirs, cudart.parent, cudart, stamps)


def header_folders(home: Path) -> tuple[Path, ...]:
    """The header folders of the CUDA in `home`; none if there are none."""
    for folder in (home / "include", *_target_dirs(home, "include")):
        if probes.is_file(folder / "cuda_runtime.h"):
            return (folder, folder / "cccl") if probes.is_folder(folder / "cccl") else (folder,)
    return ()


def _target_dirs(home: Path, name: str) -> list[Path]:
    """The folders `targets/<machine>/<name>` for this machine (conda and cross-compilation kits have them)."""
    machine = platform.machine()
    kinds = ("sbsa-linux", "aarch64-linux") if machine == "aarch64" else (f"{machine}-linux",)
    return [home / "targets" / kind / name for kind in kinds]


def cudart_in(home: Path) -> Path | None:
    """The runtime library of the CUDA in `home`."""
    for folder in (home / "lib64", home / "lib", *_target_dirs(home, "lib")):
        if probes.exists(folder / "libcudart.so"):
            return folder / "libcudart.so"
        try:
            # Not Path.glob: see `_wheel_folders`.
            versioned = [name for name in sorted(probes.names_in(folder), key=len) if name.startswith("libcudart.so.")]
        except OSError:
            continue
        if versioned:
            return folder / versioned[0]
    return None
