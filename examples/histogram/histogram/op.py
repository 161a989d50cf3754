"""A wrapper written by hand: one function declares the modules, the other is called."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

import kjit

CSRC = Path(__file__).parent / "csrc"


class Exports(Protocol):
    def histogram(self, values: torch.Tensor, counts: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(bins=[16, 256]))
def _histogram(bins: int) -> kjit.Spec:
    args = kjit.make_cpp_args(bins)
    return kjit.Spec(
        "histogram",
        *args,
        cuda_files=[CSRC / "histogram.cuh"],
        cuda_wrappers=[("histogram", f"Histogram<{args}>::run")],
    )


def _counts(values: torch.Tensor, bins: int = 256) -> torch.Tensor:
    return torch.empty(bins, dtype=torch.int32, device=values.device)


@kjit.torch_op(outputs=_counts)
def histogram(values: torch.Tensor, bins: int = 256, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Count how often each of 0, 1, ..., bins - 1 occurs; other values are not counted.

    Args:
        values: int32[N], contiguous, on a GPU.
        bins: at least 1, at most 12,288. A number other than those that `kjit build`
            compiles is compiled at its first call.
        out: int32[bins]; takes the counts and is returned. Allocated when None.

    Raises:
        RuntimeError: a tensor does not fit; the message says which and why.
    """
    if out is None:
        out = _counts(values, bins)
    out.zero_()
    _histogram(bins, device=values).histogram(values, out)
    return out
