"""Why can a kernel not use what it was given? Asked after a call has failed, so that a call that works pays nothing.

PyTorch and tvm-ffi convert what is passed to a kernel. What they cannot convert is an error of theirs, often with
thirty lines of PyTorch's own stack and without the argument's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from kjit.errors import KjitError

if TYPE_CHECKING:
    import torch


def explain(subject: str, arguments: Mapping[str, object]) -> None:
    """Raise a `KjitError` that names what a kernel cannot use, if there is such among the arguments.

    Args:
        subject: what was called, as a sentence begins: "op 'scale'".
        arguments: by the names that the caller knows; lists of tensors are looked into.
    """
    import torch

    for name, value in arguments.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        for index, each in enumerate(values):
            called = name if values is not value else f"{name}[{index}]"
            if isinstance(each, torch.Tensor):
                _explain_tensor(subject, called, each)
            elif isinstance(each, torch.dtype):
                _explain_dtype(subject, called, each)


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


def _explain_dtype(subject: str, name: str, dtype: torch.dtype) -> None:
    import tvm_ffi

    try:
        tvm_ffi.convert(dtype)
    except (KeyError, ValueError):
        _refuse(subject, f"'{name}', as tvm-ffi has no dtype for {dtype}", "pass what the kernel needs to know of it")


def _refuse(subject: str, what: str, hint: str) -> NoReturn:
    raise KjitError(f"{subject} cannot use {what}.", hint=hint) from None
