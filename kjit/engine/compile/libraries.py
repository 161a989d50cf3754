"""Files that flags add to a library besides its sources: static libraries, scripts, files of options.

Compilers do not list them in depfiles. The linker lists them if it supports that; otherwise they are derived from its
flags. The places where it searches for a library are recorded too, because a library that appears there later takes
precedence.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kjit.engine.diagnostics.printed import parse_depfile
from kjit.engine.key.flags import absolute_paths
from kjit.engine.toolchain.compilers import Compiler, compiles
from kjit.engine.toolchain.cuda import DEFAULT_HOME, header_homes
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.options import Dialect, expand, parse
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec

# The folders that a linker always searches: a package may install a library there that takes precedence over another.
# Resolved, because some are links to others.
_LIBRARY_FOLDERS = tuple(
    dict.fromkeys(
        os.path.realpath(f"{root}/{folder}")
        for root in ("/usr/local", "/usr", "/")
        for folder in (f"lib/{platform.machine()}-linux-gnu", "lib64", "lib")
    )
)

# Variables that affect which linker runs, and which files it finds.
_LINKER_ENVIRONMENT = ("COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "PATH")

# The programs that a C++ compiler runs.
_PARTS = ("cc1plus", "as", "ld", "collect2")
_USE = "-fuse-ld="
# Libraries that a driver installs into the system's folders.
_OF_DRIVER = ("cuda", "nvidia-ml", "nvcuvid", "nvidia-encode", "nvidia-ptxjitcompiler")

_ELF_TYPE_AT = 16  # offset in a file's header; type 3 is a shared object


def files_named(flags: Sequence[str], dialect: Dialect = "c++") -> tuple[str, ...]:
    """The files that flags name (`@options.txt`, `-fprofile-use=FILE`, `-Wl,-T,FILE`), and the programs that replace
    the compiler's own (`-B`, `-fuse-ld`); depfiles do not list them."""
    return tuple(filter(os.path.isfile, (*absolute_paths(flags, dialect), *_programs_named(flags, dialect))))


def _programs_named(flags: Sequence[str], dialect: Dialect) -> Iterator[str]:
    every = [flag for flag, _ in expand(flags, dialect)]
    linkers = [f"ld.{flag.value[len(_USE) :]}" for flag in every if flag.value.startswith(_USE)]
    for flag in every:
        if flag.name in ("-B", "--prefix") and os.path.isabs(flag.value):
            yield from (f"{flag.value}{slash}{name}" for name in (*_PARTS, *linkers) for slash in ("", "/"))
    yield from filter(None, map(shutil.which, linkers))


def linked_by(flags: Sequence[str]) -> tuple[str, ...]:
    """The files that an op's linker flags add to its library, mostly static libraries.

    They are derived from the flags. If the linker lists the files it read, `brought_in` adds those.
    """
    folders, names = _libraries(flags)
    found = [*absolute_paths(flags), *(os.path.join(folder, name) for folder in folders for name in names)]
    libraries = (path for path in found if os.path.isfile(path) and not _is_shared(path))
    return (*libraries, *filter(os.path.isfile, _programs_named(flags, "c++")))


def sought_by(flags: Sequence[str], toolchain: Toolchain) -> tuple[str, ...]:
    """The places where the linker may search for the libraries that an op's flags name.

    Existing shared libraries are excluded: if one disappears, the module does not load, and the loader reports why.
    """
    folders, names = _libraries(flags)
    named = [*folders, *toolchain.environment().get("LIBRARY_PATH", "").split(os.pathsep)]
    searched = [*filter(os.path.isabs, named), *_LIBRARY_FOLDERS]
    places = dict.fromkeys(os.path.normpath(f"{folder}/{name}") for folder in searched for name in names)
    return tuple(place for place in places if not _is_shared(place))


def _libraries(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folders that flags add to the linker's search, and the names of the files that it searches for."""
    folders: list[str] = []
    names: list[str] = []
    for flag, _ in expand(flags):
        if flag.meaning == "libraries":
            folders.append(flag.value)
        elif flag.meaning == "library" and flag.value.startswith(":"):
            names.append(flag.value[1:])
        elif flag.meaning == "library":
            names += [f"lib{flag.value}.so", f"lib{flag.value}.a"]
    return folders, names


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


def lists_what_it_links(spec: Spec, toolchain: Toolchain) -> bool:
    """Whether to let the linker list the files it reads: if the op has linker flags, and the linker supports it."""
    return bool(spec.extra_ldflags) and bool(always_linked(toolchain))


def brought_in(listing: str, toolchain: Toolchain) -> list[str]:
    """The files that an op's flags made part of its library.

    Args:
        listing: the linker's output for `--dependency-file`; empty without that flag.
    """
    names = read_listing(listing)
    always = {*always_linked(toolchain)} if names else set()
    read = [name for name in names if os.path.isabs(name) and os.path.normpath(name) not in always]
    # Missing files were temporary files of the link, for example with `-flto`.
    return [name for name in read if os.path.isfile(name) and not _is_shared(name)]


def read_listing(text: str) -> list[str]:
    """The files in a linker's output for `--dependency-file`: a Make rule with a name on each line.

    GNU ld and gold do not escape spaces in names; lld escapes them as Make does; mold writes a single line.
    """
    lines = text.partition("\n\n")[0].split("\\\n")[1:]
    if not lines:
        return parse_depfile(text)
    names = [line.strip() for line in lines]
    return [name if os.path.exists(name) else (parse_depfile(f":{name}") or [name])[0] for name in names]


def always_linked(toolchain: Toolchain) -> list[str]:
    """The files that are part of every library that a toolchain links: the compiler's, and the C library's.

    Returns:
        Normalised paths; empty if the linker cannot list the files it reads (GNU ld before 2.35, Apple's).
    """
    cxx = toolchain.cxx
    environment = {name: os.environ.get(name) for name in _LINKER_ENVIRONMENT}
    try:
        # Only a success is remembered: a failure may be due to a full disk.
        return open_memo().recall(
            (str(cxx.path), cxx.size, cxx.mtime_ns), f"always linked {environment}", lambda: _link_nothing(cxx)
        )
    except _CannotListError:
        return []


class _CannotListError(Exception):
    pass


def _link_nothing(cxx: Compiler) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "listing")
        flags = ["-shared", "-o", f"{folder}/library", f"-Wl,--dependency-file={listing}"]
        flags += ["-fopenmp"] if "openmp" in cxx.features else []
        if not compiles(cxx.path, flags, "int nothing;") or not listing.exists():
            raise _CannotListError
        names = read_listing(os.fsdecode(listing.read_bytes()))
    # The object of this link has been removed.
    return [os.path.normpath(name) for name in names if os.path.exists(name)]


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
