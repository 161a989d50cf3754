"""softcap: values kept within ±cap, smoothly.

Signature: x: T[...], cap: float = 30.0 -> out: T[...]

Pattern: elementwise
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

import kjit

CSRC = Path(__file__).parent / "csrc"
INCLUDE = Path(__file__).parent / "include"
DTYPES = (torch.float32, torch.bfloat16)


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def softcap(self, x: torch.Tensor, cap: float, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=DTYPES))
def _softcap(dtype: torch.dtype) -> kjit.Spec:
    """The sources and exports of the module for one variant."""
    if dtype not in DTYPES:
        raise TypeError(f"softcap: {dtype} is not one of {DTYPES}")
    args = kjit.make_cpp_args(dtype)
    symbol = f"Softcap<{args}>::run"
    return kjit.Spec(
        "softcap",
        *args,
        cuda_files=[CSRC / "softcap.cuh"],
        cuda_wrappers=[("softcap", symbol)],
        cpp_files=[CSRC / "softcap.cpp"],
        cpp_wrappers=[("softcap", symbol)],
        extra_include_paths=[INCLUDE],
    )


def _empty(x: torch.Tensor) -> torch.Tensor:
    """Allocate the outputs; `torch.compile` infers shapes and dtypes from this."""
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty)
def softcap(x: torch.Tensor, cap: float = 30.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `cap * tanh(x / cap)`.

    Args:
        x: T[...], contiguous.
        cap: what no result exceeds; not 0.
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
    module = _softcap(x.dtype, device=x)
    module.softcap(x, cap, out)
    return out
