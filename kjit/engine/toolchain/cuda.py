"""CUDA toolkits: the search for one, a check that it is complete, and CUDA's headers for builds without a toolkit.

The first of: `KJIT_CUDA_HOME`, `CUDA_HOME`, the compiler from PyPI's wheels in this Python environment, nvcc on PATH,
`/usr/local/cuda`. If a toolkit that is named by a variable or installed in the environment does not work, that is an
error, and the next place is not tried.

The wheels are five packages that pip upgrades one by one. nvcc, crt and nvvm are one compiler, and runtime and cccl are
one set of headers: different minor versions fail deep inside ptxas or in a header. So the versions are compared (by the
names of the .dist-info folders: one directory listing, no imports).

The simulator uses the C++ compiler and needs only CUDA's headers. They are searched for in the same places, without
nvcc; an incomplete place is skipped unless a variable names it. Without nvcc, headers, runtime and NVRTC are searched
for in the same way (nvrtc.py).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kjit import env
from kjit.engine.toolchain import looks
from kjit.engine.toolchain.compilers import Compiler, ask, inspect
from kjit.engine.toolchain.memo import Stamp, open_memo, stamp
from kjit.errors import ToolchainError

Origin = Literal["KJIT_CUDA_HOME", "CUDA_HOME", "PyPI wheels", "PATH", "/usr/local/cuda"]

DEFAULT_HOME = Path("/usr/local/cuda")
INSTALL_HEADERS = "install them with `pip install 'kjit[sim]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"
INSTALL_CUDA = "install it with `pip install 'kjit[cu13]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"

_COMPILER_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
_HEADER_WHEELS = ("nvidia-cuda-runtime", "nvidia-cuda-cccl")
# Headers of each package that the simulator needs: nvidia-cuda-runtime, and -crt and -cccl.
HEADERS_OF_RUNTIME = ("cuda_runtime_api.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")
SIMULATED_HEADERS = (*HEADERS_OF_RUNTIME, "crt/host_defines.h", "nv/target")
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
        origin: where they were found.
        stamps: size and time of some of them, which change with an upgrade.
    """

    include_dirs: tuple[Path, ...]
    origin: Origin
    stamps: tuple[Stamp, ...]

    @property
    def version(self) -> tuple[int, int]:
        """`(13, 0)`."""
        text = (self.include_dirs[0] / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^#define CUDART_VERSION\s+(\d+)", text, re.MULTILINE)
        number = int(match[1]) if match else 0
        return number // 1000, number % 1000 // 10

    def identity(self) -> dict[str, object]:
        """Their identity as JSON."""
        return {"parts": [list(part) for part in self.stamps]}


def find_cuda_headers() -> CudaHeaders:
    """The headers of CUDA for simulated kernels; no nvcc is needed. Those of torch's CUDA wheels are completed by
    `STAND_INS`, if there are no complete ones.

    Raises:
        NoCudaError: there are none, or some are missing.
        ToolchainError: a variable names a folder without them.
    """
    lacking: list[str] = []
    for home, variable in named_homes():
        found = _headers(header_folders(home), variable, lacking) or _completed(header_folders(home), variable)
        if found is None:
            raise ToolchainError(
                f"{variable} is '{home}', which does not have CUDA's headers{''.join(lacking)}.",
                hint=f"set {variable} to the folder of a CUDA toolkit, or unset it",
            )
        return found
    for home in header_homes():
        if (found := _headers(header_folders(home), "PyPI wheels", lacking)) is not None:
            return found
    on_path = looks.which("nvcc")
    if on_path is not None and (found := _headers(_include_dirs_of(Path(os.path.abspath(on_path))), "PATH", lacking)):
        return found
    if (found := _headers(header_folders(DEFAULT_HOME), "/usr/local/cuda", lacking)) is not None:
        return found
    for home in header_homes():
        if (found := _completed(header_folders(home), "PyPI wheels")) is not None:
            return found
    raise NoCudaError(
        f"The simulator needs CUDA's headers, and none were found{''.join(lacking)}.", hint=INSTALL_HEADERS
    )


def _headers(include_dirs: tuple[Path, ...], origin: Origin, lacking: list[str]) -> CudaHeaders | None:
    """The headers in `include_dirs` if they are complete; else missing ones are added to `lacking`."""
    if not include_dirs:
        return None
    if missing := missing_headers(include_dirs):
        lacking.append(f" ('{include_dirs[0]}' lacks {', '.join(missing)})")
        return None
    return _as_cuda_headers(include_dirs, origin)


def _completed(include_dirs: tuple[Path, ...], origin: Origin) -> CudaHeaders | None:
    """The headers in `include_dirs`, with `STAND_INS` for those that torch's CUDA wheels lack; None if others are
    missing."""
    if not include_dirs or any(name in HEADERS_OF_RUNTIME for name in missing_headers(include_dirs)):
        return None
    return _as_cuda_headers((*include_dirs, STAND_INS), origin)


def missing_headers(include_dirs: Sequence[Path]) -> list[str]:
    """Those of `SIMULATED_HEADERS` that are in none of the folders."""
    return [name for name in SIMULATED_HEADERS if not any(looks.is_file(folder / name) for folder in include_dirs)]


def _as_cuda_headers(include_dirs: tuple[Path, ...], origin: Origin) -> CudaHeaders:
    parts = (include_dirs[0] / "cuda_runtime_api.h", include_dirs[0] / "cuda_fp16.hpp")
    return CudaHeaders(include_dirs, origin, tuple(stamp(part) for part in parts if looks.exists(part)))


def find_cuda() -> CudaToolkit:
    """The CUDA toolkit to compile with. Without nvcc it is one with NVRTC, unless nvcc is configured.

    Raises:
        NoCudaError: there is none.
        ToolchainError: one named by a variable has no compiler, a part is missing, parts have different versions, or it
            is too old.
    """
    for home, variable in named_homes():
        if looks.is_file(home / "bin" / "nvcc"):
            return _toolkit(home, home / "bin" / "nvcc", variable)
        try:
            return _toolkit_without_nvcc()
        except NoCudaError:
            if env.cuda_compiler() == "nvrtc":
                raise
            raise ToolchainError(
                f"{variable} is '{home}', and there is no bin/nvcc in it.",
                hint=f"set {variable} to the folder of a CUDA toolkit, or unset it",
            ) from None
    for home in wheel_homes():
        return _toolkit(home, home / "bin" / "nvcc", "PyPI wheels")
    on_path = looks.which("nvcc")
    if on_path is not None:
        return _toolkit_on_path(Path(os.path.abspath(on_path)))
    if looks.is_file(DEFAULT_HOME / "bin" / "nvcc"):
        return _toolkit(DEFAULT_HOME, DEFAULT_HOME / "bin" / "nvcc", "/usr/local/cuda")
    return _toolkit_without_nvcc()


def _toolkit_without_nvcc() -> CudaToolkit:
    from kjit.engine.toolchain.nvrtc import toolkit_without_nvcc  # a circular import

    if env.cuda_compiler() == "nvcc":
        raise NoCudaError("No CUDA compiler (nvcc) was found.", hint=INSTALL_CUDA)
    return toolkit_without_nvcc()


def named_homes() -> list[tuple[Path, Origin]]:
    """The CUDA folders named by variables, with the variables."""
    homes: list[tuple[Path, Origin]] = []
    if (home := env.cuda_home()) is not None:
        homes.append((home, "KJIT_CUDA_HOME"))
    if (home := _cuda_home_variable()) is not None:
        homes.append((home, "CUDA_HOME"))
    return homes


def wheel_homes() -> list[Path]:
    """The folders `nvidia/cuNN` of this Python environment with an nvcc, newest major version first."""
    return _wheel_folders("bin/nvcc")


def header_homes() -> list[Path]:
    """Like `wheel_homes`, for CUDA's headers."""
    return _wheel_folders("include/cuda_runtime_api.h")


def _wheel_folders(part: str) -> list[Path]:
    homes = [
        Path(location, name)
        for location in looks.package_folders("nvidia")
        if looks.is_folder(location)
        # Not Path.glob, which takes longer at the first load of a process than everything else here.
        for name in looks.names_in(location)
        if re.match(r"cu\d", name) and looks.is_file(f"{location}/{name}/{part}")
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
        folders = looks.names_in(home.parent.parent)
    except OSError:
        return {}
    versions = {}
    folders = [folder for folder in folders if folder.startswith("nvidia_") and folder.endswith(".dist-info")]
    for name in (*_COMPILER_WHEELS, *_HEADER_WHEELS):
        stem = name.replace("-", "_")
        for folder in folders:
            if folder.startswith(f"{stem}-"):
                versions[name] = folder[len(stem) + 1 : -len(".dist-info")]
    return versions


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _cuda_home_variable() -> Path | None:
    text = os.environ.get("CUDA_HOME", "").strip()
    return env.absolute("CUDA_HOME", text) if text else None


def _toolkit_on_path(found: Path) -> CudaToolkit:
    """The toolkit of the nvcc on PATH, which may be a link, a wrapper script, or in /usr/bin."""
    for candidate in (found, found.resolve()):
        if candidate.name == "nvcc" and header_folders(candidate.parent.parent):
            return _toolkit(candidate.parent.parent, candidate, "PATH")
    # Three lines, for the memo: the home, the header folders, the library folders.
    home, includes, libraries = open_memo().recall(stamp(found), "folders", lambda: _ask_for_folders(found))
    nvcc = Path(home) / "bin" / "nvcc"
    return _toolkit(
        Path(home),
        nvcc if looks.is_file(nvcc) else found,
        "PATH",
        tuple(map(Path, includes.splitlines())),
        tuple(map(Path, libraries.splitlines())),
    )


def _include_dirs_of(nvcc: Path) -> tuple[Path, ...]:
    """The header folders of the nvcc on PATH; none if unknown."""
    for candidate in (nvcc, nvcc.resolve()):
        if candidate.name == "nvcc" and (folders := header_folders(candidate.parent.parent)):
            return folders
    try:
        _, includes, _ = open_memo().recall(stamp(nvcc), "folders", lambda: _ask_for_folders(nvcc))
    except ToolchainError:
        return ()
    return tuple(map(Path, includes.splitlines()))


def _ask_for_folders(nvcc: Path) -> list[str]:
    """Home, header folders and library folders (one line each) of `nvcc`, from its dry run."""
    plan = ask([str(nvcc), "--dryrun", "-c", "unit.cu", "-o", "unit.o"], stderr=True)
    top = re.search(r"^#\$ TOP=(.+)$", plan, re.MULTILINE)
    if top is None:
        raise ToolchainError(
            f"The CUDA of '{nvcc}' (on PATH) cannot be determined: its dry run does not print TOP.",
            hint="set KJIT_CUDA_HOME to the folder of the CUDA toolkit",
        )

    def folders(variable: str, flag: str) -> str:
        line = re.search(rf"^#\$ {variable}=(.*)$", plan, re.MULTILINE)
        found = re.findall(rf'"{flag}([^"]+)"|{flag}(\S+)', line[1] if line else "")
        return "\n".join(os.path.realpath(quoted or plain) for quoted, plain in found)

    return [os.path.realpath(top[1].strip()), folders("INCLUDES", "-I"), folders("LIBRARIES", "-L")]


def _toolkit(
    home: Path, nvcc: Path, origin: Origin, includes: tuple[Path, ...] = (), libraries: tuple[Path, ...] = ()
) -> CudaToolkit:
    check_wheels(home)
    compiler = inspect(nvcc, "nvcc")
    include_dirs = header_folders(home) or tuple(path for path in includes if looks.is_file(path / "cuda_runtime.h"))
    if not include_dirs:
        raise ToolchainError(
            f"The CUDA in '{home}' has no headers (include/cuda_runtime.h).", hint=f"reinstall it, or {INSTALL_CUDA}"
        )
    for part in ("bin/ptxas", "nvvm/bin/cicc"):
        if nvcc.parent.parent == home and not looks.is_file(home / part):
            raise ToolchainError(f"The CUDA in '{home}' has no {part}.", hint=f"reinstall it, or {INSTALL_CUDA}")
    cudart = cudart_in(home, libraries)
    if cudart is None:
        raise ToolchainError(
            f"The CUDA in '{home}' has no runtime library (libcudart.so).", hint=f"reinstall it, or {INSTALL_CUDA}"
        )
    parts = (home / "bin" / "ptxas", home / "nvvm" / "bin" / "cicc", include_dirs[0] / "cuda_runtime_api.h", cudart)
    stamps = tuple(stamp(part) for part in parts if looks.exists(part))
    return CudaToolkit(home, compiler, origin, include_dirs, cudart.parent, cudart, stamps)


def header_folders(home: Path) -> tuple[Path, ...]:
    """The header folders of the CUDA in `home`; none if there are none."""
    for folder in (home / "include", *_target_dirs(home, "include")):
        if looks.is_file(folder / "cuda_runtime.h"):
            return (folder, folder / "cccl") if looks.is_folder(folder / "cccl") else (folder,)
    return ()


def _target_dirs(home: Path, name: str) -> list[Path]:
    """The folders `targets/<machine>/<name>` for this machine (conda and cross-compilation kits have them)."""
    machine = platform.machine()
    kinds = ("sbsa-linux", "aarch64-linux") if machine == "aarch64" else (f"{machine}-linux",)
    return [home / "targets" / kind / name for kind in kinds]


def cudart_in(home: Path, others: tuple[Path, ...] = ()) -> Path | None:
    """The runtime library of the CUDA in `home`, else one in the folders `others`."""
    for folder in (home / "lib64", home / "lib", *_target_dirs(home, "lib"), *others):
        if looks.exists(folder / "libcudart.so"):
            return folder / "libcudart.so"
        try:
            # Not Path.glob: see `_wheel_folders`.
            versioned = [name for name in sorted(looks.names_in(folder), key=len) if name.startswith("libcudart.so.")]
        except OSError:
            continue
        if versioned:
            return folder / versioned[0]
    return None
