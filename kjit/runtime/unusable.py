"""Errors about arguments that a kernel cannot use, found after a call has failed: successful calls have no overhead.

PyTorch and tvm-ffi convert the arguments of a kernel. If that fails, their error often has thirty lines of PyTorch's
own stack and does not name the argument. Calls of ops and of `jit` functions name it; raw calls of a module's functions
raise the error as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from kjit.errors import KjitError

if TYPE_CHECKING:
    import torch


def explain(subject: str, arguments: Mapping[str, object]) -> None:
    """Raise a `KjitError` about the first argument that a kernel cannot use; return if it can use all of them.

    Args:
        subject: the called function, as the beginning of a sentence: "op 'scale'".
        arguments: by name; lists and tuples are searched.
    """
    for name, value in arguments.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        for index, each in enumerate(values):
            _explain_value(subject, name if values is not value else f"{name}[{index}]", each)


def named(
    function: Callable[..., object], args: tuple[object, ...], keywords: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call of a `jit` function by name, without the first one, the module."""
    import inspect

    _, *others = inspect.signature(function).bind(*args, **keywords).arguments.items()
    return dict(others)


def _explain_value(subject: str, name: str, value: object) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, (torch.Tensor, torch.dtype)):
        return
    import tvm_ffi

    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor:
        _explain_tensor(subject, name, value)
    try:
        tvm_ffi.convert(value)
    except (KeyError, RuntimeError, ValueError):
        dtype = value.dtype if is_tensor else value
        hint = f"{name}.view(torch.uint8) has the same bytes" if is_tensor else "pass a number or a string instead"
        _refuse(subject, f"'{name}', as tvm-ffi has no dtype for {dtype}", f"{hint}, if the kernel knows what they are")


def _explain_tensor(subject: str, name: str, tensor: torch.Tensor) -> None:
    import torch

    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        _refuse(
            subject,
            f"'{name}', which a transform of torch.func has made",
            "call it outside of the transform, or on what the transform returns",
        )
    layout, dense = str(tensor.layout).removeprefix("torch."), "to_dense()"
    if tensor.is_nested:
        layout, dense = "nested", "to_padded_tensor(0)"
    elif tensor.is_quantized:
        layout, dense = "quantized", "dequantize()"
    if layout != "strided":
        _refuse(subject, f"'{name}', which is not a dense tensor ({layout})", f"{name}.{dense} makes a dense one of it")
    if tensor.is_meta:
        _refuse(subject, f"'{name}', which is on the meta device and has no data", "pass a tensor that has data")


def _refuse(subject: str, what: str, hint: str) -> NoReturn:
    raise KjitError(f"{subject} cannot use {what}.", hint=hint) from None
