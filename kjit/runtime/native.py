"""Which of the functions that kjit generates does the interpreter run in C++ now?

There are two kinds: an op's (`op_call.py`) and a declared module's (`declared.py`). Each is whole in Python. Every
function of Python says how it is called (PEP 590), and what was compiled (`eager_calls.py`) does for plain tensors what
the function would do, and calls it for all else. What it has to know of a function is in the `__dict__` of that: the
C++ keeps nothing, so that functions come and go as any others do.

Python 3.11 does not ask its functions. There an op's asks the C++ by itself, by its variable `_kjit_direct`, and a
declared module's stays in Python. (Where C calls them, as `map` does, 3.11 asks, too.)
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Protocol

# What a parameter is; the C++ has the same numbers. POSITIONAL is found here.
POSITIONAL, TENSOR, OPTIONAL, WRITTEN, TYPED = 1, 2, 4, 8, 16

_ROAD = "_kjit_road"
_TABLE = "_kjit_table"
_ASKS_BY_ITSELF = sys.version_info[:2] == (3, 11)


class Native(Protocol):
    """What is compiled."""

    def take_over(self, call: FunctionType, /) -> bool:
        """Run a generated function in C++ from now on; False where that cannot be, as it has too many parameters."""

    def give_back(self, call: FunctionType, /) -> None:
        """Run it in Python again."""

    def direct(self, road: object, /) -> Callable[..., object]:
        """What calls the kernel's function of an op, and returns NotImplemented where PyTorch has to see the call."""


# All that were generated. (A list: to go through it is one step for other threads.)
_calls: list[weakref.ref[FunctionType]] = []
_native: Native | None = None


def add_op(call: FunctionType, function: Callable[..., object], kinds: Mapping[str, int]) -> None:
    """Have an op's function run in C++ as soon as there is that.

    Args:
        call: what is generated.
        function: what calls the kernel, with the same parameters.
        kinds: of each parameter that is a tensor: TENSOR, or'ed with OPTIONAL (it may be None), WRITTEN.
    """
    _add(call, _ROAD, function, kinds)


def add_declared(call: FunctionType, modules: Mapping[int, object], kinds: Mapping[str, int]) -> None:
    """Have a declared module's function run in C++ as soon as there is that.

    Args:
        call: what is generated; its last parameter is the device.
        modules: by the index of a tensor's device, then by the values of the other parameters: by the value itself
            where there is one parameter that is not TYPED, otherwise by a tuple.
        kinds: TYPED, for each parameter whose type belongs to the key too, behind its value.
    """
    _add(call, _TABLE, modules, kinds)


def use(native: Native | None) -> None:
    """Have all generated functions run so, now and later; None: in Python."""
    global _native
    before, _native = _native, native
    for call in filter(None, [reference() for reference in list(_calls)]):
        if before is not None:
            before.give_back(call)
        _set(call, native)


def in_use() -> Native | None:
    """What all of them run by."""
    return _native


def cell_of(call: FunctionType, variable: str) -> CellType:
    """Where a generated function keeps one of its variables."""
    return dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True))[variable]


def _add(call: FunctionType, key: str, what: object, kinds: Mapping[str, int]) -> None:
    code = call.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = names[: code.co_argcount]
    flags = bytes(kinds.get(name, 0) | (POSITIONAL if name in positional else 0) for name in names)
    call.__dict__[key] = what, names, flags
    _calls.append(weakref.ref(call))
    _set(call, _native)


def _set(call: FunctionType, native: Native | None) -> None:
    is_native = native is not None and native.take_over(call)
    if _ASKS_BY_ITSELF and _ROAD in call.__dict__:
        direct = native.direct(call.__dict__[_ROAD]) if native is not None and is_native else None
        cell_of(call, "_kjit_direct").cell_contents = direct
