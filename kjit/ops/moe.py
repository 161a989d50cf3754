"""Expert selection in a mixture-of-experts layer."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, check_dtype


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def topk_softmax(
        self, gates: torch.Tensor, renormalize: bool, weights: torch.Tensor, experts: torch.Tensor, /
    ) -> None: ...


@kjit.module(
    exports=Exports, variants=kjit.product(dtype=[torch.bfloat16, torch.float32], num_experts=[8, 64, 128, 256])
)
def _topk_softmax(dtype: torch.dtype, num_experts: int) -> kjit.Spec:
    check_dtype("topk_softmax", dtype)
    args = kjit.make_cpp_args(dtype, num_experts)
    wrappers = [("topk_softmax", f"topk_softmax<{args}>")]
    return kjit.Spec("topk_softmax", *args, cuda_files=[CSRC / "moe.cuh"], cuda_wrappers=wrappers)


def _choices(gates: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (gates.shape[0], k)
    return gates.new_empty(shape, dtype=torch.float32), gates.new_empty(shape, dtype=torch.int32)


@kjit.torch_op(outputs=_choices)
def topk_softmax(
    gates: torch.Tensor,
    k: int,
    renormalize: bool = False,
    *,
    weights: torch.Tensor | None = None,
    experts: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the k experts with the largest `softmax(gates)`, largest first, of equal ones the first.

    Source: Shazeer et al., "Outrageously Large Neural Networks", 2017; with the softmax of all experts, as in Mixtral
    with `renormalize`, where weights are divided by their sum.

    Args:
        gates: T[N, E], contiguous and without NaN; T is bfloat16, float16 or float32. E is compiled into the kernel.
        k: how many are chosen, 1 to 32.
        renormalize: make the weights of a token add up to 1.
        weights: float32[N, k]; takes the experts' softmax and is returned.
        experts: int32[N, k]; takes the experts' numbers and is returned.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor is not contiguous, its shape, dtype or device does not fit, or k is out of range.
        kjit.KjitError: gates is not on a GPU, or a gradient is required.
    """
    if weights is None:
        weights = gates.new_empty((gates.shape[0], k), dtype=torch.float32)
    if experts is None:
        experts = gates.new_empty((gates.shape[0], k), dtype=torch.int32)
    _topk_softmax(gates.dtype, gates.shape[1], device=gates).topk_softmax(gates, renormalize, weights, experts)
    return weights, experts
