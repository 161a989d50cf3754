"""add_constant, element by element.

Signature: x: T[...], constant: const int = 1 -> out: T[...]

Pattern: elementwise
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

import kjit

CSRC = Path(__file__).parents[1] / "csrc"
DTYPES = (torch.int32, torch.float32, torch.float16, torch.bfloat16)


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def add_constant(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=DTYPES, constant=[1]))
def _add_constant(dtype: torch.dtype, constant: int) -> kjit.Spec:
    """The sources and exports of the module for one variant."""
    if dtype not in DTYPES:
        raise TypeError(f"add_constant: {dtype} is not one of {DTYPES}")
    args = kjit.make_cpp_args(dtype, constant)
    symbol = f"AddConstant<{args}>::run"
    return kjit.Spec(
        "add_constant",
        *args,
        cuda_files=[CSRC / "add_constant.cuh"],
        cuda_wrappers=[("add_constant", symbol)],
        cpp_files=[CSRC / "add_constant.cpp"],
        cpp_wrappers=[("add_constant", symbol)],
    )


def _empty(x: torch.Tensor) -> torch.Tensor:
    """Allocate the outputs; `torch.compile` infers shapes and dtypes from this."""
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty)
def add_constant(
    x: torch.Tensor,
    constant: int = 1,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute `add_constant`, element by element.

    Args:
        x: T[...], contiguous.
        constant: a whole number, compiled into the kernel.
        out: T[...]; takes the result and is returned. Allocated when None. It may be x
            itself, and must not overlap a tensor otherwise.

    Raises:
        TypeError: a dtype is not in `DTYPES`.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not
            fit; the message says which and why.
        kjit.KjitError: there is no kernel for the device, or a gradient is required.
    """
    if out is None:
        out = _empty(x)
    module = _add_constant(x.dtype, constant, device=x)
    module.add_constant(x, out)
    return out
