"""add_constant on the CPU by hand, with the vectors of Google Highway; `add_constant` is what `kjit new` writes."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def add_constant_highway(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(constant=[1]))
def _add_constant_highway(constant: int) -> kjit.Spec:
    args = kjit.make_cpp_args(constant)
    return kjit.Spec(
        "add_constant_highway",
        *args,
        cpp_files=[CSRC / "add_constant_highway.cpp"],
        cpp_wrappers=[("add_constant_highway", f"add_constant_highway<{args}>")],
        extra_include_paths=[CSRC, *kjit.highway_include()],
    )


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty)
def add_constant_highway(x: torch.Tensor, constant: int = 1, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `x + constant`, which wraps around.

    Args:
        x: int32[...], contiguous, on the CPU.
        constant: of 32 bits, compiled into the kernel.
        out: int32[...]; takes the result and is returned. It may be x itself, and must not overlap it otherwise.

    Raises:
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: x is on a GPU, or there are no headers of Highway to compile it with.
    """
    if out is None:
        out = _empty(x)
    _add_constant_highway(constant, device=x).add_constant_highway(x, out)
    return out
