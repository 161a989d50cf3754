"""`add_constant` against PyTorch."""

from typing import Any

import torch

import kjit.testing
from kjit.ops.add_constant import DTYPES, _add_constant, add_constant


def reference(x: torch.Tensor, constant: int = 1) -> torch.Tensor:
    """The results of the op in plain PyTorch; the benchmark times this too."""
    # The math, as in kjit/csrc/add_constant.h.
    return x + constant


def make_inputs(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
) -> dict[str, Any]:
    """Arguments for a call, with non-default numbers."""
    return {
        "x": kjit.testing.random_tensor(shape, dtype, device),
        "constant": 1,
    }


class TestAddConstant(
    kjit.testing.OpTest,
    op=add_constant,
    module=_add_constant,
    reference=reference,
    inputs=make_inputs,
    dtypes=DTYPES,
):
    """The tests of every op; add its own as methods."""

    shape = (1001,)
    shapes = (*kjit.testing.boundary_shapes((None,)), (), (3, 5, 7), (2, 0, 3))
    in_place = ("x", "out")
    kernels = kjit.testing.Kernels(spills=False)
