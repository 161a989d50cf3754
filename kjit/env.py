"""The environment variables that kjit reads. docs/environment.md has their meaning.

They are all read here, at the time of use and never on import, so that a test or a notebook can set them at any time;
except `KJIT_RECORD`, which is read when an op is defined, so that calls need no check. An empty value counts as unset,
which is how shells and CI files often "remove" a variable. Variables are for settings of a whole machine or run; all
other settings (such as `--arch` or `[tool.kjit]` keys) are arguments of functions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar, get_args

import kjit

CACHE_DIR = "KJIT_CACHE_DIR"
CUDA_ARCH_LIST = "KJIT_CUDA_ARCH_LIST"
TVM_FFI_CUDA_ARCH_LIST = "TVM_FFI_CUDA_ARCH_LIST"
CUDA_HOME = "KJIT_CUDA_HOME"
SHARED_CACHE_DIR = "KJIT_SHARED_CACHE_DIR"
CACHE_MAX_SIZE = "KJIT_CACHE_MAX_SIZE"
CUDA_COMPILER = "KJIT_CUDA_COMPILER"
COMPILER_LAUNCHER = "KJIT_COMPILER_LAUNCHER"
CPU_LEVEL = "KJIT_CPU_LEVEL"
NO_COMPILE = "KJIT_NO_COMPILE"
RECORD_VARIANTS = "KJIT_RECORD_VARIANTS"
RECORD = "KJIT_RECORD"
RECORD_VALUES = "KJIT_RECORD_VALUES"
RECORD_EVERY = "KJIT_RECORD_EVERY"
RECORD_MAX_SIZE = "KJIT_RECORD_MAX_SIZE"
LOG = "KJIT_LOG"
SIM = "KJIT_SIM"
# Kernels and the simulator read these themselves; kernels with <kjit/highway.h> also read `CPU_LEVEL`.
CPU_CACHE_BYTES = "KJIT_CPU_CACHE_BYTES"
SIM_SEED = "KJIT_SIM_SEED"
SIM_THREADS = "KJIT_SIM_THREADS"
SIM_TIMEOUT = "KJIT_SIM_TIMEOUT"

T = TypeVar("T")
LogLevel = Literal["debug", "info"]
CudaCompiler = Literal["auto", "nvcc", "nvrtc"]
CUDA_COMPILERS: tuple[CudaCompiler, ...] = get_args(CudaCompiler)
Simulation = Literal["sim", "sim-check"]
SIMULATIONS: tuple[Simulation, ...] = get_args(Simulation)

_FALSE = ("0", "false", "no", "off")
_OFF = dict.fromkeys(("", *_FALSE))
_TRUE = ("1", "true", "yes", "on", "sim")


def cache_dir() -> Path:
    """The folder of the artifact cache (it need not exist yet): `KJIT_CACHE_DIR`, else the user's cache folder.

    Without a home folder (no HOME, and no entry in the list of users), it is `/`, as in container runtimes.

    Raises:
        UsageError: `KJIT_CACHE_DIR` starts with a `~user` that does not exist, or is relative to a folder that is gone.
    """
    if text := _get(CACHE_DIR):
        return _path(CACHE_DIR, text)
    named = os.environ.get("XDG_CACHE_HOME", "")
    folder = f"{named if os.path.isabs(named) else os.path.expanduser('~/.cache')}/kjit"
    return _absolute(folder if os.path.isabs(folder) else "/.cache/kjit")


def shared_cache_dirs() -> list[Path]:
    """The folders of the shared caches (they need not exist), in their order: `KJIT_SHARED_CACHE_DIR`.

    Raises:
        UsageError: one of them starts with a `~user` that does not exist.
    """
    return [_path(SHARED_CACHE_DIR, item) for item in _get(SHARED_CACHE_DIR).split(os.pathsep) if item.strip()]


def cache_max_size() -> int | None:
    """The size limit of the cache in bytes (`KJIT_CACHE_MAX_SIZE`); None for no limit.

    Raises:
        UsageError: it is not a size such as 5G, 500M or 1.5GiB. Units are powers of 1024.
    """
    text = _get(CACHE_MAX_SIZE)
    return None if text.lower() in _OFF else _size(CACHE_MAX_SIZE, text)


def _size(name: str, text: str) -> int:
    """The value of a variable in bytes; a UsageError if it is not a size."""
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise kjit.UsageError(f"{name} is '{text}', which is not a size.", hint="write it like 5G or 500M")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def cuda_arch_list() -> tuple[str, list[str]] | None:
    """The variable with GPU architectures, and its items as written; None if neither variable is set."""
    for name in (CUDA_ARCH_LIST, TVM_FFI_CUDA_ARCH_LIST):
        if items := split_list(_get(name)):
            return name, items
    return None


def one_of(names: Sequence[str]) -> str:
    """`auto, nvcc or nvrtc`, for messages."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


def split_list(text: str) -> list[str]:
    """The items of a list separated by commas, semicolons or spaces."""
    return text.replace(",", " ").replace(";", " ").split()


def cuda_home() -> Path | None:
    """The folder in `KJIT_CUDA_HOME`, or None.

    Raises:
        UsageError: it starts with a `~user` that does not exist.
    """
    text = _get(CUDA_HOME)
    return _path(CUDA_HOME, text) if text else None


def cuda_compiler() -> CudaCompiler:
    """The compiler of device code in `KJIT_CUDA_COMPILER`, else `auto`.

    Raises:
        UsageError: it is none of `CUDA_COMPILERS`.
    """
    meanings: dict[str, CudaCompiler] = {"": "auto", **{each: each for each in CUDA_COMPILERS}}
    return _chosen(CUDA_COMPILER, meanings, f"{one_of(CUDA_COMPILERS)}, or unset it")


def compiler_launcher() -> str | None:
    """The program to put before compile commands (`KJIT_COMPILER_LAUNCHER`), or None."""
    text = _get(COMPILER_LAUNCHER)
    return None if text.lower() in _OFF else text


def cpu_level() -> str | None:
    """The highest CPU level to use (`KJIT_CPU_LEVEL`); None for that of this CPU."""
    return os.environ.get(CPU_LEVEL) or None


def no_compile() -> bool:
    """Whether a module that is not built is an error rather than compiled (`KJIT_NO_COMPILE`)."""
    return _is_true(NO_COMPILE) and not reports_compiles()


def reports_compiles() -> bool:
    """Whether a compile at run time is logged as an error (`KJIT_NO_COMPILE=warn`)."""
    return _get(NO_COMPILE).lower() == "warn"


def variants_file() -> str | None:
    """The file to which requested variants are appended (`KJIT_RECORD_VARIANTS`), or None."""
    return _get(RECORD_VARIANTS) or None


def record_folder() -> Path | None:
    """The folder of recorded calls (`KJIT_RECORD`), or None.

    Raises:
        UsageError: it starts with a `~user` that does not exist, or is relative to a folder that is gone.
    """
    text = _get(RECORD)
    return None if text.lower() in _OFF else _path(RECORD, text)


def record_values() -> list[str] | Literal["all"]:
    """The ops whose calls are recorded with values (`KJIT_RECORD_VALUES`)."""
    text = _get(RECORD_VALUES)
    if text.lower() in _TRUE:
        return "all"
    return [] if text.lower() in _OFF else split_list(text)


def record_every() -> int | None:
    """The interval of recorded calls of an op (`KJIT_RECORD_EVERY`); None to record each distinct call once.

    Raises:
        UsageError: it is not a number, or less than 1.
    """
    text = _get(RECORD_EVERY)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise kjit.UsageError(f"{RECORD_EVERY} is '{text}', not a number of calls.", hint="write it like 1000")
    return int(text)


def record_max_size() -> int:
    """The size limit of recorded calls in bytes (`KJIT_RECORD_MAX_SIZE`).

    Raises:
        UsageError: as for `cache_max_size`.
    """
    return _size(RECORD_MAX_SIZE, _get(RECORD_MAX_SIZE) or "1G")


def log_level() -> LogLevel | None:
    """The value of `KJIT_LOG`, or None.

    Raises:
        UsageError: it is neither `info` nor `debug`.
    """
    meanings: dict[str, LogLevel | None] = {**_OFF, "info": "info", "debug": "debug"}
    return _chosen(LOG, meanings, "info or debug")


def simulation() -> Simulation | None:
    """The simulator selected by `KJIT_SIM`, or None.

    Raises:
        UsageError: it is not 1, 0 or `check`.
    """
    meanings: dict[str, Simulation | None] = {**_OFF, **dict.fromkeys(_TRUE, "sim"), "check": "sim-check"}
    return _chosen(SIM, meanings, "1, check or 0")


def forbids_simulation() -> bool:
    """Whether `KJIT_SIM` is 0, which differs from unset."""
    return _get(SIM).lower() in _FALSE


def is_in_ci() -> bool:
    """Whether this runs in continuous integration (`CI` or `GITHUB_ACTIONS` is set and not false)."""
    return _is_true("CI") or _is_true("GITHUB_ACTIONS")


def _get(name: str) -> str:
    return os.environ.get(name, "").strip()


def _is_true(name: str) -> bool:
    return _get(name).lower() not in _OFF


def _chosen(name: str, meanings: Mapping[str, T], allowed: str) -> T:
    """The meaning of a variable's value; a UsageError if it has none."""
    text = _get(name)
    if text.lower() not in meanings:
        raise kjit.UsageError(f"{name} is '{text}'.", hint=f"set {name} to {allowed}")
    return meanings[text.lower()]


def _path(name: str, text: str) -> Path:
    try:
        path = os.fspath(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise kjit.UsageError(
            f"{name} is '{text}', and no such user has a home folder.", hint=f"give {name} an absolute path"
        ) from None
    return absolute(name, path)


def absolute(name: str, path: str) -> Path:
    """`path` as an absolute path.

    Args:
        name: its variable or argument.

    Raises:
        UsageError: it is relative, and the current folder no longer exists.
    """
    try:
        return _absolute(path if path.startswith("/") else os.path.abspath(path))
    except FileNotFoundError:
        raise kjit.UsageError(
            f"{name} is '{path}', and the current folder, to which that is relative, no longer exists.",
            hint=f"give {name} an absolute path, or cd to a folder that exists",
        ) from None


@lru_cache(maxsize=64)
def _absolute(path: str) -> Path:
    """A normalised absolute path, cached, as every load needs it and it costs more than the rest of this file."""
    return Path(os.path.normpath(path))
