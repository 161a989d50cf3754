"""How is a Python value written as a C++ template argument?

One rule for every type: C++ must read back exactly the value that Python had. So a number past `int` carries the suffix
of its type, and a float is written in hexadecimal, which is exact and needs no rounding rule.

C++ converts between integer types in a template argument but never between floating types, so a Python `float`, which
is a double, fits a template parameter of type `double` or `auto` only. The trade-off: for a `float` parameter the
caller writes the literal, as a string (`"0.5f"`).
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping
from functools import lru_cache

CPP_DTYPES = {
    "float64": "double",
    "float32": "fp32_t",
    "float16": "fp16_t",
    "bfloat16": "bf16_t",
    "float8_e4m3fn": "fp8_e4m3_t",
    "float8_e5m2": "fp8_e5m2_t",
    "float8_e4m3fnuz": "fp8_e4m3fnuz_t",
    "float8_e5m2fnuz": "fp8_e5m2fnuz_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}
"""How dtypes of torch are called in kjit's C++ headers."""

_SUPPORTED = "bool, int (64 bits), float, str (a C++ token, as given) and the torch dtypes " + ", ".join(
    name for name in CPP_DTYPES
)


class CppArgs(tuple[str, ...]):
    """C++ template arguments, in order. `str(args)` joins them: `f"Scale<{args}>::run"`."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(self)


def make_cpp_args(*values: object) -> CppArgs:
    """Write Python values as C++ template arguments.

    | value | written as |
    |---|---|
    | `True` | `true` |
    | `-7`, `2**40`, `2**63` | `-7`, `1099511627776LL`, `9223372036854775808ULL` |
    | `-2**63` | `(-9223372036854775807LL - 1)` |
    | `0.1` | `0x1.999999999999ap-4` (a `double`, exact) |
    | `math.inf`, `math.nan` | `__builtin_inf()`, `__builtin_nan("")` |
    | `"kRow"` | `kRow` |
    | `torch.bfloat16` | `bf16_t` |

    Integers of numpy are taken as the `int` that they equal. nvcc (13.0) takes an infinity or a nan as the argument of
    a class or host function template, and not as a direct argument of a `__global__` function template.

    Returns:
        A tuple of strings whose `str()` is the list as C++ reads it.

    Raises:
        TypeError: a value that has no such form; the message names it and lists what has one.
    """
    return CppArgs(_write(value) for value in values)


def _write(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # for a string enumeration its value, whatever it prints
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return _write_int(int(value))
    if isinstance(value, float):
        return _write_float(value)
    name = _torch_dtypes().get(value) if _is_torch_dtype(value) else None
    if name is None:
        raise TypeError(f"{value!r} ({_type_name(value)}) cannot be a C++ template argument; supported: {_SUPPORTED}")
    return name


def _write_int(value: int) -> str:
    # C++ has no negative literals: -N is minus applied to N, so the lowest value of a type is an expression.
    if value == -(2**31):
        return "(-2147483647 - 1)"
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    if -(2**31) < value < 2**31:
        return str(value)
    if -(2**63) < value < 2**63:
        return f"{value}LL"
    if 2**63 <= value < 2**64:
        return f"{value}ULL"
    raise TypeError(f"{value} does not fit in 64 bits and cannot be a C++ template argument; supported: {_SUPPORTED}")


def _write_float(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return float(value).hex()


def _is_torch_dtype(value: object) -> bool:
    # Who holds a torch.dtype has imported torch; nobody else should pay for it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.dtype)


@lru_cache(maxsize=1)
def _torch_dtypes() -> Mapping[object, str]:
    torch = sys.modules["torch"]
    # An older torch lacks some of the names.
    return {getattr(torch, name): written for name, written in CPP_DTYPES.items() if hasattr(torch, name)}


def forget_dtypes() -> None:
    """What is called torch is no longer what it was."""
    _torch_dtypes.cache_clear()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
