"""Compiler flags, parsed: files, folders and macros in them.

The only module that depends on how g++, clang and nvcc spell options: a value in the same word (`-I/include`), in the
next one (`-I /include`) or after a `=` (`--include-directory=/include`), several values separated by commas (nvcc), a
list of flags for another compiler (`-Xcompiler`, `-Wp,`), a file of further options (`@file`, `-optf`).

In a key, folders to search and files to read are relative to anchors: their contents affect the build, their location
does not. All other words are unchanged, so that `-Wl,-rpath,/lib` and `-DDATA="/data"`, which end up in the library,
keep their paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

Dialect = Literal["c++", "nvcc"]
"""The program that reads the flags: g++ or clang, compiling or linking, or nvcc."""

Meaning = Literal[
    "headers",  # a folder to search for headers
    "prefix",  # the beginning of the folders of `suffix`
    "suffix",
    "libraries",  # a folder to search for libraries
    "library",
    "header",  # a file that is read before the source
    "options",  # a file of further options
    "list",  # flags for another compiler, in one value
    "word",  # one word for another program
    "macro",
    "value",  # something else
    "",  # a word that is not an option, or an option without a value
]

# Options of g++ and clang with a value in the same word or in the next one.
_JOINED_OR_NEXT: dict[str, Meaning] = {
    "-I": "headers",
    "-iquote": "headers",
    "-isystem": "headers",
    "-idirafter": "headers",
    "-cxx-isystem": "headers",
    "-iwithsysroot": "headers",
    "-iprefix": "prefix",
    "-iwithprefix": "suffix",
    "-iwithprefixbefore": "suffix",
    "-include": "header",
    "-imacros": "header",
    "-L": "libraries",
    "-l": "library",
    "-D": "macro",
    "-U": "macro",
    "-B": "value",
    "-T": "value",
    "-isysroot": "value",
    "-x": "value",
}
# Options of g++ and clang with a value after a `=` or in the next word.
_EQUALS_OR_NEXT: dict[str, Meaning] = {
    "--include-directory": "headers",
    "--include-directory-after": "headers",
    "--include-prefix": "prefix",
    "--include-with-prefix": "suffix",
    "--include-with-prefix-before": "suffix",
    "--include-with-prefix-after": "suffix",
    "--include": "header",
    "--imacros": "header",
    "--library-directory": "libraries",
    "--define-macro": "macro",
    "--undefine-macro": "macro",
    "--sysroot": "value",
    "--prefix": "value",
    "--config": "value",
}
_NEXT: dict[str, Meaning] = {
    "-Xpreprocessor": "word",
    "-Xclang": "word",
    "-Xlinker": "word",
    "-Xassembler": "word",
    "-include-pch": "header",
    "-ivfsoverlay": "value",
    "-aux-info": "value",
    "-o": "value",
}
_AFTER_COMMA: dict[str, Meaning] = {"-Wp": "list"}

# Options of nvcc: the value is in the next word or after a `=`, for some also in the same word.
_OF_NVCC: dict[str, Meaning] = {
    "-I": "headers",
    "--include-path": "headers",
    "-isystem": "headers",
    "--system-include": "headers",
    "-include": "header",
    "--pre-include": "header",
    "-L": "libraries",
    "--library-path": "libraries",
    "-l": "library",
    "--library": "library",
    "-D": "macro",
    "--define-macro": "macro",
    "-U": "macro",
    "--undefine-macro": "macro",
    "-Xcompiler": "list",
    "--compiler-options": "list",
    "-optf": "options",
    "--options-file": "options",
    "-Xlinker": "value",
    "--linker-options": "value",
    "-Xarchive": "value",
    "--archive-options": "value",
    "-Xptxas": "value",
    "--ptxas-options": "value",
    "-Xcudafe": "value",
    "--cudafe-options": "value",
    "-Xfatbin": "value",
    "--fatbin-options": "value",
    "-Xnvlink": "value",
    "--nvlink-options": "value",
    "-Xnvprune": "value",
    "--nvprune-options": "value",
    "-Xtileiras": "value",
    "--tileiras-options": "value",
    "-ccbin": "value",
    "--compiler-bindir": "value",
    "-gencode": "value",
    "--generate-code": "value",
    "-arch": "value",
    "--gpu-architecture": "value",
    "-code": "value",
    "--gpu-code": "value",
    "-rdc": "value",
    "--relocatable-device-code": "value",
    "-o": "value",
    "--output-file": "value",
    "-maxrregcount": "value",
    "--maxrregcount": "value",
    "-std": "value",
    "--std": "value",
    "-t": "value",
    "--threads": "value",
    "-x": "value",
    "--x": "value",
    "-diag-suppress": "value",
    "--diag-suppress": "value",
    "-diag-error": "value",
    "--diag-error": "value",
    "-diag-warn": "value",
    "--diag-warn": "value",
}
_JOINED_FOR_NVCC = ("-I", "-L", "-l", "-D", "-U")
# Options that begin like one of those.
_WORDS_OF_NVCC = ("-lineinfo", "-lto", "-link", "-lib", "-ltoir")
_WORDS_OF_CXX = re.compile(r"-I-|-B(?:static|dynamic|symbolic)|-T(?:text|data|bss)\b.*|-include-pch")

_MEANINGS: dict[str, Meaning] = {
    **_OF_NVCC,
    **_AFTER_COMMA,
    **_JOINED_OR_NEXT,
    **_EQUALS_OR_NEXT,
    **_NEXT,
    "@": "options",
}

_PASSED_ON = ("-Xpreprocessor", "-Xclang")
_FOR_HOST = {
    "--include-path": "-I",
    "--system-include": "-isystem",
    "--pre-include": "-include",
    "--define-macro": "-D",
    "--undefine-macro": "-U",
}
_WORD = r"""(?:\\.|'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|[^%s'"\\])+"""
_WORD_OF_FILE = re.compile(_WORD % r"\s", re.DOTALL)
_WORD_OF_LIST = re.compile(_WORD % r"\s,", re.DOTALL)
_QUOTED = re.compile(r"""\\(.)|'((?:\\.|[^'\\])*)'?|"((?:\\.|[^"\\])*)"?""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Flag(NamedTuple):
    """A flag with its value.

    Attributes:
        name: `-I`; empty for a word that is not a known option.
        value: of that option, or the whole word.
        between: the separator: empty, `=` or `,`; None if the value is a separate word.
    """

    name: str
    value: str
    between: str | None = ""

    @property
    def meaning(self) -> Meaning:
        return _MEANINGS.get(self.name, "")

    def words(self) -> tuple[str, ...]:
        """The flag as words of a command."""
        return (self.name, self.value) if self.between is None else (f"{self.name}{self.between}{self.value}",)

    def values(self, dialect: Dialect) -> list[str]:
        """Its folders or files: nvcc takes several, separated by commas."""
        return self.value.split(",") if dialect == "nvcc" and self.meaning in _SEVERAL else [self.value]


_SEVERAL = ("headers", "libraries", "header", "options")


def parse(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[Flag]:
    """The flags in a command's words; their words, joined, are `words` again."""
    rest = iter(words)
    split = _split_nvcc if dialect == "nvcc" else _split_cxx
    for word in rest:
        flag = split(word)
        if flag.between is None:
            following = next(rest, None)
            # The compiler reports a missing value.
            yield Flag("", word) if following is None else flag._replace(value=following)
        else:
            yield flag


def _split_cxx(word: str) -> Flag:
    """A flag; `between` is None if its value is the next word."""
    if word.startswith("@"):
        return Flag("@", word[1:])
    if word in _NEXT or word in _EQUALS_OR_NEXT or word in _JOINED_OR_NEXT:
        return Flag(word, "", None)
    name, equals, value = word.partition("=")
    if equals and name in _EQUALS_OR_NEXT:
        return Flag(name, value, "=")
    name, comma, value = word.partition(",")
    if comma and name in _AFTER_COMMA:
        return Flag(name, value, ",")
    if _WORDS_OF_CXX.fullmatch(word) is None:
        for name in _LONGEST_FIRST:
            if word.startswith(name):
                return Flag(name, word[len(name) :])
    return Flag("", word)


_LONGEST_FIRST = sorted(_JOINED_OR_NEXT, key=len, reverse=True)


def _split_nvcc(word: str) -> Flag:
    if word in _OF_NVCC:
        return Flag(word, "", None)
    name, equals, value = word.partition("=")
    if equals and name in _OF_NVCC:
        return Flag(name, value, "=")
    if not word.startswith(_WORDS_OF_NVCC):
        for name in _JOINED_FOR_NVCC:
            if word.startswith(name):
                return Flag(name, word[len(name) :])
    return Flag("", word)


def expand(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[tuple[Flag, Dialect]]:
    """All flags for a compiler and its subprograms: those from an options file follow the flag that names the file,
    those passed on to a subprogram follow the flag that passes them."""
    yield from _expand(words, dialect, ())


def _expand(words: Iterable[str], dialect: Dialect, inside: tuple[str, ...]) -> Iterator[tuple[Flag, Dialect]]:
    passed_on: list[str] = []
    for flag in parse(words, dialect):
        yield flag, dialect
        if flag.meaning == "list":
            yield from _expand(_listed(flag), "c++", inside)
        elif flag.name in _PASSED_ON:
            passed_on.append(flag.value)
        elif flag.meaning == "options":
            for path in flag.values(dialect):
                if path not in inside:
                    yield from _expand(words_of_file(path), dialect, (*inside, path))
    if passed_on:
        yield from _expand(passed_on, "c++", inside)


def words_of_file(path: str) -> list[str]:
    """The words in an options file; none if it cannot be read, which the compiler reports."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return _words(file.read(), _WORD_OF_FILE)
    except OSError:
        return []


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
            listed = _listed(flag)
            mapped = _map(listed, change, "c++", meanings)
            if mapped != listed:  # else it is unchanged, including its quotes
                value = ",".join(re.sub(r"([\\,])", r"\\\1", word) for word in mapped) or None
        if value is not None:
            changed += flag._replace(value=value).words()
    return changed


def _listed(flag: Flag) -> list[str]:
    """The flags in a list, separated by commas, and for nvcc, which starts a shell, by spaces too."""
    return flag.value.split(",") if flag.between == "," else _words(flag.value, _WORD_OF_LIST)


def _words(text: str, word: re.Pattern[str]) -> list[str]:
    """The words in a text, with quotes and backslashes."""

    def unquoted(match: re.Match[str]) -> str:
        return match[1] if match[1] is not None else _ESCAPED.sub(r"\1", match[2] if match[2] is not None else match[3])

    return [_QUOTED.sub(unquoted, each) for each in word.findall(text)]


def for_host_compiler(words: Iterable[str]) -> list[str]:
    """The nvcc flags of an op that apply to a C++ compiler as well: macros, folders, and values of -Xcompiler.

    All others are about machine code for a GPU.
    """
    return _for_host_compiler(words, ())


def _for_host_compiler(words: Iterable[str], inside: tuple[str, ...]) -> list[str]:
    taken: list[str] = []
    for flag in parse(words, "nvcc"):
        if flag.meaning == "list":
            taken += _listed(flag)
        elif flag.meaning == "options":
            for path in flag.values("nvcc"):
                if path not in inside:
                    taken += _for_host_compiler(words_of_file(path), (*inside, path))
        elif flag.meaning in ("headers", "header", "macro"):
            name = _FOR_HOST.get(flag.name, flag.name)
            for value in flag.values("nvcc"):
                taken += [f"{name}{value}"] if flag.between == "" else [name, value]
        elif flag.name in ("-std", "--std"):
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
