"""Headers of other packages that SGLang's sources request by name (`extra_dependencies`)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import kjit

_FINDERS: dict[str, Callable[[], list[str]]] = {}


def register_dependency(name: str) -> Callable[[Callable[[], list[str]]], Callable[[], list[str]]]:
    """Let `extra_dependencies` name what the decorated function finds: a list of include folders.

    Raises:
        UsageError: there is a dependency of that name.
    """

    if name in _FINDERS:
        raise kjit.UsageError(f"dependency '{name}' is registered already.")

    def decorate(find: Callable[[], list[str]]) -> Callable[[], list[str]]:
        _FINDERS[name] = find
        return find

    return decorate


def include_folders(names: Iterable[str]) -> list[str]:
    """The include folders of dependencies, each once, in the order of their names.

    Raises:
        UsageError: a name is not registered.
        ToolchainError: a package is not installed, or has not the headers.
    """
    if isinstance(names, str):
        raise kjit.UsageError(f"extra_dependencies must be a list of names, not the one string '{names}'.")
    folders: dict[str, None] = {}
    for name in sorted({*names}):
        if name not in _FINDERS:
            raise kjit.UsageError(
                f"'{name}' is not a dependency that is known: {', '.join(sorted(_FINDERS))}.",
                hint="register one with kjit.compat.sglang.register_dependency, or pass extra_include_paths",
            )
        folders.update(dict.fromkeys(_FINDERS[name]()))
    return list(folders)


@register_dependency("flashinfer")
def _flashinfer() -> list[str]:
    data = _package("flashinfer") / "data"
    parts = ("include", "csrc", "cutlass/include", "cutlass/tools/util/include", "spdlog/include")
    return _existing("flashinfer", [data / part for part in parts])


@register_dependency("flashinfer_nv_internal")
def _flashinfer_nv_internal() -> list[str]:
    folder = _package("flashinfer") / "data/csrc/nv_internal"
    return _existing("flashinfer_nv_internal", [folder, folder / "include"])


@register_dependency("cutlass")
def _cutlass() -> list[str]:
    parts = {"flashinfer": ["data/cutlass/include", "data/cutlass/tools/util/include"], "deep_gemm": ["include"]}
    roots = {package: root for package in parts if (root := _root(package)) is not None}
    folders = [root / part for package, root in roots.items() for part in parts[package]]
    found = [str(folder) for folder in folders if folder.is_dir()]
    if not found:
        raise kjit.ToolchainError(
            "CUTLASS's headers are not here.",
            hint="install flashinfer-python, which brings them, or pass their folder in extra_include_paths",
        )
    return found


@register_dependency("mathdx")
def _mathdx() -> list[str]:
    home = os.environ.get("MATHDX_HOME")
    root = Path(home).expanduser() if home else _root("nvidia.mathdx")
    if root is None or not (root / "include").is_dir():
        raise kjit.ToolchainError(
            "NVIDIA Math-DX (the headers of cuBLASDx) is not here.",
            hint="install nvidia-mathdx, or set MATHDX_HOME to where its archive was unpacked",
        )
    cutlass = root / "external/cutlass/include"
    return [str(root / "include"), *([str(cutlass)] if cutlass.is_dir() else [])]


def _root(package: str) -> Path | None:
    """The folder of a package that is installed, which is not imported for it."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # the package that it would be in
        return None
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


def _package(name: str) -> Path:
    root = _root(name)
    if root is None:
        raise kjit.ToolchainError(f"{name} is not installed, and a source includes its headers.")
    return root


def _existing(name: str, folders: list[Path]) -> list[str]:
    for folder in folders:
        if not folder.is_dir():
            raise kjit.ToolchainError(
                f"dependency '{name}' is installed without its headers: there is no {folder}.",
                hint="install a version that has them",
            )
    return [str(folder) for folder in folders]
