"""Files, folders and macros in compiler flags (toolchain/options.py).

In a key, folders to search and files to read are relative to folders that may move: their contents affect the build, their location
does not. All other words are unchanged, so that `-Wl,-rpath,/lib` and `-DDATA="/data"`, which end up in the library,
keep their paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from kjit.engine.toolchain.options import Dialect as Dialect
from kjit.engine.toolchain.options import Meaning, words_of_file
from kjit.engine.toolchain.options import expand as expand
from kjit.engine.toolchain.options import parse as parse


def include_folders(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[str]:
    """The folders that flags add to the search for headers."""
    prefix = ""
    for flag, whose in expand(words, dialect):
        if flag.meaning == "headers":
            yield from flag.values(whose)
        elif flag.meaning == "prefix":
            prefix = flag.value
        elif flag.meaning == "suffix":
            yield f"{prefix}{flag.value}"


def files_of_options(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[str]:
    """The options files named by flags, directly or in another options file."""
    for flag, whose in expand(words, dialect):
        if flag.meaning == "options":
            yield from flag.values(whose)


def map_paths(words: Iterable[str], change: Callable[[str], str], dialect: Dialect = "c++") -> list[str]:
    """`words` with each searched folder and each compared file renamed."""
    return _map(words, change, dialect, ("headers", "libraries", "header", "options"))


def without_folders(words: Iterable[str], dialect: Dialect = "c++") -> list[str]:
    """`words` without the flags that only add folders to search."""
    return _map(words, lambda _: None, dialect, ("headers", "libraries"))


def _map(
    words: Iterable[str], change: Callable[[str], str | None], dialect: Dialect, meanings: tuple[Meaning, ...]
) -> list[str]:
    changed: list[str] = []
    for flag in parse(words, dialect):
        value: str | None = flag.value
        if flag.meaning in meanings:
            value = ",".join(new for new in map(change, flag.values(dialect)) if new is not None) or None
        elif flag.meaning == "list":
            listed = flag.listed()
            mapped = _map(listed, change, "c++", meanings)
            if mapped != listed:  # else it is unchanged, including its quotes
                value = ",".join(re.sub(r"([\\,])", r"\\\1", word) for word in mapped) or None
        if value is not None:
            changed += flag._replace(value=value).words()
    return changed


def for_host_compiler(words: Iterable[str], inside: tuple[str, ...] = ()) -> list[str]:
    """The nvcc flags of an op that apply to a C++ compiler as well: macros, folders, and values of -Xcompiler.

    All others are about machine code for a GPU.

    Args:
        inside: the files of options that name these words.
    """
    taken: list[str] = []
    for flag in parse(words, "nvcc"):
        if flag.meaning == "list":
            taken += flag.listed()
        elif flag.meaning == "options":
            for path in flag.values("nvcc"):
                if path not in inside:
                    taken += for_host_compiler(words_of_file(path), (*inside, path))
        elif flag.meaning in ("headers", "header", "macro"):
            name = flag.option("nvcc").names.split()[0]
            for value in flag.values("nvcc"):
                taken += [f"{name}{value}"] if flag.between == "" else [name, value]
        elif flag.meaning == "standard":
            taken.append(f"-std={flag.value}")
        elif not flag.name and (flag.value.startswith("-O") or flag.value == "-g"):
            taken.append(flag.value)
    return taken


def absolute_paths(words: Iterable[str], dialect: Dialect = "c++") -> list[str]:
    """Every absolute path in flags, in any role: `-fprofile-use=/a/b`, `-Wl,-T,/a/b`, `/a/lib.a`."""
    found: dict[str, None] = {}
    for flag, whose in expand(words, dialect):
        for value in flag.values(whose):
            found.update(dict.fromkeys(piece for piece in [value, *re.split("[@=,]", value)] if os.path.isabs(piece)))
    return list(found)
