"""Ops of inference engines, with the math that their authors would put into the output of `kjit new`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from matrix import Op


@dataclass(frozen=True)
class RealOp:
    """An op, and what its author writes.

    Args:
        op: what is scaffolded.
        kernel: in place of the kernel's body, for one of pattern custom.
        reference: in place of what `reference` returns, or raises.
        edits: texts of the kernel's file that are replaced, each with another.
        inputs: the same of the test: arguments that random numbers cannot be.
    """

    op: Op
    kernel: str = ""
    reference: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()

    def write(self, root: Path, package: str) -> None:
        """Scaffold it in the project `root`, and write its math."""
        self.op.write(root)
        kernel, test = root / package / "csrc" / f"{self.op.name}.cuh", root / "tests" / f"test_{self.op.name}.py"
        text = kernel.read_text()
        if self.kernel:
            body = re.compile(r"(?<=the grid for it is below\.\n)(?:.|\n)*?(?=^}$)", re.MULTILINE)
            text, found = body.subn(lambda _: self.kernel.lstrip("\n"), text)
            assert found == 1, text
        kernel.write_text(_replaced(text, self.edits))
        text = test.read_text()
        if self.reference:
            end = re.compile(
                r"^    (?:raise kjit.testing.UnwrittenError|mean_square =|return x_left)(?:.|\n)*?(?=\n\n\ndef)",
                re.MULTILINE,
            )
            text, found = end.subn(lambda _: self.reference.strip("\n"), text)
            assert found == 1, text
        test.write_text(_replaced(text, self.inputs))


def _replaced(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    for before, after in edits:
        assert before in text, text
        text = text.replace(before, after)
    return text


def custom(name: str, signature: str, dtypes: str | None = "bf16") -> Op:
    return Op(name, signature, dtypes, devices="cuda", pattern="custom")


REAL = [
    RealOp(
        Op("silu_and_mul", "x: T[B, 2*D] -> out: T[B, D]", "bf16", "cuda"),
        reference="""
    return torch.nn.functional.silu(x_left) * x_right
""",
        edits=(("x_left + x_right", "x_left / (1 + exp(-x_left)) * x_right"),),
    ),
    RealOp(
        custom("rope_", "q: mut T[N, HQ, 2*R], k: mut T[N, HK, 2*R], positions: int64[N], cos_sin: float32[P, 2*R]"),
        """
  const int64_t pairs = (params.N * (params.HQ + params.HK)) * params.R;
  if (i >= pairs) return;
  const int64_t at = i % params.R, head = i / params.R % (params.HQ + params.HK);
  const int64_t row = i / params.R / (params.HQ + params.HK);
  T* const data = head < params.HQ ? params.q + (row * params.HQ + head) * 2 * params.R
                                   : params.k + (row * params.HK + head - params.HQ) * 2 * params.R;
  const float* const turn = params.cos_sin + params.positions[row] * 2 * params.R;
  const float x = widen(data[at]), y = widen(data[at + params.R]);
  data[at] = static_cast<T>(x * turn[at] - y * turn[at + params.R]);
  data[at + params.R] = static_cast<T>(y * turn[at] + x * turn[at + params.R]);
""",
        """
    cos, sin = cos_sin[positions].chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return turned(q), turned(k)
""",
        edits=(("div_ceil(", "div_ceil(params.N * (params.HQ + params.HK) * params.R + "),),
        inputs=(
            (
                "kjit.testing.random_tensor((n,), torch.int64, device)",
                "torch.randint(p, (n,), dtype=torch.int64, device=device)",
            ),
            ("        (3, 5, 2, 7, 0),\n", ""),
        ),
    ),
    RealOp(
        custom("quantise_groups", "x: T[B, D] -> out: fp8_e4m3[B, D], scales: float32[B, D/128]"),
        """
  if (i >= params.B * params.D / 128) return;
  const T* const group = params.x + i * 128;
  float largest = 0;
  for (int j = 0; j < 128; ++j) largest = fmaxf(largest, fabsf(widen(group[j])));
  params.scales[i] = largest / 448;
  for (int j = 0; j < 128; ++j) {
    params.out[i * 128 + j] = static_cast<fp8_e4m3_t>(largest == 0 ? 0.0f : widen(group[j]) * (448 / largest));
  }
""",
        """
    groups = x.unflatten(-1, (-1, 128))
    largest = groups.abs().amax(-1)
    inverse = torch.where(largest == 0, 0, 448 / largest)
    return (groups * inverse[..., None]).flatten(-2), largest / 448
""",
    ),
    RealOp(
        Op("quantise_rows", "x: T[B, D] -> out: int8[B, D], scale: float32[B]", "bf16", "cuda", "rowwise"),
        reference="""
    scale = torch.nn.functional.pad(x.abs(), (0, 1)).amax(-1) / 127
    inverse = torch.where(scale > 0, 1 / scale, 0)
    return x * inverse[:, None], scale
""",
        edits=(
            (
                "KJIT_MATH scalar_t<T> term(",
                "KJIT_MATH Max<float> term(",
            ),
            ("return x * x;", "return {abs(x)};"),
            ("scalar_t<T> row_total, scalar_t<T> row_size, float& scale", "Max<float> largest, float, float& scale"),
            ("const scalar_t<T> inverse_rms = rsqrt(row_total / row_size + scalar_t<T>(1e-6));", ""),
            ("scale = inverse_rms + 1;", "scale = largest.value > 0 ? largest.value / 127 : 0;"),
            ("return inverse_rms;", "return largest.value > 0 ? 127 / largest.value : 0;"),
        ),
    ),
    RealOp(
        Op(
            "store_pages_",
            "k_cache: mut T[M, H, D], v_cache: mut T[M, H, D], slots: int64[N], k: T[N, H, D], v: T[N, H, D]",
            "bf16",
            "cuda",
            "scatter",
        )
    ),
    RealOp(
        custom("top_k", "gates: T[N, E], k: const int = 2 -> weights: float32[N, k], experts: int32[N, k]", "fp32"),
        """
  if (i >= params.N) return;
  const T* const row = params.gates + i * params.E;
  float before = INFINITY;
  for (int64_t at = 0; at < k; ++at) {  // all of a row differ
    int best = -1;
    for (int e = 0; e < params.E; ++e) {
      if (row[e] < before && (best < 0 || row[e] > row[best])) best = e;
    }
    before = row[best];
    params.weights[i * k + at] = before;
    params.experts[i * k + at] = best;
  }
""",
        """
    weights, experts = gates.topk(k, -1)
    return weights, experts
""",
        inputs=(("(1, 1)", "(1, 2)"), (" (3, 0),", "")),
    ),
    RealOp(
        Op(
            "layer_norm",
            "x: T[B, D], weight: T[D], bias: Optional T[D] = None, eps: float = 1e-5 -> out: T[B, D]",
            "bf16",
            "cuda",
            "rowwise",
        ),
        reference="""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps) * weight + bias
""",
        edits=(
            (
                "KJIT_MATH scalar_t<T> term(",
                "struct Scaling {\n    float mean, factor;\n  };\n  KJIT_MATH Welford<float> term(",
            ),
            ("return x * x;", "return x;"),
            (
                "KJIT_MATH scalar_t<T> row(scalar_t<T> row_total, scalar_t<T> row_size) const",
                "KJIT_MATH Scaling row(Welford<float> total, float) const",
            ),
            ("return rsqrt(row_total / row_size + eps);", "return {total.mean, rsqrt(total.variance() + eps)};"),
            ("scalar_t<T> inverse_rms, compute_t<T> x", "Scaling row, compute_t<T> x"),
            ("out = x * inverse_rms * weight + bias;", "out = (x - row.mean) * row.factor * weight + bias;"),
        ),
    ),
    RealOp(
        custom("gather_layers_", "rows: mut list[T[N, D]], caches: list[T[M, D]], slots: int64[N]"),
        """
  if (i >= params.N * params.D) return;
  const int64_t source = params.slots[i / params.D] * params.D + i % params.D;
  for (int64_t layer = 0; layer < params.caches_count; ++layer) {
    params.rows[layer][i] = params.caches[layer][source];
  }
""",
        """
    return [cache[slots] for cache in caches]
""",
        inputs=(
            (
                "kjit.testing.random_tensor((n,), torch.int64, device)",
                "torch.randint(m, (n,), dtype=torch.int64, device=device)",
            ),
            ("        (3, 5, 0),\n", ""),
        ),
    ),
]
"""An activation, a rotary embedding, quantisers, the cache of keys and values, a choice, a norm, what moves data."""
