"""Quoting of words for compilers, shells and ninja.

g++ and clang take every word literally, except a quote or a line break in the name of an include. nvcc does not: it
splits values at commas, removes backslashes, and passes the rest to a shell, mostly in double quotes, where `$` and
backticks are expanded. So it gets only plain names: of files in the build's folder, and of symbolic links to folders
whose names it would misread. Output shows the real names again. Macros are escaped. Other flags with characters that
the shell would expand are rejected, because nvcc quotes flags differently for each of its parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kjit.engine.key.flags import Dialect, Flag, parse
from kjit.errors import UsageError

PLAIN_FOR_CXX = re.compile(r'[^"\n]+')
"""The paths that g++ and clang accept: C++ cannot escape a quote in the name of an include."""

PLAIN_FOR_NVCC = re.compile(r"[\w./+-]+")
"""The paths that nvcc accepts, and writes unchanged in its list of dependencies."""

_INCLUDABLE = re.compile(r'[^"\\$\n]+')

# Characters that a shell expands in double quotes, and outside of them, as in the lists of flags for nvcc's parts.
_EXPANDED = re.compile(r"[$`]")
_EXPANDED_IN_LISTS = re.compile(r"[$`;&|<>()\n]|(?:^|[\s,])#")
_MISREAD_IN_NAMES = re.compile(r"[$`'\"\\]")
_MISREAD_IN_MACROS = re.compile(r"-[DU][^,\s]*['\"\\]")
_TO_ESCAPE = re.compile(r'[\\$`",]')
# For nvcc, which removes one backslash, and for the shell after it. nvcc itself escapes quotes for the shell.
_ESCAPED = {"\\": r"\\\\", "$": r"\\$", "`": r"\\`", '"': r"\"", ",": r"\,"}


@dataclass
class Links:
    """Links to folders whose names a compiler would misread: `kjit_link0` for `/home/me/it's mine`."""

    names: dict[str, str] = field(default_factory=dict)

    def folder(self, path: str, plain: re.Pattern[str]) -> str:
        """The folder `path`, or a link to it if a compiler would misread its name."""
        return path if plain.fullmatch(path) else self.names.setdefault(path, f"kjit_link{len(self.names)}")

    def source(self, path: str, plain: re.Pattern[str]) -> str:
        """The file `path`, as written in an #include."""
        folder, name = os.path.split(path)
        if _INCLUDABLE.fullmatch(name) is None:
            raise UsageError(f"C++ cannot include '{path}' because of characters in its name.", hint="rename it")
        return os.path.join(self.folder(folder, plain), name)

    def program(self, path: str) -> str:
        """The program `path`, as written in a flag of nvcc.

        Raises:
            UsageError: nvcc would misread the name of the file.
        """
        folder, name = os.path.split(path)
        if PLAIN_FOR_NVCC.fullmatch(name) is None:
            raise UsageError(
                f"nvcc cannot call '{path}' because of characters in its name.",
                hint="make a link with a plain name to it, and put that into CXX",
            )
        return os.path.join(self.folder(folder, PLAIN_FOR_NVCC), name)

    def flags(self, flags: Iterable[str], plain: re.Pattern[str], dialect: Dialect = "c++") -> list[str]:
        """`flags` with absolute paths, and for nvcc macros, rewritten so that the compiler reads them correctly."""
        changed: list[str] = []
        for flag in parse(flags, dialect):
            if dialect == "nvcc" and flag.name in ("-ccbin", "--compiler-bindir") and os.path.isabs(flag.value):
                value = self.program(flag.value)
            elif dialect == "nvcc" and flag.meaning == "macro":
                value = for_nvcc(flag.value)
            else:
                # A comma may also be part of a name.
                paths = [flag.value] if os.path.exists(flag.value) else flag.values(dialect)
                value = ",".join(self._path(path, plain) if os.path.isabs(path) else path for path in paths)
            changed += flag._replace(value=value).words()
        return changed

    def _path(self, path: str, plain: re.Pattern[str]) -> str:
        return self.folder(path, plain) if os.path.isdir(path) else self.source(path, plain)

    def restore(self, text: str) -> str:
        """`text` with real names instead of links."""
        for folder, link in self.names.items():
            text = re.sub(rf"(?<![\w./]){link}(?!\w)", lambda _: folder, text)  # noqa: B023 (used at once)
        return text


def for_nvcc(macro: str) -> str:
    """A macro and its value, escaped so that nvcc's parts get them unchanged."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], macro)


def refuse_misread(words: Iterable[str], where: str, *, are_escaped: bool = True) -> None:
    """Reject flags that nvcc's parts would not get unchanged.

    Args:
        where: the field, file or variable with these flags.
        are_escaped: whether kjit escapes their macros, which it cannot in a file or a variable.

    Raises:
        UsageError: a shell would expand or change part of a flag.
    """
    for flag in parse(words, "nvcc"):
        if (flag.meaning == "macro" and are_escaped) or (found := _misread(flag)) is None:
            continue
        text = " ".join(flag.words())
        if found == "-D":
            raise UsageError(
                f"'{text}' in {where} has a macro with quotes or backslashes, which nvcc's shell removes.",
                hint="define the macro with -D in extra_cuda_cflags, which arrives unchanged",
            )
        raise UsageError(
            f"'{text}' in {where} has a {found!r}, which nvcc's shell would interpret.",
            hint="define the macro with -D in extra_cuda_cflags, which arrives unchanged, or in a header"
            if flag.meaning in ("macro", "list")
            else "use a name without it",
        )


def _misread(flag: Flag) -> str | None:
    """The first part of a flag that nvcc's parts do not get unchanged; `-D` for a macro in a list; None if all is."""
    if flag.meaning == "macro":
        pattern = re.compile(r"[$`\\,]")
    elif flag.meaning == "list":
        if _MISREAD_IN_MACROS.search(flag.value) and _EXPANDED_IN_LISTS.search(flag.value) is None:
            return "-D"
        pattern = _EXPANDED_IN_LISTS
    elif flag.name.lstrip("-").startswith(("X", "ptxas", "nvlink", "fatbin", "cudafe")):
        pattern = _EXPANDED_IN_LISTS
    elif flag.meaning in ("headers", "header", "libraries", "options"):
        if os.path.isabs(flag.value):
            return None  # replaced by a link
        pattern = _MISREAD_IN_NAMES
    else:
        pattern = _EXPANDED
    match = pattern.search(flag.value)
    return match[0].strip(" ,") or match[0] if match else None
