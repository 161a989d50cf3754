"""Names of dtypes: accepted spellings, and the names in torch and in C++.

People arrive with three vocabularies (C++ `fp16_t`, torch `float16`, short `fp16` or `half`) and should not have to
learn which one is meant. The one table below is what `--dtypes` and the signature language read. It holds the dtypes
that PyTorch can compute with: torch has uint16, uint32 and uint64 tensors but next to no arithmetic on them, so that a
scaffold could not be compared with anything.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DType:
    """An element type: its torch name (the canonical one), its C++ name, its kind and its size in bytes."""

    name: str
    cpp: str
    kind: Literal["float", "int", "bool"]
    bytes: int

    @property
    def is_fp8(self) -> bool:
        return self.kind == "float" and self.bytes == 1

    def __str__(self) -> str:
        return self.name


_TABLE: tuple[tuple[DType, tuple[str, ...]], ...] = (
    (DType("float64", "double", "float", 8), ("fp64", "f64", "fp64_t")),
    (DType("float32", "fp32_t", "float", 4), ("fp32", "f32", "float")),
    (DType("float16", "fp16_t", "float", 2), ("fp16", "f16", "half")),
    (DType("bfloat16", "bf16_t", "float", 2), ("bf16",)),
    (DType("float8_e4m3fn", "fp8_e4m3_t", "float", 1), ("fp8_e4m3", "fp8_e4m3fn", "float8_e4m3", "fp8")),
    (DType("float8_e5m2", "fp8_e5m2_t", "float", 1), ("fp8_e5m2",)),
    (DType("int8", "int8_t", "int", 1), ("i8",)),
    (DType("int16", "int16_t", "int", 2), ("i16", "short")),
    (DType("int32", "int32_t", "int", 4), ("i32", "int")),
    (DType("int64", "int64_t", "int", 8), ("i64", "long")),
    (DType("uint8", "uint8_t", "int", 1), ("u8",)),
    (DType("bool", "bool", "bool", 1), ()),
)

DTYPES: dict[str, DType] = {
    alias: dtype for dtype, aliases in _TABLE for alias in dict.fromkeys((dtype.name, dtype.cpp, *aliases))
}
"""Every name that is understood, and its dtype."""

BY_HAND = 'see "Adding a kernel by hand", docs/adding-a-kernel.md'
"""The page that helps with what a scaffold cannot do."""

DEFAULT_DTYPES = (DTYPES["float32"], DTYPES["float16"], DTYPES["bfloat16"])


def find_dtype(text: str) -> DType | None:
    """The dtype that `text` names, or None. `torch.float16` is `float16`."""
    return DTYPES.get(text.removeprefix("torch."))


def suggest_dtype(text: str) -> str:
    """A hint for a name that is none: the nearest one, or the list of them."""
    plain = text.removeprefix("torch.").lower()
    if plain.startswith(("uint16", "uint32", "uint64")):
        return f"PyTorch has no arithmetic on that dtype; use int32 or int64, or {BY_HAND}"
    if re.match(
        r"complex|float4|fp4|nvfp4|mxfp|fp6|float6|e2m1|e8m0|float8_e8m0|q?u?int[1-7]\b|u?int4|qu?int|bits|tf32", plain
    ):
        return f"no scaffold has that dtype; {BY_HAND}"
    if plain in DTYPES:
        return f"write {DTYPES[plain].name}"
    canonical = [dtype.name for dtype, _ in _TABLE]
    near = difflib.get_close_matches(plain, canonical, n=1) or difflib.get_close_matches(plain, list(DTYPES), n=1)
    return f"did you mean {near[0]}?" if near else f"the dtypes are {', '.join(canonical)}"
