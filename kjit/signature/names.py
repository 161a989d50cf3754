"""Valid names for parameters, outputs and dimensions.

A name is an identifier in Python and in C++, and hides none that the generated code uses. The sets below are what the
templates use, which tests compare with generated code. Names of Python builtins are refused too, though most would
work: the code around them would be one edit away from calling a tensor.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kjit.spec import CPP_DTYPES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_PARAMETER_LENGTH = 28
"""Longer names appear several times in a line, and no formatter could break it."""

CPP_KEYWORDS = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """
)

VARIABLE = re.compile(r"[A-Z][0-9]?")
"""A dtype variable, such as `T`."""

LANGUAGE_WORDS = frozenset({"mut", "Optional"})
"""Keywords of the signature language only."""

CPP_NAMES = _words(
    """
    at blockDim blockIdx blocks compute_t cpu data_of device div_ceil element fill_pointers first gpu host i inverse_rms
    kjit launch leading left_half math maybe_unused numel params right_half row row_size row_total rsqrt run scalar_t
    shape sizes std summed term threadIdx threads widen

    LaunchKernel Optional SymbolicDevice SymbolicShape SymbolicSize StringView T TensorListView TensorMatcher TensorView
    U kBlock kDLCPU kDLCUDA kDevice kMaxTensors

    KJIT_EDITOR_CHECKS KJIT_MATH
    """
) | frozenset(CPP_DTYPES.values())
"""Names in kernels: local names, types, and macros."""

_PLAIN_MACROS = _words(
    "errno math_errhandling sched_priority stderr stdin stdout BUFSIZ EOF INFINITY MAXFLOAT NAN NFDBITS NULL NZERO"
)
"""Macros of the C library that someone may choose as a name."""

REFERENCE_NAMES = _words("halves inverse_rms mean_square stored summed")
"""Names in the `reference` of a test."""

WRAPPER_NAMES = _words("annotations args dtype kjit module self symbol torch CSRC DTYPES Exports INCLUDE Path Protocol")
"""Names in a wrapper where an op's parameters are in scope."""

PYTHON_NAMES = WRAPPER_NAMES | _words(
    """
    benchmark bytes_moved calls chosen device function functools inputs k make_inputs math measure name provider
    pytorch reference rows sets shape shape_for size triton value
    """
)
"""Names in a wrapper, a test or a benchmark where the op itself is in scope."""


HEADERS = Path(__file__).parent.parent / "include" / "kjit"


def types_in(headers: Iterable[Path]) -> frozenset[str]:
    """The types that headers define."""
    types = re.compile(r"^(?:class|struct|enum class|using) (?:alignas\(.*\) )?([A-Z][A-Za-z]+)\b", re.MULTILINE)
    return frozenset(name for header in headers for name in types.findall(header.read_text()))


@cache
def _pattern_names() -> frozenset[str]:
    """The functions and types of the headers of patterns."""
    headers = list((HEADERS / "patterns").glob("*.h"))
    return types_in(headers).union(header.stem for header in headers)


class Problem(NamedTuple):
    """A mistake in a part of a signature, and its remedy."""

    reason: str
    hint: str


def parameter_problem(name: str, *, dimension: bool = False) -> Problem | None:
    """The reason why `name` cannot be that of a parameter, an output or a dimension, or None."""
    reason = _why_no_parameter(name, dimension)
    if reason is None:
        return None
    near = nearest(name)
    short = near[: MAX_PARAMETER_LENGTH - 5].rstrip("_")
    candidates = [*([near.upper()] if dimension else []), near, short, f"{short}_in", f"in_{short}", "x"]
    return Problem(reason, f"for example: {next(c for c in candidates if _why_no_parameter(c, dimension) is None)}")


def is_used_in_code(name: str) -> bool:
    """Whether generated code uses that name where parameters are in scope."""
    names = CPP_NAMES | _PLAIN_MACROS | WRAPPER_NAMES | REFERENCE_NAMES
    return name in names or name in _pattern_names() or re.fullmatch(r"dtype_\w+", name) is not None


def free_name(name: str, taken: Collection[str], *, suffix: str = "") -> str:
    """A name like `name` that is not in `taken`: `x_in` with that suffix, else `x2`, `x3`, ..."""
    # One number more than there are names, so that one is free.
    numbers = [str(number) for number in range(2, len(taken) + 3)]
    endings = [*([suffix] if suffix else []), *numbers, "_in", "_b"]
    like = (f"{name[: MAX_PARAMETER_LENGTH - len(ending)].rstrip('_')}{ending}" for ending in endings)
    names = chain(like, ["other"], (f"x{number}" for number in numbers))
    return next(near for near in names if near not in taken and parameter_problem(near) is None)


def _why_no_parameter(name: str, dimension: bool) -> str | None:
    what = "a dimension" if dimension else "a parameter"
    reason = why_no_identifier(name, what, MAX_PARAMETER_LENGTH)
    if reason is not None:
        return reason
    if not dimension and name != name.lower():
        return f"'{name}' has capital letters, which name dimensions and dtypes; a parameter has none."
    if is_used_in_code(name):
        return f"{what} named '{name}' would hide a name that the op's code uses."
    return None


def why_no_identifier(name: str, what: str, longest: int) -> str | None:
    """The reason why `name` is not an identifier for users in both languages, or None."""
    shown = quoted(name)
    if not name:
        return f"the name of {what} is empty."
    if not name.isascii():
        letter = next(letter for letter in name if not letter.isascii())
        return f"{shown} has the letter '{letter}': compilers and file systems agree on plain ASCII only."
    if name[0].isdigit():
        return f"{shown} starts with a digit, and an identifier cannot."
    if not name.isidentifier():
        letter = next(letter for letter in name if not (letter.isalnum() or letter == "_"))
        strange = "a space" if letter == " " else quoted(letter)
        return f"{shown} has {strange} in it: a name is letters, digits and underscores."
    if len(name) > longest:
        return f"{shown} has {len(name)} characters; the name of {what} may have at most {longest}."
    words = {"Python": keyword.kwlist, "C++": CPP_KEYWORDS, "the signature language": LANGUAGE_WORDS}
    for language, keywords in words.items():
        if name in keywords:
            return f"{shown} is a keyword of {language}."
    if "__" in name:
        return f"{shown} has two underscores in a row, which C++ reserves."
    if name.startswith("_"):
        return f"{shown} starts with an underscore, which marks private names."
    if hasattr(builtins, name):
        return f"{shown} is a builtin of Python, which it would hide."
    return None


def nearest(name: str) -> str:
    """`name` in plain lower case with underscores: `RMSNorm` is `rms_norm`, `été 2` is `ete_2`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().strip()
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain)
    joined = re.sub(r"[\W_]+", "_", spaced).lower().lstrip("_")
    return f"op_{joined}" if joined[:1].isdigit() else joined


def quoted(text: str) -> str:
    """`text` in single quotes, or in double quotes if it has a single one."""
    return f'"{text}"' if "'" in text else f"'{text}'"
