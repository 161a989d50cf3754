"""Storing new keys and values in a paged cache."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def store_kv_cache(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        /,
    ) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(index=[torch.int32, torch.int64]))
def _store_kv_cache(index: torch.dtype) -> kjit.Spec:
    if index not in (torch.int32, torch.int64):
        raise TypeError(f"store_kv_cache: {index} is neither torch.int32 nor torch.int64")
    args = kjit.make_cpp_args(index)
    wrappers = [("store_kv_cache", f"store_kv_cache<{args}>")]
    return kjit.Spec("store_kv_cache", *args, cuda_files=[CSRC / "kv_cache.cuh"], cuda_wrappers=wrappers)


@kjit.torch_op(mutates_args=("k_cache", "v_cache"))
def store_kv_cache(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    """Write rows to slots: `k_cache[slots[i]] = k[i]` and `v_cache[slots[i]] = v[i]`.

    Rows lie one after another in memory, and may have any stride: k and v may be slices of one projection, a cache a
    layer of a larger tensor. Rows are moved in vectors of 16 bytes where all of them begin and end at a multiple of
    16 bytes, else byte by byte. Slots are different ones.

    Args:
        k, v: T[N, D]; T is any dtype.
        k_cache, v_cache: T[slots, D], changed in place.
        slots: int32[N] or int64[N]; rows whose slot is not in the cache, such as -1, are skipped.

    Raises:
        TypeError: `slots` has another dtype.
        RuntimeError: a tensor's shape, strides, dtype or device does not fit.
        kjit.KjitError: the tensors are not on a GPU, or a gradient is required.
    """
    _store_kv_cache(slots.dtype, device=slots).store_kv_cache(k, v, k_cache, v_cache, slots)
