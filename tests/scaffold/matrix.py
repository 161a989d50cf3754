"""Ops of every pattern with every form of signature that it serves, for the tests of scaffolds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op


@dataclass(frozen=True)
class Op:
    """An op to scaffold: its name, its signature and the names of its dtypes."""

    name: str
    signature: str | None = None
    dtypes: str | None = None
    devices: str = "cuda,cpu"
    pattern: str = "elementwise"

    def write(self, root: Path, *, run_formatters: bool = False) -> None:
        scaffold_op(
            self.name,
            self.signature,
            pattern=self.pattern,
            devices=parse_devices(self.devices),
            dtypes=None if self.dtypes is None else parse_dtypes(self.dtypes),
            start=root,
            run_formatters=run_formatters,
        ).files.write()


ELEMENTWISE = [
    Op("scale"),
    Op("add3", "a: T[N], b: T[N], c: T[N], alpha: float, beta: float, shift: int, flag: bool -> out: T[N]"),
    Op("bump_", "x: mut T[N], amount: const int = 1", "int32,fp16"),
    Op("dequant", "q: int8[B, D], scale: float32[B, D] -> out: bf16[B, D]"),
    Op("mixed", "x: T[...], y: U[...], fast: const bool = True -> total: T[...], positive: bool[...]", "fp32,bf16"),
    Op("doubles", "x: float64[N, 8], a: float -> out: float32[N, 8]"),
    Op("square", "x: T[4, 8] -> out: T[4, 8]", "uint8,int64,fp64"),
    Op("narrow", None, "fp8,fp8_e5m2"),
    Op("logic", "a: bool[...], b: bool[...] -> both: bool[...], count: int32[...]"),
    Op("pair_", "a: mut T[R, C, R], b: mut T[R, C, R], c: float16[R, C, R], k: int = 3", "bf16"),
    Op("gate_halves", "x: T[..., 2*D], y: U[..., D], alpha: float = 1.0 -> out: T[..., D]", "bf16,fp32"),
    Op(
        "halves_",
        "x: float16[N, 2*D], w: T[N, 2*D], y: mut T[N, D], bias: Optional T[N, D] = None -> out: bool[N, D]",
        "fp32",
    ),
    Op("add_bias", "x: T[..., 8], kept: mut T[..., 8], bias: Optional T[..., 8] = None -> out: T[..., 8]", "fp32,int8"),
]
MINIMAL = [
    replace(op, name=f"{op.name.rstrip('_')}_min", pattern="minimal")
    for op in ELEMENTWISE
    if "2*D" not in (op.signature or "")
]
ROWWISE = [
    Op("rms_norm", pattern="rowwise"),
    Op("weigh", "a: T[B, D], b: T[B], c: T[D] -> out: T[B, D]", "fp32,fp64", pattern="rowwise"),
    Op("dequant_rows", "q: int8[B, D], scale: float32[B] -> out: bf16[B, D]", pattern="rowwise"),
    Op(
        "add_norm",
        "x: T[B, S, D], residual: mut T[B, S, D], weight: float32[D], bias: Optional T[D] = None, eps: float = 1e-6,"
        " fast: const bool = True -> out: fp8[B, S, D], scale: float32[B, S]",
        "bf16",
        pattern="rowwise",
    ),
    Op(
        "row_rms",
        "x: T[..., D], weight: U[D], n: int = 2 -> rms: float32[...], count: int32[...]",
        "fp16,int32",
        pattern="rowwise",
    ),
    Op(
        "row_sums",
        "x: T[B, D], l: T[B, 1], scale: float32[B] -> rms: float32[B, 1], half: T[B]",
        "fp32",
        pattern="rowwise",
    ),
    Op(
        "norm_",
        "x: mut T[N, 128], gain: Optional float32[N] = None, a: float = 1.0, b: float = 2.0",
        "bf16",
        pattern="rowwise",
    ),
]
GATHER = [
    Op("take_rows", pattern="gather"),
    Op(
        "embed",
        "table: T[V, D], ids: int32[...], bias: Optional T[D] = None, alpha: float = 1.0 -> out: float32[..., D]",
        "bf16,fp32",
        pattern="gather",
    ),
    Op(
        "add_rows_",
        "acc: mut T[N, H, 64], table: T[M, H, 64], index: int64[N], gate: float32[N]",
        "fp16",
        pattern="gather",
    ),
    Op(
        "pick",
        "a: T[M], b: T[M], index: int64[N], k: const int = 2 -> both: T[N], big: bool[N]",
        "int64,fp64",
        pattern="gather",
    ),
    Op("move", "src: fp8_e5m2[1000, 96], index: int64[N] -> out: fp8_e5m2[N, 96]", pattern="gather"),
]
SCATTER = [
    Op("put", pattern="scatter"),
    Op(
        "store_kv",
        "k_cache: mut T[M, H, D], v_cache: mut T[M, H, D], slots: int64[...], k: T[..., H, D], v: T[..., H, D]",
        "bf16",
        pattern="scatter",
    ),
    Op(
        "quant_kv",
        "cache: mut fp8[M, D], slots: int32[N], x: bf16[N, D], scale: float32[N], bias: Optional bf16[D] = None,"
        " k: int = 3",
        pattern="scatter",
    ),
    Op("mark_", "seen: mut bool[M], ids: int64[N], x: T[N], twice: const bool = True", "int64,fp32", pattern="scatter"),
]
CUSTOM = [
    Op("matmul", pattern="custom"),
    Op(
        "rope_",
        "q: mut T[N, HQ, D], k: mut T[N, HK, D], positions: int64[N], cos_sin: Optional float32[P, D] = None,"
        " theta: float = 10000.0",
        "bf16,fp16",
        pattern="custom",
    ),
    Op(
        "anything",
        "x: T[..., 4], n: int64[M], yes: const bool, k: const int = 2 -> a: bool[..., M], b: fp8[2, 3], c: T[...]",
        "bf16,fp64",
        pattern="custom",
    ),
    Op("halve", "x: T[2*N] -> out: T[N]", "fp32", pattern="custom"),
    Op(
        "collect_",
        "xs: list[T[N, D]], ys: mut list[float32[N, D]], kept: mut T[N, 2*D] strided, w: T[D] strided, name: str,"
        ' mode: "sum" | "mean" = "sum", note: Optional str = None -> out: T[N]',
        "bf16",
        pattern="custom",
    ),
    Op("count", "ids: int32[8], seen: mut Optional int32[16] = None -> most: int64[]", pattern="custom"),
]
"""Ops whose kernels and references are to be written."""

OPS = [*ELEMENTWISE, *MINIMAL, *ROWWISE, *GATHER, *SCATTER]
"""All of them, each with a name of its own."""

LONG = [
    Op(
        "an_op_whose_name_has_32_letters_",
        "a_parameter_with_28_letters_: T[...], another_one_with_28_letters_: U[...], a_number: float = 1.0,"
        " another_number: int = 2, a_flag: bool = False -> the_first_of_two_outputs: T[...],"
        " the_second_of_two_outputs: U[...]",
    ),
    Op(
        "a_row_op_whose_name_is_very_long",
        "a_parameter_with_28_letters_: T[Rows, Columns], the_weight_has_28_letters_xx: T[Columns], an_epsilon: float ->"
        " the_output_has_28_letters_xx: float32[Rows, Columns]",
        pattern="rowwise",
    ),
    Op(
        "a_gather_whose_name_is_very_long",
        "a_parameter_with_28_letters_: T[Rows, Columns], the_index_with_28_letters_xx: int64[Chosen] ->"
        " the_output_has_28_letters_xx: float32[Chosen, Columns]",
        pattern="gather",
    ),
    Op(
        "embed_tokens",
        "weight: T[vocabulary_size, embedding_width], tokens: int64[number_of_tokens] ->"
        " out: T[number_of_tokens, embedding_width]",
        pattern="gather",
    ),
    Op(
        "norm_rows",
        "hidden_states: T[batch, features], attention_row_scales: fp32[batch], normalisation_weights: T[features] ->"
        " normalised: T[batch, features], row_norms: fp32[batch]",
        pattern="rowwise",
    ),
]
"""Ops whose names are as long as names may be, or as long as names often are."""

HUGE = [
    Op("hidden", "x: T[B, S, 4096], weight: T[4096] -> out: T[B, S, 4096]", pattern="rowwise"),
    Op("vocabulary", "table: T[50257, D], index: int64[B, 4096] -> out: T[B, 4096, D]", pattern="gather"),
]
"""Ops with large sizes of their own."""

PLANES = [
    Op("copy_planes", "x: uint8[65536, 65536, N] -> out: uint8[65536, 65536, N]"),
    Op("scale_planes", "x: T[65536, 65536, D] -> out: T[65536, 65536, D]", pattern="rowwise"),
    Op("sum_planes", "x: T[N, 65536, 8, 65536, D] -> out: float32[N, 65536, 8, 65536]", "fp32", pattern="rowwise"),
    Op("take_planes", "src: T[M, 65536, 65536], index: int64[N] -> out: T[N, 65536, 65536]", pattern="gather"),
    Op("fill_planes", "src: T[M, D], index: int64[65536, 65536] -> out: T[65536, 65536, D]", pattern="gather"),
]
"""Ops with sizes whose product is more than an `int` holds."""

RARE = [
    Op("gate_states", "hidden_states: T[..., 2*D] -> out: T[..., D]"),
    Op("accumulate", "a: float32[N], b: float32[N], c: float32[N] -> out: float64[N]"),
    Op("widen_", "x: T[N], y: mut U[N], z: Optional float16[N] = None -> out: T[N]", "fp64,fp32"),
    Op("cut_off", "a: int32[M, 96], b: float16[M, 96], index: int64[N] -> out: int64[N, 96]", pattern="gather"),
    Op("number", "x: T[1] -> out: T[1]"),
    Op("pick_row", "src: T[M, D], index: int64[1] -> out: T[1, D]", pattern="gather"),
    Op("pick_one", "src: T[M], index: int64[1] -> out: T[1]", pattern="gather"),
    Op("pick_few", "src: T[M], index: int32[N, 8] -> out: T[N, 8]", pattern="gather"),
    Op("square_matrix", "x: T[N, N] -> out: T[N, N]", pattern="rowwise"),
]
"""Ops whose tests have lines that those of others have not, or lack some."""


def named(*names: str) -> list[Op]:
    """The ops of these names."""
    found = {op.name: op for op in [*OPS, *CUSTOM]}
    return [found[name] for name in names]


def write_all(root: Path, ops: Sequence[Op], *, run_formatters: bool = False) -> None:
    """Write ops into one project."""
    for op in ops:
        op.write(root, run_formatters=run_formatters)
