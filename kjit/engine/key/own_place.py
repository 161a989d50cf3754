"""Modules that depend on the folder of their project, and are valid only there.

Two copies of a project share artifacts, unless these contain its location. Some do:

- sources that use their own file name (`__FILE__`, `std::source_location`, `assert`);
- debug information, which names the sources; debuggers, profilers and the simulator show their contents;
- files, flags and variables that contain the absolute path of the project's folder: in a copy, they still mean the
  files of the original.

Such a module is used only where it was built. If sources are in several projects, each is checked. The check reads the
text and the flags, conservatively: a needless compile is better than a message about the files of another copy. kjit's
own headers are excluded, because they use only the last part of a file name, and so are headers of packages in an
environment.
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
# Flags of compilers, the assembler and ptxas that put paths of sources, or all flags, into the library.
_TRACES = re.compile(
    r"-g(?!0|no-|encode).*|-G|-lineinfo|--(?:debug|device-debug|gdwarf|gen-debug|generate-line-info)\b.*"
    r"|-fsanitize=.*|-frecord-(?:gcc-switches|command-line)"
)
_WORD = re.compile(r"[^\s,+^'\"]+")

_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_PACKAGES = ("site-packages", "dist-packages")


def own_places(key: Key, toolchain: Toolchain, own: Mapping[str, bytes], definitions: Definitions) -> Mapping[str, str]:
    """The anchors of the projects whose location matters for the module of `key`, each with the reason.

    Args:
        own: the contents of the op's files, by path, including options files and linker scripts.
        definitions: the macros in these, in all headers that were read, and in flags.
    """
    anchors = key.anchors
    homes = {anchors.relative(folder)[0]: folder for folder in anchors.projects}
    if key.variant.target.is_simulated or _leaves_traces(key, toolchain):
        return dict.fromkeys(homes, "it contains the paths of its sources, for debuggers or reports")
    places: dict[str, str] = {}
    asking = words(definitions.leading_to(_OWN_NAME))
    for path, text in own.items():
        anchor, inside = anchors.relative(path)
        if anchor in homes and anchor not in places and not _is_installed(path, homes[anchor]):
            found = asking.search(without_comments(text))
            if found is not None:
                shown = os.path.normpath(inside) if anchor == "project" else path
                places[anchor] = f"{shown} may use its own path ({os.fsdecode(found[0])})"
    for anchor, home in homes.items():
        # The project may be reached through a link.
        names = sorted({re.escape(os.fsencode(each)) for each in (home, os.path.realpath(home))})
        named = re.compile(rb"(?:%s)(?![\w.+-])" % b"|".join(names))
        for what, text in (*_words_that_stay(key, toolchain), *own.items()):
            if anchor not in places and named.search(text):
                places[anchor] = f"{what} names {home}"
    return places


def _is_installed(path: str, home: str) -> bool:
    """Whether a file in a project belongs to a package in an environment there."""
    folder = os.path.dirname(path)
    while len(folder) > len(home):
        if os.path.basename(folder) in _PACKAGES or _is_environment(folder):
            return True
        folder = os.path.dirname(folder)
    return False


@lru_cache(maxsize=1024)
def _is_environment(folder: str) -> bool:
    return has_any(folder, _ENVIRONMENT)


def _leaves_traces(key: Key, toolchain: Toolchain) -> bool:
    """Whether a flag puts paths of sources into the library: a flag of the op, of a variable, or in a script in place
    of the compiler."""
    spec = key.variant.spec
    for_nvcc = [*spec.extra_cuda_cflags, *toolchain.flags_from_environment()]
    texts = [flag.value for flag, _ in (*expand(spec.extra_cflags), *expand(for_nvcc, "nvcc"))]
    texts += [*toolchain.environment().values(), os.fsdecode(script_of(toolchain.cxx.path))]
    return any(_TRACES.fullmatch(word) for text in texts for word in _WORD.findall(text))


def _words_that_stay(key: Key, toolchain: Toolchain) -> Iterable[tuple[str, bytes]]:
    """The values in a key that contain no anchored path, and so are the same in every copy."""

    def hidden(path: str) -> str:
        return key.anchors.written(straight(path))

    spec = key.variant.spec
    flags = (*map_paths(spec.extra_cflags, hidden), *map_paths(spec.extra_cuda_cflags, hidden, "nvcc"))
    for word in (*flags, *map_paths(spec.extra_ldflags, hidden)):
        yield f"the flag {word}", os.fsencode(word)
    for name, value in toolchain.environment().items():
        yield name, os.fsencode(value)
    yield f"the script {toolchain.cxx.path}", script_of(toolchain.cxx.path)
