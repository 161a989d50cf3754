"""Errors about arguments that a kernel cannot use, found after a call has failed: successful calls have no overhead.

PyTorch and tvm-ffi convert the arguments of a kernel. If that fails, their error often has thirty lines of PyTorch's
own stack and does not name the argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from kjit.errors import KjitError

if TYPE_CHECKING:
    import torch

# Exceptions raised by conversions of tvm-ffi, PyTorch and NumPy.
_OF_CONVERSIONS = (ArithmeticError, AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError)


def explain(subject: str, arguments: Mapping[str, object]) -> None:
    """Raise a `KjitError` about the first argument that a kernel cannot use; return if it can use all of them.

    Args:
        subject: the called function, as the beginning of a sentence: "op 'scale'".
        arguments: by name; lists and tuples are searched.
    """
    for name, value in arguments.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        for index, each in enumerate(values):
            called = name if values is not value else f"{name}[{index}]"
            _explain_value(subject, f"'{called}'", called, each)


def named(
    function: Callable[..., object], args: tuple[object, ...], keywords: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call of a `jit` function by name, without the first one, the module."""
    import inspect

    _, *others = inspect.signature(function).bind(*args, **keywords).arguments.items()
    return dict(others)


def explain_call(subject: str, arguments: tuple[object, ...], take: Callable[[object], object]) -> None:
    """Raise a `KjitError` about the first argument that tvm-ffi cannot convert; return if it converts all of them.

    Args:
        subject: as for `explain`: "scale()".
        arguments: by position; lists, tuples and dicts are searched.
        take: a function of tvm-ffi that accepts any argument.
    """
    for index, argument in enumerate(arguments):
        for way, value in _parts(argument):
            try:
                take(value)
            except _OF_CONVERSIONS as reason:
                place = f"argument {index + 1} of {len(arguments)}"
                place = f"element {way} of {place}" if way else place
                _explain_value(subject, place, "tensor", value)
                _explain_other(subject, place, value, reason)


def _parts(value: object, way: str = "") -> Iterator[tuple[str, object]]:
    """The elements of a value with their subscripts, without those that a second conversion would change."""
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    elif type(value).__name__ == "ObjectRValueRef":  # of tvm-ffi: the first took the object away
        return
    else:
        yield way, value
        return
    for key, each in pairs:
        yield from _parts(each, f"{way}[{key!r}]")


def _explain_value(subject: str, place: str, called: str, value: object) -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if isinstance(value, torch.Tensor):
        _explain_tensor(subject, place, called, value)
    elif isinstance(value, torch.dtype):
        _explain_dtype(subject, place, value)


def _explain_tensor(subject: str, place: str, called: str, tensor: torch.Tensor) -> None:
    import torch

    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        _refuse(
            subject,
            f"{place}, which a transform of torch.func has made",
            "call it outside of the transform, or on what the transform returns",
        )
    layout, dense = str(tensor.layout).removeprefix("torch."), "to_dense()"
    if tensor.is_nested:
        layout, dense = "nested", "to_padded_tensor(0)"
    elif tensor.is_quantized:
        layout, dense = "quantized", "dequantize()"
    if layout != "strided":
        _refuse(
            subject, f"{place}, which is not a dense tensor ({layout})", f"{called}.{dense} makes a dense one of it"
        )
    if tensor.is_meta:
        _refuse(subject, f"{place}, which is on the meta device and has no data", "pass a tensor that has data")


def _explain_dtype(subject: str, place: str, dtype: torch.dtype) -> None:
    import tvm_ffi

    try:
        tvm_ffi.convert(dtype)
    except (KeyError, ValueError):
        _refuse(subject, f"{place}, as tvm-ffi has no dtype for {dtype}", _HINT_FOR_DTYPES)


_HINT_FOR_DTYPES = "pass a number or a string instead, which the kernel maps to the dtype"


def _explain_other(subject: str, place: str, value: object, reason: Exception) -> NoReturn:
    """Raise an error with the first line of the conversion's message: the rest is PyTorch's own stack."""
    sentence = str(reason).partition("\n")[0].rstrip(".")
    dtype = getattr(value, "dtype", None)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.dtype):
        _refuse(subject, f"{place}, as tvm-ffi has no dtype for {value!r}", _HINT_FOR_DTYPES)
    hint = "pass a tensor, a number, a string, or another type that tvm-ffi supports"
    if torch is not None and isinstance(value, torch.Tensor):
        hint = "pass a tensor that torch.from_dlpack takes"
        if isinstance(dtype, torch.dtype):
            hint = "tensor.view(torch.uint8) has the same bytes, if the kernel knows what they are"
    elif numpy is not None and isinstance(value, numpy.ndarray):
        hint = "numpy.require(array, array.dtype.newbyteorder('='), 'W') can be used, if it is an array of numbers"
    kind = type(value)
    raise KjitError(
        f"{subject} cannot use {place} ({kind.__module__}.{kind.__qualname__}): {sentence}.", hint=hint
    ) from None


def _refuse(subject: str, what: str, hint: str) -> NoReturn:
    raise KjitError(f"{subject} cannot use {what}.", hint=hint) from None
