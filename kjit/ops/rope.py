"""Heads of q and k before attention: RMSNorm of each head, rotary position embedding, or both.

q and k change in place. They may be slices of one projection: elements of a head follow each other, tokens and heads
have any stride that is a multiple of 16 bytes. All is computed in float32, and rounded once.
"""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, check_dtype

HEAD_DIMS = (64, 128, 256)
POSITIONS = (torch.int32, torch.int64)


class QkNorm(Protocol):
    """The exports of the module of `qknorm`."""

    def qknorm(
        self, q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float, /
    ) -> None: ...


class Rope(Protocol):
    """The exports of the module of `rope` and `qknorm_rope`."""

    def rope(
        self, q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor, /
    ) -> None: ...

    def qknorm_rope(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        q_weight: torch.Tensor,
        k_weight: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        positions: torch.Tensor,
        eps: float,
        /,
    ) -> None: ...


@kjit.module(exports=QkNorm, variants=kjit.product(dtype=[torch.bfloat16], head_dim=HEAD_DIMS))
def _qknorm(dtype: torch.dtype, head_dim: int) -> kjit.Spec:
    check_dtype("qknorm", dtype)
    args = kjit.make_cpp_args(dtype, head_dim)
    wrappers = [("qknorm", f"QkHeads<{args}>::qknorm")]
    return kjit.Spec("qknorm", *args, cuda_files=[CSRC / "rope.cuh"], cuda_wrappers=wrappers)


@kjit.module(
    exports=Rope,
    variants=kjit.product(dtype=[torch.bfloat16], head_dim=HEAD_DIMS, is_neox=[True, False], position=POSITIONS),
)
def _rope(dtype: torch.dtype, head_dim: int, is_neox: bool, position: torch.dtype) -> kjit.Spec:
    check_dtype("rope", dtype)
    if position not in POSITIONS:
        raise TypeError(f"rope: positions of {position} are neither torch.int32 nor torch.int64")
    args = kjit.make_cpp_args(dtype, head_dim)
    kind = f"Rope::{'kNeox' if is_neox else 'kGptJ'}, {kjit.make_cpp_args(position)}"
    return kjit.Spec(
        "rope",
        *kjit.make_cpp_args(dtype, head_dim, is_neox, position),
        cuda_files=[CSRC / "rope.cuh"],
        cuda_wrappers=[(op, f"QkHeads<{args}>::{op}<{kind}>") for op in ("rope", "qknorm_rope")],
    )


@kjit.torch_op(mutates_args=("q", "k"))
def qknorm(q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float = 1e-6) -> None:
    """Make each head its RMSNorm: `head / sqrt(mean(head ** 2) + eps) * weight`.

    Source: Henry et al., "Query-Key Normalization for Transformers", 2020, with RMSNorm as Qwen3 has it.

    Args:
        q, k: T[tokens, heads, D], each with its own number of heads, changed in place; T is bfloat16, float16 or
            float32. D is a multiple of 16 bytes, and at most a warp's 32 vectors or a multiple of 1,024 bytes.
        q_weight, k_weight: T[D].
        eps: added to the mean.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor's shape, strides, dtype or device does not fit, or a head is not aligned to 16 bytes.
        kjit.KjitError: q is not on a GPU, or a gradient is required.
    """
    _qknorm(q.dtype, q.shape[-1], device=q).qknorm(q, k, q_weight, k_weight, eps)


@kjit.torch_op(mutates_args=("q", "k"))
def rope(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor, is_neox: bool = True
) -> None:
    """Rotate pairs of elements of each head, each pair by an angle that grows with the token's position.

        a, b = a * cos - b * sin, b * cos + a * sin

    Pairs are elements `i` and `i + rotary_dim / 2` (GPT-NeoX, Llama), or `2 * i` and `2 * i + 1` (GPT-J).
    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

    Args:
        q, k: as for `qknorm`; only the first `rotary_dim` elements of a head change.
        cos_sin_cache: float32[max_position, rotary_dim]: cosines of the pairs' angles, then sines.
        positions: int32[tokens] or int64[tokens], all below `max_position`, which is not checked.
        is_neox: which elements are pairs.

    Raises:
        TypeError: T, or the dtype of `positions`, is another one.
        RuntimeError, kjit.KjitError: as for `qknorm`; `rotary_dim` is not a multiple of 32 bytes of T, or more than D.
    """
    _rope(q.dtype, q.shape[-1], is_neox, positions.dtype, device=q).rope(q, k, cos_sin_cache, positions)


@kjit.torch_op(mutates_args=("q", "k"))
def qknorm_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    is_neox: bool = True,
    eps: float = 1e-6,
) -> None:
    """Do `qknorm`, and then `rope`, in one pass and without rounding in between.

    Args, Raises: as for `qknorm` and `rope`.
    """
    module = _rope(q.dtype, q.shape[-1], is_neox, positions.dtype, device=q)
    module.qknorm_rope(q, k, q_weight, k_weight, cos_sin_cache, positions, eps)
