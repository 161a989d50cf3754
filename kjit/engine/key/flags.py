"""Files, folders and macros in compiler flags (toolchain/options.py)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from kjit.engine.toolchain.options import Dialect as Dialect
from kjit.engine.toolchain.options import expand as expand
from kjit.engine.toolchain.options import parse as parse
from kjit.engine.toolchain.options import words_of_file


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


def without_folders(words: Iterable[str], dialect: Dialect = "c++") -> list[str]:
    """`words` without the flags that only add folders to search."""
    kept: list[str] = []
    for flag in parse(words, dialect):
        if flag.meaning in ("headers", "libraries"):
            continue
        if flag.meaning == "list":
            listed = flag.listed()
            others = without_folders(listed)
            if not others:
                continue
            if others != listed:  # else it is unchanged, including its quotes
                flag = flag._replace(value=",".join(re.sub(r"([\\,])", r"\\\1", word) for word in others))
        kept += flag.words()
    return kept


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
