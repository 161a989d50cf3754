"""Quoting of words for compilers, shells and ninja.

g++ and clang take every word as it is, but for a quote or a line break in the name of an include. nvcc does not: it
splits values at commas, takes backslashes away, and hands what is left to a shell, mostly in double quotes, where `$`
and a backtick are carried out. So it sees only plain names: of the files beside it, and of symbolic links for folders
that it would misread. Their real names are put back in everything that is reported. Macros are escaped. In any
other flag what the shell would carry out is refused: each of nvcc's parts gets it in another way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kjit.engine.key.flags import Dialect, Flag, parse
from kjit.errors import UsageError

PLAIN_FOR_CXX = re.compile(r'[^"\n]+')
"""What g++ and clang take as part of a path: C++ has no way to write a quote in the name of an include."""

PLAIN_FOR_NVCC = re.compile(r"[\w./+-]+")
"""As `PLAIN_FOR_CXX`; nvcc also writes some characters differently in its list of dependencies."""

_INCLUDABLE = re.compile(r'[^"\\$\n]+')

# What a shell carries out in double quotes, and what it does outside of them, where the lists of flags for nvcc's parts
# end up.
_CARRIED_OUT = re.compile(r"[$`]")
_CARRIED_OUT_IN_LISTS = re.compile(r"[$`;&|<>()\n]|(?:^|[\s,])#")
_MISREAD_IN_NAMES = re.compile(r"[$`'\"\\]")
_MISREAD_IN_MACROS = re.compile(r"-[DU][^,\s]*['\"\\]")
_TO_ESCAPE = re.compile(r'[\\$`",]')
# For nvcc, which takes one backslash away, and for the shell after it. nvcc escapes quotes for the shell itself.
_ESCAPED = {"\\": r"\\\\", "$": r"\\$", "`": r"\\`", '"': r"\"", ",": r"\,"}


@dataclass
class Links:
    """Stand-ins for folders whose names a compiler would misread: `kjit_link0` for `/home/me/it's mine`."""

    names: dict[str, str] = field(default_factory=dict)

    def folder(self, path: str, plain: re.Pattern[str]) -> str:
        """The folder `path` as a compiler can read it."""
        return path if plain.fullmatch(path) else self.names.setdefault(path, f"kjit_link{len(self.names)}")

    def source(self, path: str, plain: re.Pattern[str]) -> str:
        """The file `path` as it can stand in an #include."""
        folder, name = os.path.split(path)
        if _INCLUDABLE.fullmatch(name) is None:
            raise UsageError(f"'{path}' cannot be included in C++, for the characters in its name.", hint="rename it")
        return os.path.join(self.folder(folder, plain), name)

    def program(self, path: str) -> str:
        """The program `path` as nvcc can call it.

        Raises:
            UsageError: it cannot, for the characters in its name.
        """
        folder, name = os.path.split(path)
        if PLAIN_FOR_NVCC.fullmatch(name) is None:
            raise UsageError(
                f"nvcc cannot call '{path}', for the characters in its name.", hint="name it by a plain link in CXX"
            )
        return os.path.join(self.folder(folder, PLAIN_FOR_NVCC), name)

    def flags(self, flags: Iterable[str], plain: re.Pattern[str], dialect: Dialect = "c++") -> list[str]:
        """`flags` as a compiler can read them: every absolute path, and for nvcc every macro."""
        changed: list[str] = []
        for flag in parse(flags, dialect):
            if dialect == "nvcc" and flag.name in ("-ccbin", "--compiler-bindir") and os.path.isabs(flag.value):
                value = self.program(flag.value)
            elif dialect == "nvcc" and flag.meaning == "macro":
                value = for_nvcc(flag.value)
            else:
                # A comma may be part of a name, too.
                paths = [flag.value] if os.path.exists(flag.value) else flag.values(dialect)
                value = ",".join(self._path(path, plain) if os.path.isabs(path) else path for path in paths)
            changed += flag._replace(value=value).words()
        return changed

    def _path(self, path: str, plain: re.Pattern[str]) -> str:
        return self.folder(path, plain) if os.path.isdir(path) else self.source(path, plain)

    def restore(self, text: str) -> str:
        """`text` with the real names."""
        for folder, link in self.names.items():
            text = re.sub(rf"(?<![\w./]){link}(?!\w)", lambda _: folder, text)  # noqa: B023 (used at once)
        return text


def for_nvcc(macro: str) -> str:
    """A macro, with its value, so that it arrives at the parts of nvcc as it is written here."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], macro)


def refuse_misread(words: Iterable[str], where: str, *, are_escaped: bool = True) -> None:
    """Refuse what would not arrive at the parts of nvcc as it is written.

    Args:
        where: where these flags stand.
        are_escaped: whether kjit can escape their macros: not those in a file or in a variable.

    Raises:
        UsageError: a shell would carry out, or change, part of one.
    """
    for flag in parse(words, "nvcc"):
        if (flag.meaning == "macro" and are_escaped) or (found := _misread(flag)) is None:
            continue
        text = " ".join(flag.words())
        if found == "-D":
            raise UsageError(
                f"'{text}' in {where} has a macro with quotes or backslashes, which nvcc's shell takes away.",
                hint="give the macro to nvcc itself, by -D in extra_cuda_cflags: it hands it on as it is",
            )
        raise UsageError(
            f"'{text}' in {where} has a {found!r}, which the shell that nvcc starts would not leave as it is.",
            hint="define what needs it by -D in extra_cuda_cflags, whose values arrive as they are, or in a header"
            if flag.meaning in ("macro", "list")
            else "use a name without it",
        )


def _misread(flag: Flag) -> str | None:
    """The first part of a flag that nvcc's parts do not get as it is; `-D` for a macro in a list."""
    if flag.meaning == "macro":
        pattern = re.compile(r"[$`\\,]")
    elif flag.meaning == "list":
        if _MISREAD_IN_MACROS.search(flag.value) and _CARRIED_OUT_IN_LISTS.search(flag.value) is None:
            return "-D"
        pattern = _CARRIED_OUT_IN_LISTS
    elif flag.name.lstrip("-").startswith(("X", "ptxas", "nvlink", "fatbin", "cudafe")):
        pattern = _CARRIED_OUT_IN_LISTS
    elif flag.meaning in ("headers", "header", "libraries", "options"):
        if os.path.isabs(flag.value):
            return None  # links stand in for it
        pattern = _MISREAD_IN_NAMES
    else:
        pattern = _CARRIED_OUT
    match = pattern.search(flag.value)
    return match[0].strip(" ,") or match[0] if match else None
