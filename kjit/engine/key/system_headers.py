"""The headers of a compiler, a toolkit or tvm-ffi.

They change only with versions that are part of every key, and so are not compared on each load. All others may be
edited or replaced: those of the project, of other packages wherever they are installed, and of the C library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kjit.engine.key.flags import include_folders
from kjit.engine.key.key import Key
from kjit.engine.key.paths import collapse_slashes, projects_of
from kjit.engine.toolchain.compilers import Compiler, ask
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec

# Folders for headers of all packages of a distribution, for all architectures and for one.
_OF_ALL_PACKAGES = re.compile(r"/usr/(?:local/)?include(?:/\w+-linux-\w+)?")
_SEARCHED = re.compile(r"^ (/.*)$", re.MULTILINE)
_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


class SystemFolders(NamedTuple):
    """The folders of headers that come with a compiler, a toolkit or tvm-ffi, whose versions are part of the key.

    If one of these folders is inside another, the inner one decides: a project may be below a compiler's folder, and a
    compiler inside a project.

    Attributes:
        own: folders of the op, and those named by flags and variables: their headers are compared.
        covered: folders whose headers are not.
    """

    own: tuple[str, ...]
    covered: tuple[str, ...]

    @classmethod
    def of(cls, key: Key, toolchain: Toolchain) -> SystemFolders:
        spec = key.variant.spec
        covered = {str(tvm_ffi_include()), *_cuda_folders(toolchain), *_folders_of(toolchain.cxx)}
        named = [folder for folder in searched_folders(toolchain, spec) if folder not in covered]
        own = (*spec.extra_include_paths, *projects_of(spec), str(kjit_include()), *named)
        return cls(*(tuple({f"{os.path.realpath(folder)}/" for folder in folders}) for folders in (own, covered)))

    def have(self, path: str) -> bool:
        """Whether the header at `path` belongs to one of them."""
        return _innermost(path, self.covered) > _innermost(path, self.own)

    def name_of(self, path: str) -> str:
        """The name of such a header in an `#include`, after a slash."""
        return path[_innermost(path, self.covered) - 1 :]


def _innermost(path: str, folders: Iterable[str]) -> int:
    """The length of the longest of these folders that contains `path`; 0 for none."""
    return max((len(folder) for folder in folders if path.startswith(folder)), default=0)


def searched_folders(toolchain: Toolchain, spec: Spec) -> list[str]:
    """The folders that flags and the environment add to the compilers' search."""
    environment = toolchain.environment()
    folders = [folder for name in _VARIABLES for folder in environment.get(name, "").split(os.pathsep)]
    for words, dialect in toolchain.given(spec):
        folders += include_folders(words, dialect)
    return [collapse_slashes(folder) for folder in folders if os.path.isabs(folder)]


def _folders_of(cxx: Compiler) -> list[str]:
    """The folders that a C++ compiler searches by itself, except those that it shares with other packages; none for a
    script, which may name any."""
    if cxx.plan:
        return []

    def answer() -> list[str]:
        without = [word for name in _VARIABLES for word in ("-u", name)]
        command = [str(cxx.path), "-E", "-v", "-x", "c++", os.devnull, "-o", os.devnull]
        listed = ask(["env", *without, *command], stderr=True)
        return [os.path.normpath(folder) for folder in _SEARCHED.findall(listed.partition("<...>")[2])]

    elsewhere = {name: os.environ.get(name) for name in ("COMPILER_PATH", "GCC_EXEC_PREFIX")}
    folders = open_memo().recall((str(cxx.path), cxx.size, cxx.mtime_ns), f"searched folders {elsewhere}", answer)
    return [folder for folder in folders if not _is_shared(Path(folder))]


def _cuda_folders(toolchain: Toolchain) -> Iterator[str]:
    """The folders of CUDA's headers, without those that also have headers of other packages."""
    folders = set(toolchain.gpu_include_dirs)
    if toolchain.cuda is not None:
        for home in (toolchain.cuda.home, toolchain.cuda.home.resolve()):
            folders.update([home / "include", *home.glob("targets/*/include")])
    # nvcc names them with links resolved.
    folders.update([folder.resolve() for folder in folders])
    yield from (str(folder) for folder in folders if not _is_shared(folder))


def _is_shared(folder: Path) -> bool:
    """Whether the headers of many packages are in this folder: a distribution's, or an environment's."""
    return _OF_ALL_PACKAGES.fullmatch(str(folder)) is not None or (folder.parent / "conda-meta").is_dir()
