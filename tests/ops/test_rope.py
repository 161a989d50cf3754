"""RMSNorm of heads and rotary position embedding against their formulas in float64."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops.rope import qknorm, qknorm_rope, rope

device = kjit.testing.device_fixture("cuda")
EPS = 1e-5


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotate(x: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor, is_neox: bool) -> torch.Tensor:
    cos, sin = cos_sin_cache.double()[positions.long(), None].chunk(2, -1)
    x, rest = x.double().split([2 * cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], -1)
    a, b = x.chunk(2, -1) if is_neox else (x[..., ::2], x[..., 1::2])
    pairs = (a * cos - b * sin, b * cos + a * sin)
    rotated = torch.cat(pairs, -1) if is_neox else torch.stack(pairs, -1).flatten(-2)
    return torch.cat([rotated, rest], -1)


def norm_both(
    q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return norm(q, q_weight, eps), norm(k, k_weight, eps)


def rotate_both(
    q: torch.Tensor, k: torch.Tensor, cos_sin_cache: torch.Tensor, positions: torch.Tensor, is_neox: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return rotate(q, cos_sin_cache, positions, is_neox), rotate(k, cos_sin_cache, positions, is_neox)


def norm_and_rotate(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    is_neox: bool,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return rotate_both(*norm_both(q, k, q_weight, k_weight, eps), cos_sin_cache, positions, is_neox)


REFERENCES = {qknorm: norm_both, rope: rotate_both, qknorm_rope: norm_and_rotate}


def projection(tokens: int, heads: tuple[int, int], dim: int, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """q, k and v, slices of one tensor."""
    qkv = kjit.testing.random_tensor((tokens, heads[0] + 2 * heads[1], dim), dtype, device)
    return list(qkv.split([heads[0], heads[1], heads[1]], 1))


def table(rotary_dim: int, device: str) -> torch.Tensor:
    angles = torch.arange(500)[:, None] * 10_000.0 ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)
    return torch.cat([angles.cos(), angles.sin()], -1).float().to(device)


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected.to(actual.dtype), **kjit.testing.tolerances(actual.dtype))


@pytest.mark.parametrize(
    ("dtype", "dim"), [(torch.bfloat16, 128), (torch.float16, 80), (torch.float32, 64), (torch.bfloat16, 512)]
)
@pytest.mark.parametrize(("tokens", "heads"), [(0, (4, 2)), (1, (5, 1)), (65, (8, 2)), (3, (4, 0))])
def test_qknorm(tokens: int, heads: tuple[int, int], dtype: torch.dtype, dim: int, device: str) -> None:
    q, k, v = projection(tokens, heads, dim, dtype, device)
    weights = [kjit.testing.random_tensor((dim,), dtype, device) for _ in range(2)]
    expected, v_before = [norm(x, weight) for x, weight in zip((q, k), weights, strict=True)], v.clone()
    qknorm(q, k, *weights, EPS)
    check(q, expected[0])
    check(k, expected[1])
    assert torch.equal(v, v_before)


@pytest.mark.parametrize(
    ("dtype", "dim", "rotary_dim", "is_neox", "index"),
    [
        (torch.bfloat16, 128, 128, True, torch.int64),
        (torch.bfloat16, 128, 64, True, torch.int64),
        (torch.float32, 256, 128, False, torch.int32),
        (torch.float16, 80, 48, False, torch.int32),
        (torch.bfloat16, 512, 64, True, torch.int32),
    ],
)
@pytest.mark.parametrize(("tokens", "heads"), [(0, (4, 2)), (1, (5, 1)), (65, (8, 2))])
def test_rope_alone_and_after_a_norm(
    tokens: int,
    heads: tuple[int, int],
    dtype: torch.dtype,
    dim: int,
    rotary_dim: int,
    is_neox: bool,
    index: torch.dtype,
    device: str,
) -> None:
    q, k, _ = projection(tokens, heads, dim, dtype, device)
    cache = table(rotary_dim, device)
    positions = torch.randint(500, (tokens,), dtype=index, device=device)
    weights = [kjit.testing.random_tensor((dim,), dtype, device) for _ in range(2)]
    before = q.clone(), k.clone()
    rope(q, k, cache, positions, is_neox)
    check(q, rotate(before[0], cache, positions, is_neox))
    check(k, rotate(before[1], cache, positions, is_neox))

    q.copy_(before[0])
    k.copy_(before[1])
    qknorm_rope(q, k, *weights, cache, positions, is_neox, EPS)
    check(q, rotate(norm(before[0], weights[0]), cache, positions, is_neox))
    check(k, rotate(norm(before[1], weights[1]), cache, positions, is_neox))


def test_what_does_not_fit_is_refused(device: str) -> None:
    q, k, _ = projection(3, (4, 2), 128, torch.bfloat16, device)
    weight, positions = torch.ones(128, dtype=torch.bfloat16, device=device), torch.arange(3, device=device)
    with pytest.raises(RuntimeError, match="Size mismatch"):
        qknorm(q, k, weight, weight[:64], EPS)
    with pytest.raises(RuntimeError, match="rotary_dim is 24, not a multiple of 16 up to 128"):
        rope(q, k, table(24, device), positions)
    with pytest.raises(RuntimeError, match="Size mismatch"):
        rope(q, k, table(64, device), positions[:2])
    with pytest.raises(TypeError, match="float32 are neither"):
        rope(q, k, table(64, device), positions.float())
    with pytest.raises(TypeError, match="float64 is not one of"):
        qknorm(q.double(), k.double(), weight, weight)


@pytest.mark.nightly
def test_torch_compile_takes_it_whole(device: str) -> None:
    q, k, _ = projection(3, (4, 2), 128, torch.bfloat16, device)
    weight = torch.ones(128, dtype=torch.bfloat16, device=device)
    expected = norm(q, weight)

    def call(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        qknorm(q, k, weight, weight, EPS)
        return q * 1

    check(torch.compile(call, fullgraph=True)(q, k), expected)
