"""Transfers of keys and values between a cache in GPU memory and a larger one in pinned host memory."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def transfer_kv(
        self,
        k_to: torch.Tensor,
        k_from: torch.Tensor,
        v_to: torch.Tensor | None,
        v_from: torch.Tensor | None,
        to_slots: torch.Tensor,
        from_slots: torch.Tensor,
        block_quota: int,
        /,
    ) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(index=[torch.int32, torch.int64]))
def _transfer_kv(index: torch.dtype) -> kjit.Spec:
    if index not in (torch.int32, torch.int64):
        raise TypeError(f"transfer_kv: {index} is neither torch.int32 nor torch.int64")
    args = kjit.make_cpp_args(index)
    wrappers = [("transfer_kv", f"transfer_kv<{args}>")]
    return kjit.Spec("transfer_kv", *args, cuda_files=[CSRC / "hicache.cuh"], cuda_wrappers=wrappers)


@kjit.torch_op(mutates_args=("k_to", "v_to"))
def transfer_kv(
    k_to: torch.Tensor,
    k_from: torch.Tensor,
    to_slots: torch.Tensor,
    from_slots: torch.Tensor,
    v_to: torch.Tensor | None = None,
    v_from: torch.Tensor | None = None,
    block_quota: int = 2,
) -> None:
    """Copy slots of all layers: `k_to[:, to_slots[i]] = k_from[:, from_slots[i]]`, and values likewise.

    Caches are GPU memory or pinned host memory, which the kernel reads and writes itself. Their layers and slots may
    have any stride: a cache in which the layers of a slot are contiguous (page first), `T[slots, layers, D]`, is passed
    transposed, `cache.transpose(0, 1)`; one layer is `cache[layer : layer + 1]`.

    Args:
        k_to, v_to: T[layers, slots, D], changed in place; T is any dtype. Rows of D elements are whole vectors of
            16 bytes, aligned to that.
        k_from, v_from: T[layers, slots, D], with another number of slots.
        to_slots, from_slots: int32[N] or int64[N] in GPU memory; slots to write to are different ones. That slots
            exist is not checked.
        block_quota: how many blocks of 512 threads copy; more take more of the GPU from other work, and no more
            than a few are needed to fill PCIe.

    Raises:
        TypeError: `to_slots` has another dtype.
        RuntimeError: a tensor's shape, strides, alignment or dtype does not fit, or host memory is not pinned.
        kjit.KjitError: `to_slots` is not on a GPU, or a gradient is required.
    """
    module = _transfer_kv(to_slots.dtype, device=to_slots)
    module.transfer_kv(k_to, k_from, v_to, v_from, to_slots, from_slots, block_quota)
