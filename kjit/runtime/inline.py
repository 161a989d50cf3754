"""Modules from source texts.

A text is written to a file in the cache folder, named by its content, and then used like any other source, for keys,
hits, messages and debuggers. Equal texts are the same file in every process; a changed text is another file, so that a
notebook gets the new module beside the old one.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kjit
from kjit.runtime import SOURCE_TEXTS
from kjit.runtime.load import cache_folder, load_variant, only_target
from kjit.spec import Spec, StrPath, Variant, Wrapper

if TYPE_CHECKING:
    import tvm_ffi


def load_inline(
    name: str,
    *,
    cpp_sources: str | Sequence[str] | None = None,
    cuda_sources: str | Sequence[str] | None = None,
    functions: str | Iterable[Wrapper] | Mapping[str, str] | None = None,
    extra_cflags: Iterable[str] | None = None,
    extra_cuda_cflags: Iterable[str] | None = None,
    extra_ldflags: Iterable[str] | None = None,
    extra_include_paths: Iterable[StrPath] | None = None,
    build_directory: StrPath | None = None,
) -> tvm_ffi.Module:
    """Load a module of C++ and CUDA source texts, compiling it if necessary.

        module = kjit.load_inline("add", cpp_sources=text, functions=["add"])
        module.add(x, y)

    The arguments are those of `tvm_ffi.cpp.load_inline`, and arguments not listed here those of `load_jit`. Nothing is
    included before a text.

    Args:
        name: the name of the module; an identifier.
        cpp_sources, cuda_sources: one or several texts; with `functions`, the texts of a side are one unit.
        functions: the exports: a name, names, `(name, symbol)` pairs, or a mapping from names to docstrings (which are
            dropped). They are declared in the C++ texts, if there are any, else defined in the CUDA texts. By default
            the texts have their own exports (`KJIT_EXPORT`).

    Returns:
        The module; its exports are its attributes.

    Raises:
        UsageError: the arguments are invalid (a name that is not an identifier, no text).
        KjitError: as for `load_jit`. A `CompileError` names the file of the text, with the line in the text.
    """
    cpp, cuda = _texts("cpp_sources", cpp_sources), _texts("cuda_sources", cuda_sources)
    if not cpp and not cuda:
        raise kjit.UsageError(f"module '{name}' has no source: give cpp_sources or cuda_sources.")
    exports: list[Wrapper] = [functions] if isinstance(functions, str) else [*(functions or ())]
    files = {
        f"{name}{index or ''}.{ending}": text
        for ending, texts in (("cpp", cpp), ("cu", cuda))
        for index, text in enumerate(texts)
    }
    flags: dict[str, Any] = {
        "extra_cflags": extra_cflags or (),
        "extra_cuda_cflags": extra_cuda_cflags or (),
        "extra_ldflags": extra_ldflags or (),
        "extra_include_paths": extra_include_paths or (),
    }
    wrapper = sys._getframe(1).f_globals.get("__file__")
    Spec(name, **_parts(files, Path("/"), exports), **flags)  # reports errors before anything is written
    cache, named = cache_folder(build_directory), _digest(files)
    folder = Path(cache, SOURCE_TEXTS, named)
    if not _hold(folder, files):
        from kjit.engine.cache.store import Store

        folder = Store.open(Path(cache)).writable().write_texts(named, files)
    # A bundle also compares the texts by these files.
    spec = Spec(name, **_parts(files, folder, exports), **flags)
    return load_variant(Variant(spec, only_target(spec)), build_directory=build_directory, wrapper=wrapper)


def _texts(field: str, given: str | Sequence[str] | None) -> list[bytes]:
    texts = [given] if isinstance(given, str) else [*(given or ())]
    for text in texts:
        if not isinstance(text, str):
            raise kjit.UsageError(
                f"{field} must be a text or a list of texts, not {text!r}.", hint="for files there is load_jit"
            )
    return [text.encode(errors="surrogateescape") for text in texts]


def _parts(files: Mapping[str, bytes], folder: Path, exports: list[Wrapper]) -> dict[str, Any]:
    """Sources and exports as arguments of `Spec` and `load_jit`."""
    cpp = [folder / file for file in files if file.endswith(".cpp")]
    cuda = [folder / file for file in files if file.endswith(".cu")]
    return {"cpp_files": cpp, "cuda_files": cuda, ("cpp_wrappers" if cpp else "cuda_wrappers"): exports}


def _digest(files: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for file, text in files.items():
        whole.update(f"{file}\0{len(text)}\0".encode() + text)
    return whole.hexdigest()[:32]


def _hold(folder: Path, texts: Mapping[str, bytes]) -> bool:
    """Whether the files in a folder have these texts."""
    try:
        return all((folder / file).read_bytes() == text for file, text in texts.items())
    except OSError:
        return False
