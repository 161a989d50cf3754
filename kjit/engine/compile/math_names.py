"""Other names, in a device half, for the math functions that NVRTC declares itself.

NVRTC's overloads of `pow`, `round` and the like differ from those of the C and C++ libraries, which nvcc uses: its
`pow(float, int)` is a float, it has no `round(int)`, and the library's are `constexpr`. So macros before the half give
all functions of these names another one, of the same length, with a dollar sign: the libraries' headers declare their
own overloads, and the C library's functions, which have no overloads, call NVRTC's. In messages, PTX and symbols the
names are what they were.
"""

from __future__ import annotations

import re

# The C library's functions, by result and parameters.
_SIGNATURES = {
    "double double": "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor lgamma log"
    " log10 log1p log2 logb nearbyint rint round sin sinh sqrt tan tanh tgamma trunc",
    "double double,double": "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder",
    "double double,double,double": "fma",
    "double double,double,int*": "remquo",
    "double double,double*": "modf",
    "double double,int": "ldexp scalbn",
    "double double,int*": "frexp",
    "double double,long": "scalbln",
    "int double": "ilogb",
    "int int": "abs",
    "long double": "lrint lround",
    "long long double": "llrint llround",
}
# Functions of the C library that GCC has as builtins too.
_OF_C = (
    "abort abs calloc exit index labs llabs malloc memchr memcmp memcpy memmove memset printf putchar puts realloc"
    " rindex snprintf sprintf strcat strchr strcmp strcpy strcspn strlen strncat strncmp strncpy strpbrk strrchr strspn"
    " strstr toupper vsnprintf wcslen wmemchr wmemcmp wmemcpy wmemmove wmemset"
)
# Those of the C++ library alone.
_OF_CXX = "isfinite isinf isnan signbit"

_NAMES = [*" ".join(_SIGNATURES.values()).split(), *_OF_CXX.split()]
_FOR_ALL = "__attribute__((host)) __attribute__((device))"


def _renamed(name: str) -> str:
    return f"{name[0]}${name[2:]}"


_ORIGINAL = {_renamed(name): name for name in _NAMES}
_RENAMED = re.compile("|".join(sorted(map(re.escape, _ORIGINAL), key=len, reverse=True)))
_IN_SYMBOL = re.compile(rf"(?<=[0-9])(?:{_RENAMED.pattern})".encode())
_BUILTIN = re.compile(
    rf"__attribute__\(\(device_builtin\)\)(?=\s+(?:double|int|long int|long long int)\s+(?:{'|'.join(_NAMES)})\s*\()"
)


def definitions() -> str:
    """The text before a device half: the C library's functions, the macros, and GCC's builtins for those functions."""
    lines = [f"#define __builtin_{name} ::{name}" for name in _OF_C.split()]
    for signature, names in _SIGNATURES.items():
        result, _, types = signature.rpartition(" ")
        parameters = ", ".join(f"{kind} x{index}" for index, kind in enumerate(types.split(",")))
        arguments = ", ".join(f"x{index}" for index, _ in enumerate(types.split(",")))
        head = f'extern "C" {_FOR_ALL} inline {result}'
        # Of double: the C++ library also calls them with integers.
        takes_one = re.fullmatch("double(,(int|int\\*|long))?", types) is not None
        cast = arguments.replace("x0", "static_cast<double>(x0)")
        for name in names.split():
            lines.append(f"{head} {_renamed(name)}({parameters}) noexcept {{ return {name}({arguments}); }}")
            if types.startswith("double"):
                lines.append(
                    f"#define __builtin_{name}" + (f"({arguments}) ::{name}({cast})" if takes_one else f" ::{name}")
                )
                # (kjit_rtc/device.h declares __builtin_fabsl, which is used before fabsl is declared.)
                lines += [f"#define __builtin_{name}{size} ::{name}{size}" for size in ("fl", "f")[name == "fabs"]]
    lines += [f"#define {name} {_renamed(name)}" for name in _NAMES]
    return "\n".join([*lines, ""])


def without_builtins(text: str) -> str:
    """CUDA's header of math functions, without the attribute that forbids NVRTC to use the definitions above."""
    return _BUILTIN.sub("", text)


def restored(text: str) -> str:
    """A message or PTX, with the unit's names."""
    return _RENAMED.sub(lambda match: _ORIGINAL[match[0]], text) if "$" in text else text


def restored_symbols(strings: bytes) -> bytes:
    """The mangled names in a table of strings, with the unit's names: as many bytes as before."""
    return _IN_SYMBOL.sub(lambda match: _ORIGINAL[match[0].decode()].encode(), strings)
