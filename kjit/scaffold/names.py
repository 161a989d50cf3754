"""Which names may an op and its parameters have?

One name becomes a Python module, function and parameter, a C++ struct, kernel and local variable, a test, a file and a
torch op. So it must be an identifier everywhere, and must not hide anything that the generated code itself uses. A name
is refused for one reason at a time, with a name that would do: renaming later touches four files, renaming now none.

The sets below are what the templates use; a test holds them against the templates' output, so that they cannot grow
apart. Names of Python builtins are refused too, though most would work: the code around them would be one edit away
from calling a tensor.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from dataclasses import dataclass

from kjit.errors import UsageError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_LENGTH = 40
"""A name is repeated many times: longer ones make lines that no formatter can break, and paths that are too long."""

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

LANGUAGE_WORDS = frozenset({"mut", "Optional"})
"""Words of the signature language that are keywords of neither Python nor C++."""

CPP_NAMES = _words(
    """
    aligned_head at blockDim blockIdx blocks compute_t device div_ceil first gpu gridDim head heads host i j kernel kjit
    launch matcher numel params pointers run scalar_t shape std threadIdx threads vectors warpSize

    LaunchKernel SymbolicDevice SymbolicShape SymbolicSize T TensorMatcher TensorView Ts U Widest kBlock kDLCPU kDLCUDA
    kParallel kUnroll kVec

    bf16_t fp16_t fp32_t fp8_e4m3_t fp8_e5m2_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    uintptr_t size_t KJIT_DEVICE

    errno math_errhandling stderr stdin stdout BUFSIZ EOF INFINITY MAXFLOAT NAN NFDBITS NULL NZERO
    """
)
"""What a kernel uses: local names, types, and the macros of the C library that are spelt like a name."""

WRAPPER_NAMES = _words("args dtype kjit module symbol torch CSRC DTYPES INCLUDE Path")
"""What a wrapper uses where an op's parameters are in scope."""

PYTHON_NAMES = WRAPPER_NAMES | _words(
    """
    actual add_outputs annotations benchmark bytes_moved calls changed check check_one cuda d device ends ensure_built
    error expect expected find_cuda function functools graph high info inputs itertools k later make make_inputs measure
    memory message n name needed needs_gpu offset offsets one_actual one_expected output outputs pathlib provider pytest
    pytorch reference result run runpy sets shape shifted size spec stream tensor triton typing value wide
    """
)
"""What a wrapper, a test or a benchmark uses where the op itself is in scope."""

PYTEST_FILES = frozenset({"conftest", "setup"})
"""Files that pytest and packaging tools take for theirs."""

_NUMBERED = re.compile(r"(?:matcher|member)\d+|dtype_\w+")
_MACRO_FAMILIES = re.compile(
    r"(?:M|FP|NV|STA|CUDA|CUDART|ADJ|MOD|CLOCK|KJIT|TVM|DLPACK|HUGE|NL|SEEK|FD|CHAR|U?INT\d*|U?INTMAX|U?INTPTR|U?LONG"
    r"|U?LLONG|U?SHRT|[SU]CHAR|WCHAR|WINT|PTRDIFF|SIZE|BC|XATTR|SIG|RENAME|PTHREAD|L|P|MB|MAX|MATH|EXIT|CHECK|BOOL|WORD"
    r"|TTY|TMP|TIMER|TIME|RAND|BIG|LITTLE|PDP|BYTE|FILENAME|FOPEN|CU)_\w+"
    r"|SNAN\w*|W[A-Z]{4,}|CUDARTAPI|(?:cuda|CUDA)[A-Z]\w*"
)
"""Macros of the C library, CUDA and kjit that a dimension could be named like."""

CPP_TYPES = _words(
    """
    AlignedVector DataType DebugInfo Device DeviceArray Error Export IntegerRange LaunchKernel Message Optional Options
    Panic PanicError RuntimeCheck RuntimeDeviceCheck SizeView StrideView StringView SymbolicDevice SymbolicDtype
    SymbolicShape SymbolicSize TensorMatcher TensorView
    """
)
"""Types of kjit's headers: an op whose C++ struct had such a name would hide it."""


@dataclass(frozen=True)
class Problem:
    """Why a name will not do, and what would."""

    reason: str
    hint: str


def check_op_name(name: str) -> None:
    """Refuse a name that no op can have.

    Raises:
        UsageError: with the reason, and a name that would do.
    """
    problem = op_problem(name)
    if problem is not None:
        raise UsageError(problem.reason, hint=problem.hint)


def op_problem(name: str) -> Problem | None:
    """What is wrong with `name` for an op, or None."""
    if "/" in name or "\\" in name or name in (".", ".."):
        return Problem(f"'{name}' is a path, and an op has a name.", _suggest(re.split(r"[/\\]", name)[-1]))
    problem = _spelling_problem(name, "an op")
    if problem is not None:
        return problem
    if name != name.lower():
        return Problem(f"'{name}' has capital letters, and the function of an op has none.", _suggest(_snake(name)))
    if name in PYTHON_NAMES or name in CPP_NAMES:
        return Problem(f"an op named '{name}' would hide a name that its own code uses.", _suggest(f"{name}_op"))
    if camel(name) in CPP_TYPES:
        return Problem(f"an op named '{name}' would hide {camel(name)} of kjit's C++ headers.", _suggest(f"{name}_op"))
    if name in PYTEST_FILES or name.startswith("test_"):
        return Problem(
            f"pytest would take '{name}' for something else than an op.", _suggest(f"{name.removeprefix('test_')}_op")
        )
    return None


def parameter_problem(name: str, *, dimension: bool = False) -> Problem | None:
    """What is wrong with `name` for a parameter, an output or a dimension, or None."""
    what = "a dimension" if dimension else "a parameter"
    problem = _spelling_problem(name, what)
    if problem is not None:
        return problem
    if not dimension and name != name.lower():
        return Problem(
            f"'{name}' has capital letters, which name dimensions and dtypes; a parameter has none.",
            _suggest(_snake(name)),
        )
    hidden = name in CPP_NAMES or name in WRAPPER_NAMES or _NUMBERED.fullmatch(name)
    if hidden or (dimension and _MACRO_FAMILIES.fullmatch(name)):
        suggestion = f"{name.lower()}_size" if dimension else f"{name}_in"
        return Problem(f"{what} named '{name}' would hide a name that the op's code uses.", _suggest(suggestion))
    return None


def camel(name: str) -> str:
    """The C++ type of an op: `rms_norm` is `RmsNorm`, `bump_` is `Bump`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def cpp_stem(name: str) -> str:
    """What the names of an op's C++ functions begin with: `bump_` is `bump`, as C++ keeps `bump__kernel` for itself."""
    return name.rstrip("_")


def _spelling_problem(name: str, what: str) -> Problem | None:
    """What keeps `name` from being an identifier that both languages leave to their users."""
    if not name:
        return Problem(f"the name of {what} is empty.", "write it like scale or rms_norm")
    if not name.isascii():
        letter = next(letter for letter in name if not letter.isascii())
        return Problem(
            f"'{name}' has the letter '{letter}': names are plain ASCII, for the sake of compilers and file systems.",
            _suggest(name),
        )
    if name[0].isdigit():
        return Problem(f"'{name}' starts with a digit, and an identifier cannot.", _suggest(name))
    if not name.isidentifier():
        letter = next(letter for letter in name if not (letter.isalnum() or letter == "_"))
        shown = "a space" if letter == " " else f"'{letter}'"
        return Problem(
            f"'{name}' has {shown} in it: a name is letters, digits and underscores.",
            _suggest(name),
        )
    if len(name) > MAX_LENGTH:
        return Problem(
            f"a name of {len(name)} letters is too long (at most {MAX_LENGTH}).", _suggest(name[:24].rstrip("_"))
        )
    if keyword.iskeyword(name):
        return Problem(f"'{name}' is a keyword of Python.", _suggest(f"{name}_op" if what == "an op" else f"{name}_in"))
    if name in CPP_KEYWORDS:
        return Problem(f"'{name}' is a keyword of C++.", _suggest(f"{name}_op" if what == "an op" else f"{name}_in"))
    if name in LANGUAGE_WORDS:
        return Problem(f"'{name}' is a word of the signature language.", _suggest(f"{name}_in"))
    if "__" in name:
        return Problem(f"'{name}' has two underscores in a row, which C++ keeps for itself.", _suggest(name))
    if name.startswith("_"):
        return Problem(f"'{name}' starts with an underscore, which marks what is private.", _suggest(name))
    if hasattr(builtins, name):
        return Problem(
            f"'{name}' is a builtin of Python, which the op would hide.",
            _suggest(f"{name}_op" if what == "an op" else f"{name}_in"),
        )
    return None


def _suggest(near: str) -> str:
    """A hint with the nearest name that would do."""
    ascii_only = unicodedata.normalize("NFKD", near).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", ascii_only.strip())
    name = re.sub(r"__+", "_", name).lstrip("_")
    if name[:1].isdigit():
        name = f"op_{name}"
    if not name or name[0] == "_" or keyword.iskeyword(name) or name in CPP_KEYWORDS or hasattr(builtins, name):
        name = f"{name.strip('_')}_op" if name.strip("_") else "my_op"
    return f"for example: {name[:MAX_LENGTH]}"


def _snake(name: str) -> str:
    """`RMSNorm` is `rms_norm`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()
