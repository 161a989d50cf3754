"""Files that flags add to a library besides its sources: static libraries, scripts, files of options.

Compilers do not list them in depfiles, so they are derived from flags. The places where the linker searches for a
library are recorded too, because a library that appears there later takes precedence.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from kjit.engine.key.flags import absolute_paths
from kjit.engine.toolchain.cuda import DEFAULT_HOME, header_homes
from kjit.engine.toolchain.options import Dialect, expand, parse
from kjit.engine.toolchain.toolchain import Toolchain

# The folders that a linker always searches: a package may install a library there that takes precedence over another.
# Resolved, because some are links to others.
_LIBRARY_FOLDERS = tuple(
    dict.fromkeys(
        os.path.realpath(f"{root}/{folder}")
        for root in ("/usr/local", "/usr", "/")
        for folder in (f"lib/{platform.machine()}-linux-gnu", "lib64", "lib")
    )
)

# Libraries that a driver installs into the system's folders.
_OF_DRIVER = ("cuda", "nvidia-ml", "nvcuvid", "nvidia-encode", "nvidia-ptxjitcompiler")

_ELF_TYPE_AT = 16  # offset in a file's header; type 3 is a shared object


def files_named(flags: Sequence[str], dialect: Dialect = "c++") -> tuple[str, ...]:
    """The files that flags name (`@options.txt`, `-fprofile-use=FILE`, `-Wl,-T,FILE`); depfiles do not list them."""
    return tuple(filter(os.path.isfile, absolute_paths(flags, dialect)))


def linked_by(flags: Sequence[str], toolchain: Toolchain) -> tuple[str, ...]:
    """The files that an op's linker flags add to its library, mostly static libraries."""
    files = [*files_named(flags), *filter(os.path.isfile, sought_by(flags, toolchain))]
    return tuple(file for file in files if not _is_shared(file))


def sought_by(flags: Sequence[str], toolchain: Toolchain) -> tuple[str, ...]:
    """The places where the linker may search for the libraries that an op's flags name.

    Existing shared libraries are excluded: if one disappears, the module does not load, and the loader reports why.
    """
    folders = toolchain.environment().get("LIBRARY_PATH", "").split(os.pathsep)
    names: list[str] = []
    for flag, _ in expand(flags):
        if flag.meaning == "libraries":
            folders.append(flag.value)
        elif flag.meaning == "library" and flag.value.startswith(":"):
            names.append(flag.value[1:])
        elif flag.meaning == "library":
            names += [f"lib{flag.value}.so", f"lib{flag.value}.a"]
    searched = [*filter(os.path.isabs, folders), *_LIBRARY_FOLDERS]
    places = dict.fromkeys(os.path.normpath(f"{folder}/{name}") for folder in searched for name in names)
    return tuple(place for place in places if not _is_shared(place))


def resolve(flags: Sequence[str], toolchain: Toolchain) -> list[str]:
    """The flags of a link, with files in place of `-l` for libraries of CUDA that exist only under a versioned name.

    PyPI's wheels have only such names, and so may the libraries of a driver.
    """
    if toolchain.gpu is None:
        return list(flags)
    resolved: list[str] = []
    for flag in parse(flags):
        if flag.meaning == "library" and not flag.value.startswith(":"):
            if toolchain.target.is_simulated and flag.value == "cudart":
                continue  # the simulator has a runtime of its own
            if toolchain.cuda is not None and (found := find_versioned(flag.value, toolchain)) is not None:
                resolved.append(found)
                continue
        resolved += flag.words()
    return resolved


def find_versioned(name: str, toolchain: Toolchain) -> str | None:
    """The file of a library of CUDA or its driver that `-l` does not find, because there is no `lib<name>.so`."""
    folders: list[str] = []
    if toolchain.cuda is not None:
        folders = [str(toolchain.cuda.lib_dir), str(toolchain.cuda.lib_dir / "stubs")]
    else:
        folders = [str(home / folder) for home in (*header_homes(), DEFAULT_HOME) for folder in ("lib64", "lib")]
    if name in _OF_DRIVER:
        folders += _LIBRARY_FOLDERS
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        if {f"lib{name}.so", f"lib{name}.a"} & {*names}:
            return None
        versioned = sorted((each for each in names if each.startswith(f"lib{name}.so.")), key=len)
        if versioned:
            return os.path.join(folder, versioned[0])
    return None


def _is_shared(path: str) -> bool:
    """Whether this is a shared library, which is read when the module is loaded, not at the link."""
    if path.endswith(".dylib"):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(_ELF_TYPE_AT + 2)
    except OSError:
        return False
    return head.startswith(b"\x7fELF") and head[_ELF_TYPE_AT:] in (b"\x03\0", b"\0\x03")
