"""The rule for which compiler gets a CUDA unit: NVRTC those of kjit's own kind, nvcc all others.

A unit is of kjit's own kind if what its own files include is kjit's, CUDA's, or one of `HEADERS`: the headers of the C
and C++ libraries for which tests compare both compilers. It must not use what NVRTC lacks (`lacking`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from kjit.cpp_text import PROSE, pieces

_OF_C = (
    "assert.h ctype.h errno.h float.h inttypes.h limits.h math.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h "
    "cassert cctype cerrno cfloat cinttypes climits cmath cstddef cstdint cstdio cstdlib cstring"
)
_OF_CXX = (
    "algorithm array bit compare concepts functional initializer_list limits new numbers numeric optional "
    "source_location span tuple type_traits utility"
)
HEADERS = frozenset((*_OF_C.split(), *_OF_CXX.split()))
"""The headers of the C and C++ libraries that a unit of kjit's own kind may include."""

FOREIGN = "it includes <{}>, which is neither kjit's nor CUDA's, nor a header known to mean the same by NVRTC"

ONLY_NVCC = "for nvcc: "
"""The beginning of the reason for which the programs of a build refuse a unit."""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)

# Keywords and builtins of GCC that NVRTC does not have, or answers differently.
_OF_GCC = (
    *(f"__builtin_{name}" for name in ("constant_p", "choose_expr", "types_compatible_p", "object_size")),
    *(
        "__builtin_nans[fl]?",
        "__builtin_classify_type",
        r"__builtin_shuffle\w*",
        "__builtin_convertvector",
        "__auto_type",
        "__label__",
    ),
    *("(?:__)?vector_size(?:__)?", "__ext_vector_type__", "_Complex", "__complex__", "__real__", "__imag__"),
    *(r"_Float(?:16|32|64|128)x?", "__bf16", "__fp16"),
)
# Builtins of GCC that nvcc, but not NVRTC, evaluates at compile time.
_FOLDED = (
    r"__builtin_(?:w?mem(?:cmp|chr)|char_memchr|(?:str|wcs)(?:len|n?cmp|chr)|l{0,2}abs|(?:fabs|copysign|signbit)[fl]?"
    r"|isnormal)"
)
# What only nvcc supports, or means something else by NVRTC, with the end of a sentence.
_LACKING = tuple(
    (re.compile(pattern, re.MULTILINE), reason)
    for pattern, reason in (
        (
            r"\bcuda(?:Memcpy(?:To|From)Symbol\w*|GetSymbol(?:Address|Size))(?=\s*[<(])",
            "only nvcc registers the symbols that {} takes",
        ),
        (
            rf"\b(?:{'|'.join(_OF_GCC)})\b",
            "NVRTC does not know {}",
        ),
        (rf"\b{_FOLDED}\b", "NVRTC does not evaluate {} at compile time"),
        (r"\[\[\s*(?:gnu|__gnu__|using\s+gnu)\b", "NVRTC does not know attributes of GCC's in brackets"),
        # (`f({1, 2})` has an argument in braces.)
        (
            r"\((?:(?<![\w\])}>]\()\s*\{|\s*\{[^{}]*;)",
            "NVRTC does not know GCC's statements in expressions",
        ),
        (r"\?\s*:(?!:)", "NVRTC does not know GCC's ?: without a middle"),
        (r"\bcase\b[^:;{}\n]*\.\.\.", "NVRTC does not know GCC's ranges of cases"),
    )
)


def foreign_in(paths: Iterable[str], folders: Sequence[str], search: Sequence[str]) -> str:
    """The first header named by sources, or by headers of their project, with which a unit is not of kjit's own kind;
    empty if there is none.

    Args:
        folders: the folders of kjit's and CUDA's headers.
        search: the folders of the op's own headers.
    """
    waiting, seen = list(paths), set(paths)
    while waiting:
        path = waiting.pop()
        try:
            with open(path, "rb") as file:
                found = _INCLUDE.findall(file.read())
        except OSError:
            continue  # the preprocessor reports it
        for angled, quoted in found:
            name = os.fsdecode(angled or quoted)
            places = [*([os.path.dirname(path)] if quoted else []), *search]
            own = next(filter(os.path.isfile, (os.path.join(place, name) for place in places)), None)
            if own is None:
                if name not in HEADERS and not any(os.path.isfile(os.path.join(folder, name)) for folder in folders):
                    return name
            elif own not in seen:
                seen.add(own)
                waiting.append(own)
    return ""


def foreign(unit: str, folders: Sequence[str]) -> str:
    """The first header included by a unit's own files with which it is not of kjit's own kind; empty if there is none.

    Args:
        unit: preprocessed.
        folders: the folders of kjit's and CUDA's headers.
    """
    is_own = [True]  # of each file that has been entered
    before = ""
    for piece in pieces(unit):
        if "1" in piece.flags:
            # What `-include` names is included by no file.
            is_of_command = before.startswith("<")
            is_known = not piece.is_system or piece.file.startswith(tuple(folders)) or name_of(piece.file) in HEADERS
            if is_own[-1] and not is_of_command and not is_known:
                return name_of(piece.file)
            is_own.append(is_own[-1] and not piece.is_system and not is_of_command)
        elif "2" in piece.flags and len(is_own) > 1:
            is_own.pop()
        before = piece.file
    return ""


def name_of(file: str) -> str:
    """The name by which a header of the C or C++ library is included."""
    return re.sub(r"^.*/(?:c\+\+/(?:v1|[\d.]+)|include(?:-fixed)?(?:/[\w.]+-linux-gnu)?)/", "", file, count=1)


def lacking(unit: str) -> str:
    """The first thing that a unit's own files use and NVRTC lacks, as the end of a sentence; empty if it lacks nothing.

    Args:
        unit: preprocessed.
    """
    own = _own_text(unit)
    for pattern, reason in _LACKING:
        if (match := pattern.search(own)) is not None:
            return reason.format(match[0].split("(")[0].strip())
    return ""


def _own_text(unit: str) -> str:
    """The code of a unit's own files, by the line markers, without literals."""
    texts = [
        unit[each.begin : each.end] for each in pieces(unit) if not each.is_system and each.file[:1] not in ("", "<")
    ]
    # Macros of system headers have been expanded to what is left out.
    return PROSE.sub(lambda match: match[0] if match["literal"] is None else '""', " _ ".join(texts))


def refusal(unit: str, folders: str) -> str:
    """Why nvcc compiles a preprocessed unit, as the end of a sentence; empty if NVRTC does.

    Args:
        folders: the folders of kjit's and CUDA's headers, separated by colons; empty if a unit may include any header.
    """
    if folders and (name := foreign(unit, folders.split(os.pathsep))):
        return FOREIGN.format(name)
    return lacking(unit)
