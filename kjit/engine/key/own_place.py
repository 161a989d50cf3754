"""Modules that depend on the folder of their project, and are valid there only.

Two copies of a project share what they are built to, as long as neither says where it is. Some do:

- sources that ask for the name of the file they are in (`__FILE__`, `std::source_location`, an `assert`);
- debug information, which names the sources; a debugger, a profiler or the simulator shows what is in them;
- files, flags and variables that name the project's folder by an absolute path: a copy of the project means the first
  one's files by it.

Such a module is taken only where it was built. Where sources are in several projects, this is told for each of them. It
is read off the text, in the widest sense: a needless compile is better than a message about the files of another copy.
kjit's own headers show the last part of a name only, and do not count; nor do those of packages in an environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from kjit.engine.key.anchors import has_any, straight
from kjit.engine.key.flags import expand, map_paths
from kjit.engine.key.key import Key
from kjit.engine.key.macros import Definitions, without_comments, words
from kjit.engine.toolchain.compilers import script_of
from kjit.engine.toolchain.toolchain import Toolchain

_OWN_NAME = (b"__FILE__", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"source_location_t", b"file_name")
_DEBUG = re.compile(r"-g(?!0|no-|encode)\w*(?:-\w+)?|-ggdb.*|-gdwarf.*")
_DEBUG_OF_NVCC = ("-g", "--debug", "-G", "--device-debug", "-lineinfo", "--generate-line-info")


_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_PACKAGES = ("site-packages", "dist-packages")


def own_places(key: Key, toolchain: Toolchain, own: Mapping[str, bytes], definitions: Definitions) -> Mapping[str, str]:
    """The anchors of the projects whose place counts for the module of `key`, each with the reason.

    Args:
        own: the op's files as they were read, by path; files of options and scripts for the linker, too.
        definitions: the macros in these, in all headers that were read, and in flags.
    """
    anchors = key.anchors
    homes = {anchors.relative(folder)[0]: folder for folder in anchors.projects}
    if key.variant.target.is_simulated or _has_debug_information(key):
        return dict.fromkeys(homes, "it has debug information, which names the sources")
    places: dict[str, str] = {}
    asking = words(definitions.leading_to(_OWN_NAME))
    for path, text in own.items():
        anchor, inside = anchors.relative(path)
        if anchor in homes and anchor not in places and not _is_installed(path, homes[anchor]):
            found = asking.search(without_comments(text))
            if found is not None:
                shown = os.path.normpath(inside) if anchor == "project" else path
                places[anchor] = f"{shown} may tell its own path ({os.fsdecode(found[0])})"
    for anchor, home in homes.items():
        # The project may be reached through a link.
        names = sorted({re.escape(os.fsencode(each)) for each in (home, os.path.realpath(home))})
        named = re.compile(rb"(?:%s)(?![\w.+-])" % b"|".join(names))
        for what, text in (*_words_that_stay(key, toolchain), *own.items()):
            if anchor not in places and named.search(text):
                places[anchor] = f"{what} names {home}"
    return places


def _is_installed(path: str, home: str) -> bool:
    """Whether a file in a project is of a package that is installed in an environment there."""
    folder = os.path.dirname(path)
    while len(folder) > len(home):
        if os.path.basename(folder) in _PACKAGES or _is_environment(folder):
            return True
        folder = os.path.dirname(folder)
    return False


@lru_cache(maxsize=1024)
def _is_environment(folder: str) -> bool:
    return has_any(folder, _ENVIRONMENT)


def _has_debug_information(key: Key) -> bool:
    spec = key.variant.spec
    for flag, dialect in (*expand(spec.extra_cflags), *expand(spec.extra_cuda_cflags, "nvcc")):
        if flag.name:
            continue
        if flag.value in _DEBUG_OF_NVCC if dialect == "nvcc" else _DEBUG.fullmatch(flag.value):
            return True
    return False


def _words_that_stay(key: Key, toolchain: Toolchain) -> Iterable[tuple[str, bytes]]:
    """What is in a key as it is written, so that it is the same in a copy."""

    def hidden(path: str) -> str:
        return key.anchors.written(straight(path))

    spec = key.variant.spec
    flags = (*map_paths(spec.extra_cflags, hidden), *map_paths(spec.extra_cuda_cflags, hidden, "nvcc"))
    for word in (*flags, *map_paths(spec.extra_ldflags, hidden)):
        yield f"the flag {word}", os.fsencode(word)
    for name, value in toolchain.environment().items():
        yield name, os.fsencode(value)
    yield f"the script {toolchain.cxx.path}", script_of(toolchain.cxx.path)
