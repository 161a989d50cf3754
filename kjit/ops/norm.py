"""Norms of rows: RMSNorm, the same of a sum that is kept, LayerNorm.

All compute in float32, and round once.
"""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, FLOATS, check_dtype


class RmsNorm(Protocol):
    """The exports of the module of `rmsnorm`."""

    def rmsnorm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, out: torch.Tensor, /
    ) -> None: ...


class FusedAddRmsNorm(Protocol):
    """The exports of the module of `fused_add_rmsnorm`."""

    def fused_add_rmsnorm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, /
    ) -> None: ...


class LayerNorm(Protocol):
    """The exports of the module of `layernorm`."""

    def layernorm(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, out: torch.Tensor, /
    ) -> None: ...


class NormAcrossHeads(Protocol):
    """The exports of the module of `qknorm_across_heads`."""

    def qknorm_across_heads(
        self, q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float, /
    ) -> None: ...


@kjit.module(exports=RmsNorm, variants=kjit.product(dtype=FLOATS))
def _rmsnorm(dtype: torch.dtype) -> kjit.Spec:
    return _spec("rmsnorm", "RmsNorm", dtype)


@kjit.module(exports=FusedAddRmsNorm, variants=kjit.product(dtype=FLOATS))
def _fused_add_rmsnorm(dtype: torch.dtype) -> kjit.Spec:
    return _spec("fused_add_rmsnorm", "FusedAddRmsNorm", dtype)


@kjit.module(exports=LayerNorm, variants=kjit.product(dtype=FLOATS))
def _layernorm(dtype: torch.dtype) -> kjit.Spec:
    return _spec("layernorm", "LayerNorm", dtype)


@kjit.module(exports=NormAcrossHeads, variants=kjit.product(dtype=FLOATS))
def _qknorm_across_heads(dtype: torch.dtype) -> kjit.Spec:
    return _spec("qknorm_across_heads", "NormAcrossHeads", dtype, "qknorm_across_heads.cuh")


def _spec(op: str, symbol: str, dtype: torch.dtype, source: str = "norm.cuh") -> kjit.Spec:
    check_dtype(op, dtype)
    args = kjit.make_cpp_args(dtype)
    return kjit.Spec(op, *args, cuda_files=[CSRC / source], cuda_wrappers=[(op, f"{symbol}<{args}>::run")])


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty)
def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    offset: float = 0.0,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Scale each row to a root mean square of 1: `x / sqrt(mean(x ** 2) + eps) * (weight + offset)`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; `offset=1.0` is Gemma's.

    Args:
        x: T[B, D], contiguous; T is bfloat16, float16 or float32.
        weight: T[D].
        eps: added to the mean.
        offset: added to the weight, in float32.
        out: T[B, D]; takes the result and is returned. It may be x itself, and must not overlap an input otherwise.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: x is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = _empty(x)
    _rmsnorm(x.dtype, device=x).rmsnorm(x, weight, eps, offset, out)
    return out


@kjit.torch_op(mutates_args=("x", "residual"))
def fused_add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, offset: float = 0.0
) -> None:
    """Add x to the residual, and make x the RMSNorm of the sum, which is not rounded in between.

        residual = x + residual
        x = residual / sqrt(mean(residual ** 2) + eps) * (weight + offset)

    Args:
        x, residual: T[B, D], contiguous, changed in place; T is bfloat16, float16 or float32.
        weight: T[D].
        eps, offset: as for `rmsnorm`.

    Raises:
        TypeError, RuntimeError, kjit.KjitError: as for `rmsnorm`.
    """
    _fused_add_rmsnorm(x.dtype, device=x).fused_add_rmsnorm(x, residual, weight, eps, offset)


@kjit.torch_op(outputs=_empty)
def layernorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Shift and scale each row to mean 0 and variance 1: `(x - mean) / sqrt(variance + eps) * weight + bias`.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016; the variance is that of all elements (Welford).

    Args:
        x: T[B, D], contiguous; T is bfloat16, float16 or float32.
        weight, bias: T[D]; without a bias none is added.
        eps: added to the variance.
        out: T[B, D]; takes the result and is returned. It may be x itself, and must not overlap an input otherwise.

    Raises:
        TypeError, RuntimeError, kjit.KjitError: as for `rmsnorm`.
    """
    if out is None:
        out = _empty(x)
    _layernorm(x.dtype, device=x).layernorm(x, weight, bias, eps, out)
    return out


@kjit.torch_op(mutates_args=("q", "k"))
def qknorm_across_heads(
    q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float = 1e-6
) -> None:
    """Make q and k, all heads of a token at once, their RMSNorm; `rope.qknorm` does it head by head.

    Args:
        q, k: T[B, D], each with its own D, changed in place; T is bfloat16, float16 or float32. Rows may have any
            stride, as slices of one projection have.
        q_weight, k_weight: T[D].
        eps: added to the mean.

    Raises:
        TypeError, RuntimeError, kjit.KjitError: as for `rmsnorm`.
    """
    _qknorm_across_heads(q.dtype, device=q).qknorm_across_heads(q, k, q_weight, k_weight, eps)
