"""Quantisation to 8 bits, with one scale for a tensor, a token (row) or a group of a row's elements.

The scale is such that the largest absolute value becomes the largest of the type, 448 in fp8 (e4m3) and 127 in int8:
`largest * (1 / 448)`. Results are bit for bit `x.float() * (1 / scale)`, rounded by PyTorch's cast: to nearest even,
saturated. Where a scale is found, NaN is left out, and all that it belongs to being zero, the scale is zero and so are
results.
"""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, FLOATS, FP8, check_dtype

ONE_ROW = 2**16
"""Elements up to which a cluster finds a scale and uses it sooner than all of the GPU in two launches."""
MOST_BLOCKS = 1024
"""Blocks that find a scale, at most."""


class OfTensors(Protocol):
    """The exports of the module with one scale for a tensor."""

    def quantise(self, x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, /) -> None: ...

    def find_and_quantise(
        self, x: torch.Tensor, largest: torch.Tensor | None, scale: torch.Tensor, out: torch.Tensor, /
    ) -> None: ...


class OfGroups(Protocol):
    """The exports of the module with a scale for each group."""

    def quantise(self, x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=OfTensors, variants=kjit.product(dtype=FLOATS))
def _quantise_tensor(dtype: torch.dtype) -> kjit.Spec:
    check_dtype("per_tensor_quant_fp8", dtype)
    args = kjit.make_cpp_args(dtype)
    wrappers = [
        ("quantise", f"quantise_tensor<{args}>"),
        ("find_and_quantise", f"find_and_quantise_tensor<{args}>"),
    ]
    return kjit.Spec("per_tensor_quant_fp8", *args, cuda_files=[CSRC / "quant.cuh"], cuda_wrappers=wrappers)


@kjit.module(exports=OfGroups, variants=kjit.product(dtype=FLOATS, to=[FP8, torch.int8]))
def _quantise_groups(dtype: torch.dtype, to: torch.dtype) -> kjit.Spec:
    check_dtype("per_token_group_quant", dtype)
    if to not in (FP8, torch.int8):
        raise TypeError(f"per_token_group_quant: {to} is neither {FP8} nor {torch.int8}")
    args = kjit.make_cpp_args(dtype, to)
    wrappers = [("quantise", f"QuantiseRows<{args}>::run")]
    return kjit.Spec("per_token_group_quant", *args, cuda_files=[CSRC / "quant.cuh"], cuda_wrappers=wrappers)


def _as_fp8(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=FP8)


def _scale(x: torch.Tensor, *shape: int) -> torch.Tensor:
    return x.new_empty(shape, dtype=torch.float32)


def _as_fp8_and_scale(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _as_fp8(x), _scale(x, 1)


def _as_fp8_and_scales(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _as_fp8(x), _scale(x, x.shape[0], 1)


def _groups(x: torch.Tensor, group_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x, dtype=dtype), _scale(x, x.shape[0], x.shape[1] // group_size)


@kjit.torch_op(outputs=_as_fp8)
def static_quant_fp8(x: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Quantise a tensor to fp8 (e4m3) with the scale that is given.

    Args:
        x: T[...], contiguous; T is bfloat16, float16 or float32.
        scale: float32[1].
        out: float8_e4m3fn[...]; takes the result and is returned. It must not overlap an input.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: x is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = _as_fp8(x)
    _quantise_tensor(x.dtype, device=x).quantise(x, scale, out)
    return out


@kjit.torch_op(outputs=_as_fp8_and_scale)
def per_tensor_quant_fp8(
    x: torch.Tensor, *, out: torch.Tensor | None = None, scale: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise a tensor to fp8 (e4m3) with the scale that its largest absolute value needs.

    Args:
        x: T[...], contiguous; T is bfloat16, float16 or float32.
        out: float8_e4m3fn[...]; takes the result and is returned. It must not overlap x.
        scale: float32[1]; takes the scale and is returned.

    Raises:
        TypeError, RuntimeError, kjit.KjitError: as for `static_quant_fp8`.
    """
    if out is None:
        out = _as_fp8(x)
    if scale is None:
        scale = _scale(x, 1)
    largest = _scale(x, MOST_BLOCKS) if x.numel() > ONE_ROW else None
    _quantise_tensor(x.dtype, device=x).find_and_quantise(x, largest, scale, out)
    return out, scale


@kjit.torch_op(outputs=_as_fp8_and_scales)
def per_token_quant_fp8(
    x: torch.Tensor, *, out: torch.Tensor | None = None, scale: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each row to fp8 (e4m3) with a scale of its own.

    Args:
        x: T[B, D], contiguous; T is bfloat16, float16 or float32.
        out: float8_e4m3fn[B, D]; takes the result and is returned. It must not overlap x.
        scale: float32[B, 1]; takes the scales and is returned.

    Raises:
        TypeError, RuntimeError, kjit.KjitError: as for `static_quant_fp8`.
    """
    if out is None:
        out = _as_fp8(x)
    if scale is None:
        scale = _scale(x, x.shape[0], 1)
    _quantise_groups(x.dtype, FP8, device=x).quantise(x, scale, out)
    return out, scale


@kjit.torch_op(outputs=_groups)
def per_token_group_quant(
    x: torch.Tensor,
    group_size: int = 128,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    out: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each group of a row's elements with a scale of its own.

    Args:
        x: T[B, D], contiguous; T is bfloat16, float16 or float32.
        group_size: elements of a group, which divide D; 32 to 128 most often.
        dtype: float8_e4m3fn or int8.
        out: dtype[B, D]; takes the result and is returned. It must not overlap x.
        scale: float32[B, D / group_size]; takes the scales and is returned.

    Raises:
        TypeError: T or dtype is another dtype.
        RuntimeError: a tensor is not contiguous, its shape, dtype or device does not fit, or groups do not divide D.
        kjit.KjitError: x is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = torch.empty_like(x, dtype=dtype)
    if scale is None:
        scale = _scale(x, x.shape[0], x.shape[1] // group_size)
    _quantise_groups(x.dtype, dtype, device=x).quantise(x, scale, out)
    return out, scale
