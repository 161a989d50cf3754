"""Gated activations of feed-forward layers; a row has the gate, then the value."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, FLOATS, FP8, check_dtype

_ACTIVATIONS = {"silu": "Silu", "gelu": "Gelu", "gelu_tanh": "GeluTanh"}


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def silu_and_mul(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...

    def gelu_and_mul(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...

    def gelu_tanh_and_mul(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...


class Quantised(Protocol):
    """The exports of the module with results in fp8."""

    def silu_and_mul_fp8(self, x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, /) -> None: ...

    def gelu_and_mul_fp8(self, x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, /) -> None: ...

    def gelu_tanh_and_mul_fp8(self, x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=FLOATS))
def _act_and_mul(dtype: torch.dtype) -> kjit.Spec:
    check_dtype("act_and_mul", dtype)
    args = kjit.make_cpp_args(dtype)
    wrappers = [(f"{name}_and_mul", f"act_and_mul<{args}, {symbol}>") for name, symbol in _ACTIVATIONS.items()]
    return kjit.Spec("act_and_mul", *args, cuda_files=[CSRC / "activation.cuh"], cuda_wrappers=wrappers)


@kjit.module(exports=Quantised, variants=kjit.product(dtype=FLOATS))
def _act_and_mul_fp8(dtype: torch.dtype) -> kjit.Spec:
    check_dtype("act_and_mul_fp8", dtype)
    args = kjit.make_cpp_args(dtype)
    wrappers = [(f"{name}_and_mul_fp8", f"act_and_mul_fp8<{args}, {symbol}>") for name, symbol in _ACTIVATIONS.items()]
    return kjit.Spec("act_and_mul_fp8", *args, cuda_files=[CSRC / "activation.cuh"], cuda_wrappers=wrappers)


def _half(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.shape[0], x.shape[1] // 2))


def _half_as_fp8(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.shape[0], x.shape[1] // 2), dtype=FP8)


@kjit.torch_op(outputs=_half)
def silu_and_mul(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `silu(x[:, :D]) * x[:, D:]`, in float32; silu(x) is x / (1 + exp(-x)).

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Args:
        x: T[N, 2 * D], contiguous; T is bfloat16, float16 or float32. It is fastest where D is a multiple of 16 bytes.
        out: T[N, D]; takes the result and is returned. It must not overlap x.

    Raises:
        TypeError: T is another dtype.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: x is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = _half(x)
    _act_and_mul(x.dtype, device=x).silu_and_mul(x, out)
    return out


@kjit.torch_op(outputs=_half)
def gelu_and_mul(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `gelu(x[:, :D]) * x[:, D:]` as `silu_and_mul` does; gelu(x) is x * (1 + erf(x / sqrt(2))) / 2.

    Args, Raises: as for `silu_and_mul`.
    """
    if out is None:
        out = _half(x)
    _act_and_mul(x.dtype, device=x).gelu_and_mul(x, out)
    return out


@kjit.torch_op(outputs=_half)
def gelu_tanh_and_mul(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `gelu_and_mul` with the approximation x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2.

    Args, Raises: as for `silu_and_mul`.
    """
    if out is None:
        out = _half(x)
    _act_and_mul(x.dtype, device=x).gelu_tanh_and_mul(x, out)
    return out


@kjit.torch_op(outputs=_half_as_fp8)
def silu_and_mul_fp8(x: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `silu_and_mul` and quantise it to fp8 (e4m3) in one pass: rounded once, to nearest even, and saturated.

    Args:
        x: T[N, 2 * D], contiguous; T is bfloat16, float16 or float32.
        scale: float32[1]; results are divided by it, as in `static_quant_fp8`.
        out: float8_e4m3fn[N, D]; takes the result and is returned. It must not overlap an input.

    Raises: as for `silu_and_mul`.
    """
    if out is None:
        out = _half_as_fp8(x)
    _act_and_mul_fp8(x.dtype, device=x).silu_and_mul_fp8(x, scale, out)
    return out


@kjit.torch_op(outputs=_half_as_fp8)
def gelu_and_mul_fp8(x: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `gelu_and_mul` and quantise it to fp8, as `silu_and_mul_fp8` does.

    Args, Raises: as for `silu_and_mul_fp8`.
    """
    if out is None:
        out = _half_as_fp8(x)
    _act_and_mul_fp8(x.dtype, device=x).gelu_and_mul_fp8(x, scale, out)
    return out


@kjit.torch_op(outputs=_half_as_fp8)
def gelu_tanh_and_mul_fp8(x: torch.Tensor, scale: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `gelu_tanh_and_mul` and quantise it to fp8, as `silu_and_mul_fp8` does.

    Args, Raises: as for `silu_and_mul_fp8`.
    """
    if out is None:
        out = _half_as_fp8(x)
    _act_and_mul_fp8(x.dtype, device=x).gelu_tanh_and_mul_fp8(x, scale, out)
    return out
