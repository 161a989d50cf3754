"""Checks of this machine: whether kjit's requirements are installed, and fit together.

Each check looks at one component as a build would, with a result of `ok`, `problem` (with how to fix it), or `absent`
for optional components: no GPU and no CUDA is not a mistake. A check never imports its component, as a broken torch
must not hide the rest, and an unexpected error in a check is reported as a problem without ending the others.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import kjit
from kjit import env
from kjit.engine.cache.folders import is_noexec
from kjit.engine.toolchain.archs import gpu_archs
from kjit.engine.toolchain.compilers import ask, find_cxx, find_host_cxx
from kjit.engine.toolchain.cuda import NoCudaError, find_cuda, find_cuda_headers
from kjit.engine.toolchain.locations import tvm_ffi_include, tvm_ffi_library
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.nvrtc import find_nvrtc
from kjit.engine.toolchain.programs import find_launcher, find_ninja
from kjit.errors import KjitError, ToolchainError
from kjit.runtime import gpus
from kjit.runtime.highway import find_highway, highway_version
from kjit.spec import CudaArch

State = Literal["ok", "problem", "absent"]

_LITTLE_SPACE = 256 << 20


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        detail: the finding or the problem. fix: how to fix it.
        needed: whether nothing can be built without it, even for the CPU.
    """

    name: str
    state: State
    detail: str
    fix: str | None = None
    needed: bool = False


class _AbsentError(KjitError):
    """An optional component is not there."""


def examine() -> list[Check]:
    """Check this machine, this Python environment and the cache."""
    return [_run(name, check, needed=name in _NEEDED) for name, check in _CHECKS.items()]


def is_fit(checks: Sequence[Check]) -> bool:
    """Whether kjit works here, at least for the CPU."""
    return not any(check.needed and check.state != "ok" for check in checks)


def _run(name: str, check: Callable[[], str], *, needed: bool) -> Check:
    try:
        return Check(name, "ok", check(), None, needed)
    except KjitError as error:
        state: State = "absent" if isinstance(error, _AbsentError) else "problem"
        return Check(name, state, error.message, error.hint, needed)
    except Exception as error:  # noqa: BLE001 (a doctor must outlive every illness)
        return Check(name, "problem", f"cannot be checked: {type(error).__name__}: {error}", None, needed)


def _kjit() -> str:
    detail = f"{kjit.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        raise KjitError(detail, hint="kjit is made for Linux; other systems are not tested")
    return detail


def _cxx() -> str:
    features = {"native": "-march=native", "openmp": "OpenMP: kernels for the CPU have one thread"}
    cxx = find_cxx()
    if not features.keys() <= set(cxx.features):  # what it lacked may have been installed since
        open_memo().forget(cxx.path)
        cxx = find_cxx()
    lacks = [f"no {what}" for feature, what in features.items() if feature not in cxx.features]
    launcher = find_launcher()
    through = [] if launcher is None else [f"through {launcher} ({env.COMPILER_LAUNCHER})"]
    return ", ".join([f"{cxx.label} ({cxx.path})", *lacks, *through])


def _ninja() -> str:
    ninja = find_ninja()
    return f"{ask([str(ninja), '--version']).strip()} ({ninja})"


def _tvm_ffi() -> str:
    header, library = tvm_ffi_include() / "tvm" / "ffi" / "c_api.h", tvm_ffi_library()
    version = importlib.metadata.version("apache-tvm-ffi")
    for part in (header, library):
        if not part.is_file():
            raise KjitError(f"{version}, but '{part}' is missing.", hint="pip install --force-reinstall apache-tvm-ffi")
    return f"{version} ({library.parent.parent})"


def _torch() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise KjitError("not installed.", hint="pip install torch")
    version = importlib.metadata.version("torch")
    # Read from the file, as importing torch takes seconds and may fail.
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8", errors="replace")
    built_with = re.search(r"^cuda\b[^=]*= ['\"]([\d.]+)['\"]", text, re.MULTILINE)
    if built_with is not None:
        return f"{version}, for CUDA {built_with[1]}"
    if gpus.visible_gpus():
        raise KjitError(
            f"{version} is for the CPU only, and there is a GPU here.",
            hint="install a torch for CUDA (https://pytorch.org/get-started/locally)",
        )
    return f"{version}, for the CPU only"


def _cache() -> str:
    from kjit.engine.cache.store import Store

    root = env.cache_dir()
    store = Store.open()
    existing = root
    while not os.path.lexists(existing):  # not Path.exists, which raises if a folder must not be read
        existing = existing.parent
    if not existing.is_dir():
        raise KjitError(f"'{existing}' is not a folder.", hint=f"move it away, or set {env.CACHE_DIR}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise KjitError(
            f"'{root}' cannot be written by this user, so that builds are lost when the process ends.",
            hint=f"set {env.CACHE_DIR} to a folder of your own",
        )
    if is_noexec(existing):
        raise KjitError(
            f"'{root}' is on a disk that is mounted noexec, from which nothing that is built can be loaded.",
            hint=f"set {env.CACHE_DIR} to a folder on another disk, or mount this one without noexec",
        )
    sizes = [entry.size for entry in store.entries()]
    free = shutil.disk_usage(existing).free
    limit = env.cache_max_size()
    at_most = "" if limit is None else f" of at most {limit / 2**20:.1f}"
    detail = f"{root}, {_artifacts(len(sizes))}, {sum(sizes) / 2**20:.1f}{at_most} MiB"
    if free < _LITTLE_SPACE:
        raise KjitError(
            f"{detail}; only {free / 2**20:.0f} MiB are free on its disk.", hint="free some, or `kjit clean-cache`"
        )
    return detail


def _shared_cache() -> str:
    from kjit.engine.cache.store import Store

    if not env.shared_cache_dirs():
        raise _AbsentError(f"none is named ({env.SHARED_CACHE_DIR}).")
    found = []
    for cache in Store.open().shared_caches():
        if not cache.root.is_dir():
            raise KjitError(
                f"'{cache.root}' does not exist.", hint=f"mount it, or remove it from {env.SHARED_CACHE_DIR}"
            )
        cache.refuse_unsafe()
        found.append(f"{cache.root}, {_artifacts(sum(1 for _ in cache.entries()))}")
    return "; ".join(found)


def _cuda() -> str:
    try:
        cuda = find_cuda()
    except NoCudaError as error:
        raise _AbsentError("not installed; kernels for the CPU work without it.", hint=error.hint) from None
    host = find_host_cxx()
    compiled_by = f"host compiler {host.label}" if cuda.has_nvcc else "without nvcc"
    return f"{cuda.version[0]}.{cuda.version[1]} ({cuda.home}, from {cuda.origin}), {compiled_by}"


def _nvrtc() -> str:
    asked = env.cuda_compiler()
    others = ""
    try:
        cuda = find_cuda()
        others = "nvcc compiles CUDA sources" if cuda.has_nvcc else ""
        nvrtc = find_nvrtc(cuda.version, [cuda.lib_dir], find_host_cxx())
    except ToolchainError as error:
        kind = KjitError if asked == "nvrtc" else _AbsentError
        raise kind(" ".join(filter(None, (error.message, others and f"{others}."))), hint=error.hint) from None
    if others and (asked == "nvcc" or (asked == "auto" and find_launcher() is not None)):
        return f"{nvrtc.label} ({nvrtc.library}), not used: {others}"
    rest = " of kjit's own kind; nvcc compiles the others" if others and asked == "auto" else ""
    return f"{nvrtc.label} ({nvrtc.library}), compiles CUDA sources{rest}"


def _simulator() -> str:
    try:
        headers = find_cuda_headers()
    except NoCudaError as error:
        raise _AbsentError(f"{error.message} CUDA kernels cannot be tested without a GPU.", hint=error.hint) from None
    asked = env.simulation()
    used = f"; {env.SIM} sends CPU tensors to it" if asked is not None else ""
    version = f"{headers.version[0]}.{headers.version[1]}"
    return f"headers of CUDA {version} ({headers.include_dirs[0]}, from {headers.origin}){used}"


def _gpus() -> str:
    driver = gpus.query_driver()
    if driver is None:
        raise _AbsentError("no NVIDIA driver here; kernels for a GPU can be built and not run.")
    present = gpus.visible_gpus()
    if not present:
        hidden = "CUDA_VISIBLE_DEVICES hides them" if driver.gpus else "the driver sees none"
        raise _AbsentError(f"none ({hidden}), driver {driver.version}.")
    models = [gpu.name for gpu in present]
    names = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    archs = gpu_archs()
    detail = f"{names} ({', '.join(map(str, archs))}), driver {driver.version}"
    try:
        cuda = find_cuda()
    except KjitError:
        return detail  # the line about CUDA reports the problem
    if driver.cuda[0] and driver.cuda[0] < cuda.version[0]:
        newest = f"{driver.cuda[0]}.{driver.cuda[1]}"
        raise KjitError(
            f"{detail}; the driver runs CUDA up to {newest}, and the compiler is {cuda.label}.",
            hint=f"update the driver, or install a CUDA {driver.cuda[0]} and set {env.CUDA_HOME}",
        )
    unknown = [str(arch) for arch in archs if not cuda.knows(arch.digits)]
    if unknown:
        raise KjitError(
            f"{detail}; {cuda.label} does not build for {', '.join(unknown)}.",
            hint=f"install a newer CUDA, or set {env.CUDA_ARCH_LIST} to an architecture that both know",
        )
    listed = env.cuda_arch_list()
    if listed is not None:
        wanted = [CudaArch.parse(item) for item in listed[1]]
        without = [gpu.name for gpu in present if not any(arch.runs_on(*gpu.capability) for arch in wanted)]
        if without:
            raise KjitError(
                f"{detail}; nothing in {listed[0]} ({', '.join(listed[1])}) runs on {without[0]}.",
                hint=f"add its architecture to {listed[0]}, or unset it",
            )
    return detail


def _highway() -> str:
    try:
        include = find_highway()
    except ToolchainError as error:
        raise _AbsentError(f"{error.message} Kernels that include <hwy/highway.h> need it.", hint=error.hint) from None
    return f"{highway_version(include)} ({include})"


_CHECKS: dict[str, Callable[[], str]] = {
    "kjit": _kjit,
    "C++ compiler": _cxx,
    "ninja": _ninja,
    "tvm-ffi": _tvm_ffi,
    "torch": _torch,
    "cache": _cache,
    "shared cache": _shared_cache,
    "CUDA": _cuda,
    "NVRTC": _nvrtc,
    "simulator": _simulator,
    "GPUs": _gpus,
    "Highway": _highway,
}
_NEEDED = ("kjit", "C++ compiler", "ninja", "tvm-ffi", "torch", "cache")


def _artifacts(count: int) -> str:
    return f"{count} artifact{'' if count == 1 else 's'}"
