"""Softmax of rows."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, FLOATS, check_dtype


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def softmax(self, x: torch.Tensor, scale: float, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=FLOATS))
def _softmax(dtype: torch.dtype) -> kjit.Spec:
    check_dtype("softmax", dtype)
    args = kjit.make_cpp_args(dtype)
    wrappers = [("softmax", f"Softmax<{args}>::run")]
    return kjit.Spec("softmax", *args, cuda_files=[CSRC / "softmax.cuh"], cuda_wrappers=wrappers)


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty)
def softmax(x: torch.Tensor, scale: float = 1.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `softmax(x * scale)` of each row, in float32, reading it once.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.

    Args:
        x: T[B, D], contiguous; T is bfloat16, float16 or float32.
        scale: what logits are multiplied with, 1 / temperature.
        out: T[B, D]; takes the result and is returned. It may be x itself, and must not overlap it otherwise.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: x is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = _empty(x)
    _softmax(x.dtype, device=x).softmax(x, scale, out)
    return out
