"""Functions called once per distinct arguments, from any number of threads, and under torch.compile.

`functools.cache` is not enough: two threads may call twice, `f(1)` and `f(x=1)` are two entries, `1` and `True` are
one, and Dynamo ignores it with a warning and traces into the function. Here arguments are normalised (defaults filled
in, types part of the key), and a lock per key makes the second thread wait for the first.

For Dynamo a call has two steps. The first, from arguments to the name of a slot, is marked like functions of
`torch.compiler.assume_constant_result`: Dynamo calls it while tracing (so the function itself runs untraced) and treats
the name as a constant. The second reads the slot, an attribute of an object in the program, so that Dynamo can guard
and use any result (a number, an object, a tensor).

The trade-off: nothing is ever evicted. A graph that was compiled before a `cache_clear()` keeps its result.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from kjit.runtime.declared import COMPOUND, typed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CachedFunction(Protocol[P, R_co]):
    """A function wrapped by `cache_once`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def cache_clear(self) -> None:
        """Forget all results. A call that is running still returns its result, which is not kept."""


def cache_once(fn: Callable[P, R]) -> CachedFunction[P, R]:
    """Call `fn` once per distinct arguments, and return that result from then on.

    - Thread-safe: while one thread calls `fn`, others with the same arguments wait for its result.
    - `f(1)`, `f(x=1)` and, where 1 is the default, `f()` are one call; `f(1)`, `f(True)` and `f(1.0)` are three.
    - An exception is not kept: the next call tries again.
    - Inside `torch.compile(fullgraph=True)` a call is a constant: no graph break, no warning.

    Args:
        fn: a function whose arguments can be hashed.

    Returns:
        The function, with a `cache_clear()`.
    """
    calls = _Calls(fn)
    results = calls.results

    def slot_of(*args: Any, **kwargs: Any) -> str:
        return calls.slot_of(args, kwargs)

    # As torch.compiler.assume_constant_result does; set directly, as importing torch for it would take a second.
    slot_of.__dict__["_dynamo_marked_constant"] = True

    @functools.wraps(fn)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, getattr(results, slot_of(*args, **kwargs)))

    def traced(*args: Any, **kwargs: Any) -> R:
        # A symbolic size of Dynamo becomes a constant of the graph, as when it is a key of a dict.
        constants = [operator.index(arg) if type(arg) is int else arg for arg in args]
        named = {name: operator.index(arg) if type(arg) is int else arg for name, arg in kwargs.items()}
        return cast(R, getattr(results, slot_of(*constants, **named)))

    # Dynamo traces this instead of `once`. A version without this attribute would trace `once`, and only reject
    # symbolic sizes.
    once.__dict__["_torchdynamo_inline"] = traced
    once.__dict__["cache_clear"] = calls.clear
    return cast(CachedFunction[P, R], once)


class _Results:
    """One attribute per result."""


class _Calls:
    """Finished calls: from arguments to the slot of the result."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.results = _Results()
        self.count = itertools.count()
        # By process, too: calls of other threads never end in a forked child, and are made again.
        self.running: dict[Hashable, threading.RLock] = {}
        # By two kinds of key: the arguments as written by callers, and their canonical form.
        self.slots: dict[Hashable, str] = {}
        # The same for positional arguments of simple types, without composing a key.
        self.simple: dict[Hashable, tuple[tuple[type, ...], str]] = {}

    def clear(self) -> None:
        # New dicts: a running call stores its slot's name into the old ones. Its result stays: its caller reads it.
        self.running, self.slots, self.simple = {}, {}, {}

    def slot_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        try:
            if not kwargs:
                known = self.simple.get(args)
                if known is not None and known[0] == (*map(type, args),):
                    return known[1]
            as_written = (*map(typed, args), *((name, typed(value)) for name, value in kwargs.items()))
            slot = self.slots.get(as_written)
        except TypeError as error:
            name = self.fn.__qualname__
            raise TypeError(f"{name} is called once per arguments, so these must be hashable: {error}") from None
        return slot if slot is not None else self._slot_of_new(as_written, args, kwargs)

    def _slot_of_new(self, as_written: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        canonical = (
            None,  # Sets this key apart from any `as_written`, which consists of pairs.
            *map(typed, bound.args),
            *sorted((name, typed(value)) for name, value in bound.kwargs.items()),
        )
        slots, simple = self.slots, self.simple
        # Reentrant, so that a function that calls itself with the same arguments overflows the stack, as without the
        # cache, instead of deadlocking.
        running = self.running.setdefault((os.getpid(), canonical), threading.RLock())
        with running:
            slot = slots.get(canonical)
            if slot is None:
                result = self.fn(*args, **kwargs)
                slot = f"result_{next(self.count)}"
                setattr(self.results, slot, result)
                slots[canonical] = slot
        slots[as_written] = slot
        if not kwargs and not any(isinstance(arg, COMPOUND) for arg in args):
            simple[args] = (*map(type, args),), slot
        return slot
