"""The speed of norms and rotations of the heads of q and k, against PyTorch."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]
from op_cases import Case, measured, normal, sweeps

import kjit.benchmark
from kjit.ops.rope import qknorm, qknorm_rope, rope

Q_HEADS, K_HEADS, DIM = 32, 8, 128


def heads(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k, slices of one projection."""
    qkv = normal(rows, Q_HEADS + 2 * K_HEADS, DIM)
    return qkv[:, :Q_HEADS], qkv[:, Q_HEADS : Q_HEADS + K_HEADS]


def weights() -> tuple[torch.Tensor, torch.Tensor]:
    return normal(DIM), normal(DIM)


def places(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(8192, DIM, dtype=torch.float32), torch.randint(8192, (rows,), device="cuda")


def torch_norm(q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor) -> None:
    for x, weight in ((q, q_weight), (k, k_weight)):
        x.copy_(torch.nn.functional.rms_norm(x, (DIM,), weight, 1e-6))


def torch_rope(q: torch.Tensor, k: torch.Tensor, cache: torch.Tensor, positions: torch.Tensor) -> None:
    cos, sin = cache[positions, None].chunk(2, -1)
    for x in (q, k):
        a, b = x.float().chunk(2, -1)
        x.copy_(torch.cat([a * cos - b * sin, b * cos + a * sin], -1))


def torch_norm_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cache: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    torch_norm(q, k, q_weight, k_weight)
    torch_rope(q, k, cache, positions)


def nbytes(rows: int) -> int:
    return 4 * rows * (Q_HEADS + K_HEADS) * DIM


CASES = {
    "qknorm": Case(qknorm, torch_norm, lambda rows: (*heads(rows), *weights()), nbytes),
    "rope": Case(rope, torch_rope, lambda rows: (*heads(rows), *places(rows)), nbytes),
    "qknorm_rope": Case(qknorm_rope, torch_norm_rope, lambda rows: (*heads(rows), *weights(), *places(rows)), nbytes),
}


def measure(rows: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    return measured(CASES[op], rows, provider)


def bytes_moved(rows: int, op: str) -> int:
    return CASES[op].nbytes(rows)


benchmark = triton.testing.perf_report(sweeps(CASES, (1, 16, 256, 4096)))(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
