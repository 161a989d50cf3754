"""The headers of a compiler, a toolkit or tvm-ffi.

They change only with versions that are part of every key, or with the system, like those of the C library, and so are
not compared on each load. All others may be edited or replaced: those of the project, and those of other packages,
wherever they are installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kjit.engine.key.anchors import straight
from kjit.engine.key.flags import include_folders
from kjit.engine.key.key import Key
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec

# The headers of GCC and clang, and of an SDK, wherever a distribution or conda puts them.
_OF_THE_COMPILER = re.compile(r".*/(?:lib(?:64|exec)?/(?:gcc|clang)|include/c\+\+|sysroot|[\w.]+\.sdk)/.*")

# The folders for headers of all packages of a distribution, for all architectures and for one.
_OF_ALL_PACKAGES = re.compile(r"/usr/include/(?:\w+-linux-\w+/)?")

# The headers of the C library (glibc, musl), the kernel and GCC in them.
_OF_THE_C_LIBRARY = re.compile(
    r"""
    (?:arpa|asm|asm-generic|bits|c\+\+|finclude|gnu|linux|misc|mtd|net|netash|netatalk|netax25|neteconet|netinet|netipx
    |netiucv|netpacket|netrom|netrose|nfs|protocols|sound|sys(?!/(?:acl|capability|sdt)\.h)|video|xen)/.*
    |(?:a\.out|aio|aliases|alloca|ar|argp|argz|assert|byteswap|complex|cpio|crypt|ctype|dirent|dlfcn|elf|endian|envz|err
    |errno|error|execinfo|fcntl|features|features-time64|fenv|fmtmsg|fnmatch|fpu_control|fstab|fts|ftw|gconv|getopt|glob
    |gnu-versions|grp|gshadow|iconv|ieee754|ifaddrs|inttypes|langinfo|lastlog|libc-symbols|libgen|libintl|limits|link
    |locale|malloc|math|mcheck|memory|mntent|monetary|mqueue|netdb|nl_types|nss|obstack|paths|poll|printf|proc_service
    |pthread|pty|pwd|re_comp|regex|regexp|resolv|sched|search|semaphore|setjmp|sgtty|shadow|signal|spawn|stab
    |stdc-predef|stdint|stdio|stdio_ext|stdlib|string|strings|stropts|syscall|sysexits|syslog|tar|termio|termios|tgmath
    |thread_db|threads|time|ttyent|uchar|ucontext|ulimit|unistd|ustat|utime|utmp|utmpx|values|wait|wchar|wctype|wordexp)
    \.h
    """,
    re.VERBOSE,
)

_SHARED_BY_ALL = ("/usr/include", "/usr/local/include")

# Search folders: the rest of the path is what an `#include` can contain.
_SEARCHED_BY_COMPILER = re.compile(
    r".*/include/c\+\+/[^/]+/|.*/lib(?:64)?/(?:gcc/[^/]+|clang|llvm-[\d.]+/lib/clang)/[^/]+/include(?:-fixed)?/"
    r"|/usr/include/(?:\w+-linux-\w+/(?:c\+\+/[^/]+/)?)?"
)


class SystemFolders(NamedTuple):
    """The folders of headers that come with a compiler, a toolkit or tvm-ffi, whose versions are part of the key.

    If one of these folders is inside another, the inner one decides: a project may be below a folder named `sysroot`,
    and a compiler inside a project.

    Attributes:
        own: folders of the op, whose headers are compared.
        covered: folders whose headers are not.
        searched: folders named by flags and variables.
        compilers: the folder of the compiler, by name and with links resolved, which may also have headers of other
            packages.
    """

    own: tuple[str, ...]
    covered: tuple[str, ...]
    searched: tuple[str, ...]
    compilers: tuple[str, ...]

    @classmethod
    def of(cls, key: Key, toolchain: Toolchain) -> SystemFolders:
        spec = key.variant.spec
        own = (*spec.extra_include_paths, *key.anchors.projects, str(kjit_include()))
        covered = (str(tvm_ffi_include()), *_cuda_folders(toolchain))
        searched = [folder for folder in searched_folders(toolchain, spec) if folder not in _SHARED_BY_ALL]
        compilers = (str(path.parent.parent) for path in (toolchain.cxx.path, toolchain.cxx.path.resolve()))
        return cls(*map(_with_slash, (own, covered, searched, compilers)))

    def have(self, path: str) -> bool:
        """Whether the header at `path` belongs to one of them."""
        if _innermost(path, self.covered) > _innermost(path, self.own):
            return True
        named = _innermost(path, (*self.own, *self.searched))
        if named and named >= _innermost(path, self.compilers):
            return False
        return _is_of_the_compiler(path)

    def name_of(self, path: str) -> str:
        """The name of such a header in an `#include`, after a slash."""
        for folder in self.covered:
            if path.startswith(folder):
                return path[len(folder) - 1 :]
        found = _SEARCHED_BY_COMPILER.match(path)
        return path if found is None else path[found.end() - 1 :]


def _with_slash(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{folder}/" for folder in folders)


def _innermost(path: str, folders: Iterable[str]) -> int:
    """The length of the longest of these folders that contains `path`; 0 for none."""
    return max((len(folder) for folder in folders if path.startswith(folder)), default=0)


def _is_of_the_compiler(path: str) -> bool:
    packages = _OF_ALL_PACKAGES.match(path)
    if packages is not None:
        return _OF_THE_C_LIBRARY.fullmatch(path, packages.end()) is not None
    return _OF_THE_COMPILER.fullmatch(path) is not None


def searched_folders(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The folders that flags and the environment add to the compilers' search."""
    environment = toolchain.environment()
    lists = [environment.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")]
    folders = [folder for text in lists for folder in text.split(os.pathsep)]
    folders += include_folders(spec.extra_cflags)
    folders += include_folders([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()], "nvcc")
    return [straight(folder) for folder in folders if os.path.isabs(folder)]


def _cuda_folders(toolchain: Toolchain) -> Iterator[str]:
    """The folders of CUDA's headers, deepest first, without those that also have headers of other packages."""
    folders: set[Path] = set()
    if toolchain.cuda_headers is not None:
        folders.update(toolchain.cuda_headers.include_dirs)
    elif toolchain.cuda is not None:
        folders.update(toolchain.cuda.include_dirs)
        for home in (toolchain.cuda.home, toolchain.cuda.home.resolve()):
            folders.update([home / "include", *home.glob("targets/*/include")])
    # nvcc names them with links resolved.
    folders.update([folder.resolve() for folder in folders])
    alone = (str(folder) for folder in folders if not _is_shared(folder.parent))
    yield from sorted(alone, key=len, reverse=True)


def _is_shared(home: Path) -> bool:
    """Whether this folder is an installation prefix of many packages, whose headers share its `include`."""
    return str(home) in ("/usr", "/usr/local") or (home / "conda-meta").is_dir()
