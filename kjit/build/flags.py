"""Which part of a compiler's flag is its name, and which its value?

g++, clang and nvcc take a folder in the same word (`-I/include`) or in the next one (`-I /include`), nvcc behind a `=`
too; nvcc's `-Xcompiler` holds a list of flags for another compiler. What of that matters here are folders to search and
libraries: where they lie is no part of what is built, and what lies in them is. All other words stay as they are, so
that `-Wl,-rpath,/lib` and `-DDATA="/data"`, which end up in the library, keep their paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_INCLUDE = ("-I", "-isystem", "-iquote", "-idirafter", "--include-path")
_SEARCH = (*_INCLUDE, "-L", "--library-path")
_LISTS = ("-Xcompiler", "--compiler-options")
_WITH_VALUE = (*_SEARCH, *_LISTS, "-l")
# Those of nvcc that are about machine code for a GPU.
_NVCC_WITH_VALUE = ("-gencode", "-arch", "-code", "-maxrregcount", "-t", "-ccbin")
# Their value is not in the same word without a `=`.
_LONG = (*_LISTS, "--include-path", "--library-path")


class Flag(NamedTuple):
    """A flag with its value.

    Attributes:
        name: `-I`; empty for a word that is none of the flags that are known here.
        value: of that flag, or the whole word.
        between: what joins the two, nothing or `=`; None where the value is a word of its own.
    """

    name: str
    value: str
    between: str | None = ""

    def words(self) -> tuple[str, ...]:
        """As it is handed to a compiler."""
        return (self.name, self.value) if self.between is None else (f"{self.name}{self.between}{self.value}",)


def parse(words: Iterable[str]) -> Iterator[Flag]:
    """The flags in a command's words; the words of all together are `words` again."""
    rest = iter(words)
    for word in rest:
        name = next((name for name in _WITH_VALUE if word.startswith(name)), "")
        value = word[len(name) :]
        if name and not value:
            following = next(rest, None)
            yield Flag("", word) if following is None else Flag(name, following, None)
        elif name and value.startswith("="):
            yield Flag(name, value[1:], "=")
        elif name in _LONG:
            yield Flag("", word)
        else:
            yield Flag(name, value)


def include_folders(words: Iterable[str]) -> Iterator[str]:
    """The folders in which flags have headers looked for."""
    for flag in parse(words):
        if flag.name in _INCLUDE:
            yield flag.value
        elif flag.name in _LISTS:
            yield from include_folders(_listed(flag.value))


def map_folders(words: Iterable[str], change: Callable[[str], str | None]) -> list[str]:
    """`words` with another name for each folder to search, or without the flag where `change` returns None."""
    changed: list[str] = []
    for flag in parse(words):
        value: str | None = flag.value
        if flag.name in _SEARCH:
            value = change(flag.value)
        elif flag.name in _LISTS:
            value = ",".join(map_folders(_listed(flag.value), change)) or None
        if value is not None:
            changed += flag._replace(value=value).words()
    return changed


def _listed(value: str) -> list[str]:
    """The flags in a value of `-Xcompiler`: nvcc takes commas between them, the shell that it starts spaces too."""
    return [word for word in re.split("[, ]", value) if word]


def for_host_compiler(flags: Iterable[str]) -> list[str]:
    """Those of an op's flags for nvcc that a C++ compiler takes as well: macros, folders, and what -Xcompiler is for.

    All others are about machine code for a GPU.
    """
    taken: list[str] = []
    values = iter(flags)
    for flag in values:
        name, _, value = flag.partition("=")
        if flag in ("-D", "-U", "-I", "-isystem", "-include"):
            taken += [flag, next(values, "")]
        elif name in _LISTS:
            taken += _listed(value or next(values, ""))
        elif name in ("--define-macro", "--undefine-macro", "--include-path", "--pre-include"):
            short = {"--define-macro": "-D", "--undefine-macro": "-U", "--include-path": "-I"}.get(name, "-include")
            taken += [short, value or next(values, "")]
        elif name.startswith("-X") or name in _NVCC_WITH_VALUE:
            _ = value or next(values, "")
        elif flag.startswith(("-D", "-U", "-I", "-O", "-isystem", "-std=")) or flag == "-g":
            taken.append(flag)
    return taken
