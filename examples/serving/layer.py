"""A decoder layer in two ways: with kjit's ops around PyTorch's attention and matrix products, and in plain PyTorch.

Both take one token of each sequence, write its keys and values into a paged cache, and attend to all tokens before it.
The down projection is in fp8: its input is quantised for each token, its weights were for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from kjit.ops.activation import silu_and_mul
from kjit.ops.kv_cache import store_kv_cache
from kjit.ops.norm import fused_add_rmsnorm
from kjit.ops.quant import per_token_quant_fp8
from kjit.ops.rope import qknorm_rope

DTYPE = torch.bfloat16
FP8 = torch.float8_e4m3fn
LARGEST_FP8 = 448.0
EPS = 1e-6


@dataclass(frozen=True)
class Sizes:
    """The sizes of a layer's tensors; `length` tokens of each of `batch` sequences fit into the cache."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 14336
    batch: int = 32
    length: int = 1024

    @property
    def parts(self) -> list[int]:
        """The numbers of elements of a token's projection that are queries, keys and values."""
        return [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]


class Batch(NamedTuple):
    """The inputs of all layers that depend on the tokens.

    Attributes:
        positions: int64[batch].
        slots: int64[batch], the rows of the caches for their keys and values.
        bias: T[batch, 1, 1, length], added by attention: minus infinity for tokens that are not there yet.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def at(cls, positions: torch.Tensor, sizes: Sizes) -> Batch:
        """One token of each sequence, whose tokens lie one after another in the caches."""
        places = torch.arange(sizes.length, device=positions.device)
        bias = torch.zeros(sizes.batch, 1, 1, sizes.length, dtype=DTYPE, device=positions.device)
        bias.masked_fill_((places > positions[:, None])[:, None, None], float("-inf"))
        first = torch.arange(sizes.batch, device=positions.device) * sizes.length
        return cls(positions, first + positions, bias)


class Layer:
    """Weights and cache of one layer, on one device, with random values."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        def random(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, device=device) / shape[-1] ** 0.5).to(DTYPE)

        def norm(size: int) -> torch.Tensor:
            return torch.rand(size, device=device).add(0.5).to(DTYPE)

        self.sizes = sizes
        self.norm, self.second_norm = norm(sizes.hidden), norm(sizes.hidden)
        self.q_norm, self.k_norm = norm(sizes.head_dim), norm(sizes.head_dim)
        self.qkv = random(sum(sizes.parts), sizes.hidden)
        self.out = random(sizes.hidden, sizes.heads * sizes.head_dim)
        self.gate_up = random(2 * sizes.intermediate, sizes.hidden)
        self.down, self.down_scale = quantise_rows(random(sizes.hidden, sizes.intermediate))
        slots = sizes.batch * sizes.length
        self.k_cache = torch.zeros(slots, sizes.parts[1], dtype=DTYPE, device=device)
        self.v_cache = torch.zeros_like(self.k_cache)
        self.cos_sin = rotations(sizes.length, sizes.head_dim).to(device)

    def attend(self, q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """PyTorch's attention of T[batch, heads, head_dim] to the cache."""
        sizes = self.sizes
        shape = (sizes.batch, sizes.length, sizes.kv_heads, sizes.head_dim)
        keys, values = (cache.view(shape).transpose(1, 2) for cache in (self.k_cache, self.v_cache))
        # Heads that share their keys take the dimension of the tokens.
        q = q.unflatten(1, (sizes.kv_heads, -1))
        bias = bias.expand(-1, *q.shape[1:3], -1)
        return functional.scaled_dot_product_attention(q, keys, values, attn_mask=bias).reshape(sizes.batch, -1)

    def project_down(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """The product of fp8[batch, intermediate], with a scale for each row, and the weights."""
        if x.is_cuda:
            return torch._scaled_mm(x, self.down.t(), scale, self.down_scale.t(), out_dtype=DTYPE)
        return ((x.float() * scale) @ (self.down.float() * self.down_scale).t()).to(DTYPE)

    def with_kjit(self, x: torch.Tensor, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The sum to add to the residual, which is changed in place, as is x; all three are T[batch, hidden]."""
        sizes = self.sizes
        fused_add_rmsnorm(x, residual, self.norm, EPS)
        q, k, v = functional.linear(x, self.qkv).split(sizes.parts, dim=-1)
        q, k_heads = q.unflatten(-1, (-1, sizes.head_dim)), k.unflatten(-1, (-1, sizes.head_dim))
        qknorm_rope(q, k_heads, self.q_norm, self.k_norm, self.cos_sin, batch.positions, eps=EPS)
        store_kv_cache(k, v, self.k_cache, self.v_cache, batch.slots)
        x = functional.linear(self.attend(q, batch.bias), self.out)
        fused_add_rmsnorm(x, residual, self.second_norm, EPS)
        return self.project_down(*per_token_quant_fp8(silu_and_mul(functional.linear(x, self.gate_up))))

    def with_torch(self, x: torch.Tensor, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The same in plain PyTorch."""
        sizes = self.sizes
        residual += x
        q, k, v = functional.linear(rms_norm(residual, self.norm), self.qkv).split(sizes.parts, dim=-1)
        q, k = (each.unflatten(-1, (-1, sizes.head_dim)) for each in (q, k))
        q = rotate(rms_norm(q, self.q_norm), self.cos_sin, batch.positions)
        k = rotate(rms_norm(k, self.k_norm), self.cos_sin, batch.positions)
        self.k_cache[batch.slots] = k.flatten(1)
        self.v_cache[batch.slots] = v
        residual += functional.linear(self.attend(q, batch.bias), self.out)
        gate, up = functional.linear(rms_norm(residual, self.second_norm), self.gate_up).float().chunk(2, dim=-1)
        return self.project_down(*quantise_rows((functional.silu(gate) * up).to(DTYPE)))


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight.float()).to(x.dtype)


def rotations(length: int, head_dim: int) -> torch.Tensor:
    """float32[length, head_dim]: cosines of each position's angles, then sines."""
    frequencies = 10_000.0 ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(torch.arange(length), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def rotate(heads: torch.Tensor, cos_sin: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    a, b = heads.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(heads.dtype)


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """fp8 of the shape of x, and float32[rows, 1] to multiply it by."""
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True) * (1 / LARGEST_FP8)
    return (wide / scale.clamp(min=1e-12)).clamp(-LARGEST_FP8, LARGEST_FP8).to(FP8), scale
