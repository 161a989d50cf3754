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
from kjit.engine.cache.staging import temporary_root
from kjit.engine.toolchain.archs import gpu_archs
from kjit.engine.toolchain.compilers import ask, find_cxx, find_host_cxx
from kjit.engine.toolchain.cuda import NoCudaError, find_cuda, find_cuda_headers, wheel_versions
from kjit.engine.toolchain.locations import tvm_ffi_include, tvm_ffi_library
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.nvrtc import find_nvrtc
from kjit.engine.toolchain.programs import find_launcher, find_ninja
from kjit.errors import KjitError, ToolchainError
from kjit.runtime import gpus
from kjit.runtime.highway import find_highway
from kjit.spec import CudaArch

State = Literal["ok", "problem", "absent"]

OLDEST_TVM_FFI = (0, 1, 15)
# Since this version, ninja names the output of a failed command, so that a build can find its messages.
OLDEST_NINJA = (1, 7)

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


@dataclass(frozen=True)
class _Finding:
    """The outcome of a check that did not raise."""

    detail: str
    state: State = "ok"
    fix: str | None = None


def examine() -> list[Check]:
    """Check this machine, this Python environment and the cache."""
    return [
        _run("kjit", _kjit, needed=True),
        _run("C++ compiler", _cxx, needed=True),
        _run("ninja", _ninja, needed=True),
        _run("tvm-ffi", _tvm_ffi, needed=True),
        _run("torch", _torch, needed=True),
        _run("cache", _cache, needed=True),
        _run("shared cache", _shared_cache, needed=False),
        _run("temp folder", _temporary_folder, needed=True),
        _run("CUDA", _cuda, needed=False),
        _run("NVRTC", _nvrtc, needed=False),
        _run("simulator", _simulator, needed=False),
        _run("GPUs", _gpus, needed=False),
        _run("Highway", _highway, needed=False),
        _run("triton", _triton, needed=False),
        _run("clangd", _clangd, needed=False),
    ]


def is_fit(checks: Sequence[Check]) -> bool:
    """Whether kjit works here, at least for the CPU."""
    return not any(check.needed and check.state != "ok" for check in checks)


def _run(name: str, check: Callable[[], _Finding], *, needed: bool) -> Check:
    try:
        finding = check()
    except KjitError as error:
        return Check(name, "problem", error.message, error.hint, needed)
    except Exception as error:  # noqa: BLE001 (a doctor must outlive every illness)
        return Check(name, "problem", f"cannot be checked: {type(error).__name__}: {error}", None, needed)
    return Check(name, finding.state, finding.detail, finding.fix, needed)


def _kjit() -> _Finding:
    detail = f"{kjit.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        return _Finding(detail, "problem", "kjit is made for Linux; other systems are not tested")
    return _Finding(detail)


def _cxx() -> _Finding:
    features = {"native": "-march=native", "openmp": "OpenMP: kernels for the CPU have one thread"}
    cxx = find_cxx()
    if not features.keys() <= set(cxx.features):  # what it lacked may have been installed since
        open_memo().forget(cxx.path)
        cxx = find_cxx()
    lacks = [f"no {what}" for feature, what in features.items() if feature not in cxx.features]
    launcher = find_launcher()
    through = [] if launcher is None else [f"through {launcher} ({env.COMPILER_LAUNCHER})"]
    return _Finding(", ".join([f"{cxx.label} ({cxx.path})", *lacks, *through]))


def _ninja() -> _Finding:
    ninja = find_ninja()
    version = ask([str(ninja), "--version"]).strip()
    if _numbers(version) < OLDEST_NINJA:
        oldest = ".".join(map(str, OLDEST_NINJA))
        return _Finding(
            f"'{ninja}' says that its version is '{version}', and kjit needs {oldest} or newer.",
            "problem",
            f"`pip install ninja`, and put its folder before '{ninja.parent}' in PATH",
        )
    return _Finding(f"{version} ({ninja})")


def _tvm_ffi() -> _Finding:
    header, library = tvm_ffi_include() / "tvm" / "ffi" / "c_api.h", tvm_ffi_library()
    version = importlib.metadata.version("apache-tvm-ffi")
    detail = f"{version} ({library.parent.parent})"
    again = "pip install --force-reinstall apache-tvm-ffi"
    for part in (header, library):
        if not part.is_file():
            return _Finding(f"{version}, but '{part}' is missing.", "problem", again)
    if _numbers(version) < OLDEST_TVM_FFI:
        oldest = ".".join(map(str, OLDEST_TVM_FFI))
        return _Finding(f"{version} is older than {oldest}.", "problem", f"pip install 'apache-tvm-ffi>={oldest}'")
    return _Finding(detail)


def _torch() -> _Finding:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return _Finding("not installed.", "problem", "pip install torch")
    version = importlib.metadata.version("torch")
    # Read from the file, as importing torch takes seconds and may fail.
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8", errors="replace")
    built_with = re.search(r"^cuda\b[^=]*= ['\"]([\d.]+)['\"]", text, re.MULTILINE)
    if built_with is not None:
        return _Finding(f"{version}, for CUDA {built_with[1]}")
    if gpus.visible_gpus():
        return _Finding(
            f"{version} is for the CPU only, and there is a GPU here.",
            "problem",
            "install a torch for CUDA (https://pytorch.org/get-started/locally)",
        )
    return _Finding(f"{version}, for the CPU only")


def _cache() -> _Finding:
    from kjit.engine.cache.store import Store

    root = env.cache_dir()
    store = Store.open()
    existing = root
    while not os.path.lexists(existing):  # not Path.exists, which raises if a folder must not be read
        existing = existing.parent
    if not existing.is_dir():
        return _Finding(f"'{existing}' is not a folder.", "problem", f"move it away, or set {env.CACHE_DIR}")
    if not os.access(existing, os.W_OK | os.X_OK):
        why = "" if env.has_home() or env.has_cache_dir() else " (it has no home folder: HOME is not set)"
        own = f"`chown -R {os.geteuid()} {root}`, or " if existing == root else ""
        return _Finding(
            f"'{root}' cannot be written by this user{why}, so that builds are lost when the process ends.",
            "problem",
            f"{own}set {env.CACHE_DIR} to a folder of your own",
        )
    if is_noexec(existing):
        return _Finding(
            f"'{root}' is on a disk that is mounted noexec, from which nothing that is built can be loaded.",
            "problem",
            f"set {env.CACHE_DIR} to a folder on another disk, or mount this one without noexec",
        )
    sizes = [entry.size for entry in store.entries()]
    free = shutil.disk_usage(existing).free
    limit = env.cache_max_size()
    at_most = "" if limit is None else f" of at most {limit / 2**20:.1f}"
    detail = f"{root}, {_artifacts(len(sizes))}, {sum(sizes) / 2**20:.1f}{at_most} MiB"
    if free < _LITTLE_SPACE:
        return _Finding(
            f"{detail}; only {free / 2**20:.0f} MiB are free on its disk.",
            "problem",
            "free some, or `kjit clean-cache`",
        )
    return _Finding(detail)


def _shared_cache() -> _Finding:
    from kjit.engine.cache.store import Store

    if not env.shared_cache_dirs():
        return _Finding(f"none is named ({env.SHARED_CACHE_DIR}).", "absent")
    found = []
    for cache in Store.open().shared_caches():
        if not cache.root.is_dir():
            return _Finding(
                f"'{cache.root}' does not exist.", "problem", f"mount it, or remove it from {env.SHARED_CACHE_DIR}"
            )
        refusal = cache.distrusted()
        if refusal is not None:
            return _Finding(f"{refusal}.", "problem", f"its owner can `chmod -R go-w {cache.root}`")
        found.append(f"{cache.root}, {_artifacts(sum(1 for _ in cache.entries()))}")
    return _Finding("; ".join(found))


def _temporary_folder() -> _Finding:
    folder = temporary_root()
    named = os.environ.get("TMPDIR")
    if named and os.path.realpath(named) != os.path.realpath(folder):
        return _Finding(
            f"'{folder}' is used: TMPDIR is '{named}', where nothing can be written.",
            "ok",
            "correct TMPDIR, or unset it",
        )
    return _Finding(folder)


def _cuda() -> _Finding:
    try:
        cuda = find_cuda()
    except NoCudaError as error:
        return _Finding("not installed; kernels for the CPU work without it.", "absent", error.hint)
    host = find_host_cxx(cuda.nvcc)
    if cuda.nvcc.family == "nvrtc":
        return _Finding(f"{cuda.version[0]}.{cuda.version[1]} ({cuda.home}, from {cuda.origin}), without nvcc")
    parts = set(wheel_versions(cuda.home).values())
    consistent = f", all parts {cuda.version[0]}.{cuda.version[1]}" if parts else ""
    return _Finding(
        f"{cuda.version[0]}.{cuda.version[1]} ({cuda.home}, from {cuda.origin}{consistent}), host compiler {host.label}"
    )


def _nvrtc() -> _Finding:
    asked = env.cuda_compiler()
    has_nvcc = False
    try:
        cuda = find_cuda()
        has_nvcc = cuda.nvcc.family == "nvcc"
        nvrtc = find_nvrtc(cuda.version, [cuda.lib_dir], find_host_cxx(cuda.nvcc))
    except ToolchainError as error:
        if asked == "nvrtc":
            return _Finding(error.message, "problem", error.hint)
        return _Finding(f"{error.message}{' nvcc compiles CUDA sources.' if has_nvcc else ''}", "absent", error.hint)
    where = f"{nvrtc.version[0]}.{nvrtc.version[1]} ({nvrtc.library})"
    if asked == "nvcc":
        return _Finding(f"{where}, not used: {env.CUDA_COMPILER} is nvcc")
    if not has_nvcc:
        return _Finding(f"{where}, compiles CUDA sources")
    launcher = find_launcher()
    if launcher is not None and asked == "auto":
        return _Finding(f"{where}, not used: {launcher.name} shares what nvcc makes")
    if asked == "nvrtc":
        return _Finding(f"{where}, compiles CUDA sources: {env.CUDA_COMPILER} is nvrtc")
    return _Finding(f"{where}, compiles CUDA sources of kjit's own kind; nvcc compiles the others")


def _simulator() -> _Finding:
    try:
        headers = find_cuda_headers()
    except NoCudaError as error:
        return _Finding(f"{error.message} CUDA kernels cannot be tested without a GPU.", "absent", error.hint)
    asked = env.simulation()
    used = f"; {env.SIM} sends CPU tensors to it" if asked is not None else ""
    version = f"{headers.version[0]}.{headers.version[1]}"
    return _Finding(f"headers of CUDA {version} ({headers.include_dirs[0]}, from {headers.origin}){used}")


def _gpus() -> _Finding:
    driver = gpus.query_driver()
    if driver is None:
        return _Finding("no NVIDIA driver here; kernels for a GPU can be built and not run.", "absent")
    present = gpus.visible_gpus()
    if not present:
        hidden = "CUDA_VISIBLE_DEVICES hides them" if driver.gpus else "the driver sees none"
        return _Finding(f"none ({hidden}), driver {driver.version}.", "absent")
    models = [gpu.name for gpu in present]
    names = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    archs = gpu_archs()
    detail = f"{names} ({', '.join(map(str, archs))}), driver {driver.version}"
    try:
        cuda = find_cuda()
    except KjitError:
        return _Finding(detail)  # the line about CUDA reports the problem
    if driver.cuda[0] and driver.cuda[0] < cuda.version[0]:
        newest = f"{driver.cuda[0]}.{driver.cuda[1]}"
        return _Finding(
            f"{detail}; the driver runs CUDA up to {newest}, and the compiler is {cuda.label}.",
            "problem",
            f"update the driver, or install a CUDA {driver.cuda[0]} and set {env.CUDA_HOME}",
        )
    unknown = [str(arch) for arch in archs if not cuda.knows(arch.digits)]
    if unknown:
        return _Finding(
            f"{detail}; {cuda.label} does not build for {', '.join(unknown)}.",
            "problem",
            f"install a newer CUDA, or set {env.CUDA_ARCH_LIST} to an architecture that both know",
        )
    listed = env.cuda_arch_list()
    if listed is not None:
        wanted = [CudaArch.parse(item) for item in listed[1]]
        without = [gpu.name for gpu in present if not any(arch.runs_on(*gpu.capability) for arch in wanted)]
        if without:
            return _Finding(
                f"{detail}; nothing in {listed[0]} ({', '.join(listed[1])}) runs on {without[0]}.",
                "problem",
                f"add its architecture to {listed[0]}, or unset it",
            )
    return _Finding(detail)


def _highway() -> _Finding:
    try:
        highway = find_highway()
    except ToolchainError as error:
        return _Finding(f"{error.message} Kernels that include <hwy/highway.h> need it.", "absent", error.hint)
    return _Finding(f"{highway.version} ({highway.include})")


def _triton() -> _Finding:
    try:
        return _Finding(importlib.metadata.version("triton"))
    except importlib.metadata.PackageNotFoundError:
        return _Finding("not installed; benchmarks need it.", "absent", "pip install triton")


def _clangd() -> _Finding:
    path = shutil.which("clangd")
    if path is None:
        return _Finding("not on PATH; an editor may bring its own.", "absent", "pip install clangd")
    version = re.search(r"version (\S+)", ask([path, "--version"]))
    return _Finding(f"{version[1] if version else 'of an unknown version'} ({path})")


def _artifacts(count: int) -> str:
    return f"{count} artifact{'' if count == 1 else 's'}"


def _numbers(version: str) -> tuple[int, ...]:
    """`(0, 1, 15)` of `0.1.15.post2`."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])[:3])
