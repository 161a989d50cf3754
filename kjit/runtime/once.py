"""Functions called once per distinct arguments, from any number of threads, and under torch.compile.

`functools.cache` comes close and is not enough: two threads may call twice, `f(1)` and `f(x=1)` are two entries, `1`
and `True` are one, and Dynamo ignores it with a warning and traces into the function. Here the arguments are brought
into one form (defaults filled in, types part of the key) and a lock per key makes the second thread wait for the first.

For Dynamo a call has two steps that it understands. The first, from arguments to the name of a slot, carries the mark
of `torch.compiler.assume_constant_result`: Dynamo calls it while tracing (so the function itself runs then, untraced)
and takes the name as a constant. The second reads the slot, an attribute with a place in the program, so that whatever
the result is (a number, an object, a tensor) Dynamo knows how to guard it and how to use it.

The trade-off: nothing is ever evicted. A graph that was compiled before a `cache_clear()` keeps the result that it has.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from kjit.runtime.native import COMPOUND, typed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CachedFunction(Protocol[P, R_co]):
    """A function that `cache_once` has wrapped."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def cache_clear(self) -> None:
        """Forget every result. A call that runs at this moment still returns its own, which is not kept."""


def cache_once(fn: Callable[P, R]) -> CachedFunction[P, R]:
    """Call `fn` once per distinct arguments and return that result ever after.

    - Thread-safe: while one thread calls `fn`, others that ask for the same arguments wait for its result.
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

    # What torch.compiler.assume_constant_result does; set by hand because importing torch for it would cost a second.
    slot_of.__dict__["_dynamo_marked_constant"] = True

    @functools.wraps(fn)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, getattr(results, slot_of(*args, **kwargs)))

    def traced(*args: Any, **kwargs: Any) -> R:
        # A size that Dynamo holds symbolic becomes a constant of this graph, as it does where it selects from a dict.
        constants = [operator.index(arg) if type(arg) is int else arg for arg in args]
        named = {name: operator.index(arg) if type(arg) is int else arg for name, arg in kwargs.items()}
        return cast(R, getattr(results, slot_of(*constants, **named)))

    # Dynamo traces this in place of `once`. One that did not know the attribute would trace `once` and refuse
    # symbolic sizes only.
    once.__dict__["_torchdynamo_inline"] = traced
    once.__dict__["cache_clear"] = calls.clear
    return cast(CachedFunction[P, R], once)


class _Results:
    """One attribute a result."""


class _Calls:
    """The calls that were made: from arguments to the slot that holds the result."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.results = _Results()
        self.count = 0
        self.lock = threading.Lock()
        self.running: dict[Hashable, threading.RLock] = {}
        # Two kinds of key: the arguments as a caller wrote them, and their one canonical form.
        self.slots: dict[Hashable, str] = {}
        # The same for positional arguments of simple types, with the types to compare: no key has to be made.
        self.simple: dict[Hashable, tuple[tuple[type, ...], str]] = {}
        _every.add(self)

    def renew_locks(self) -> None:
        """In a forked child: calls that other threads were in have no end there. Whoever asks for one calls anew."""
        self.lock = threading.Lock()
        self.running = {}

    def clear(self) -> None:
        with self.lock:
            # New dicts: a call that runs now stores its slot's name into the old ones. Its result stays where it is, so
            # that the caller who is about to read it can.
            self.running = {}
            self.slots = {}
            self.simple = {}

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
        with self.lock:
            slots, simple = self.slots, self.simple
            # Reentrant, so that a function that calls itself with its own arguments overflows the stack, as it would
            # without the cache, and does not hang.
            running = self.running.setdefault(canonical, threading.RLock())
        with running:
            slot = slots.get(canonical)
            if slot is None:
                result = self.fn(*args, **kwargs)
                with self.lock:
                    slot = f"result_{self.count}"
                    self.count += 1
                setattr(self.results, slot, result)
                slots[canonical] = slot
        slots[as_written] = slot
        if not kwargs and not any(isinstance(arg, COMPOUND) for arg in args):
            simple[args] = (*map(type, args),), slot
        return slot


_every: weakref.WeakSet[_Calls] = weakref.WeakSet()


def _renew_locks_in_child() -> None:
    for calls in _every:
        calls.renew_locks()


os.register_at_fork(after_in_child=_renew_locks_in_child)
