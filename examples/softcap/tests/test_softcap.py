"""`softcap` against PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from kernels.softcap import DTYPES, _softcap, softcap

import kjit.testing


def reference(x: torch.Tensor, cap: float = 30.0) -> torch.Tensor:
    """The results of the op in plain PyTorch; the benchmark times this too."""
    return cap * torch.tanh(x / cap)


def make_inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Arguments for a call, with non-default numbers."""
    return {
        "x": kjit.testing.random_tensor(shape, dtype, device),
        "cap": 0.5,
    }


class TestSoftcap(
    kjit.testing.OpTest,
    op=softcap,
    module=_softcap,
    reference=reference,
    inputs=make_inputs,
    dtypes=DTYPES,
):
    """The tests of every op; add its own as methods."""

    shape = (1001,)
    shapes = (*kjit.testing.boundary_shapes((None,)), (), (3, 5, 7), (2, 0, 3))
    in_place = ("x", "out")
    huge_shape = (2**31 + 11,)
