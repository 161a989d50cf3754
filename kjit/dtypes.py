"""Dtypes that PyTorch computes with: accepted names, kind and size.

People arrive with three vocabularies (C++ `fp16_t`, torch `float16`, short `fp16` or `half`) and need not learn which
one is meant. torch has uint16, uint32 and uint64 tensors, too, but next to no arithmetic on them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from kjit.spec import CPP_DTYPES


@dataclass(frozen=True)
class DType:
    """An element type, by its torch name.

    Args:
        name: in torch.
        short: as people write it: `bf16`.
    """

    name: str
    short: str

    @property
    def cpp(self) -> str:
        """Its name in C++."""
        return CPP_DTYPES[self.name]

    @property
    def kind(self) -> Literal["float", "int", "bool"]:
        return "bool" if self.name == "bool" else "float" if "float" in self.name else "int"

    @property
    def bytes(self) -> int:
        """The size of an element."""
        bits = re.search(r"\d+", self.name)
        return int(bits[0]) // 8 if bits is not None else 1

    @property
    def is_fp8(self) -> bool:
        return self.kind == "float" and self.bytes == 1

    def __str__(self) -> str:
        return self.name


_ALIASES = {
    "float64": ("fp64", "f64", "fp64_t"),
    "float32": ("fp32", "f32", "float"),
    "float16": ("fp16", "f16", "half"),
    "bfloat16": ("bf16",),
    "float8_e4m3fn": ("fp8_e4m3", "fp8_e4m3fn", "float8_e4m3", "fp8"),
    "float8_e5m2": ("fp8_e5m2",),
    "int8": ("int8", "i8"),
    "int16": ("int16", "i16", "short"),
    "int32": ("int32", "i32", "int"),
    "int64": ("int64", "i64", "long"),
    "uint8": ("uint8", "u8"),
    "bool": ("bool",),
}

DTYPES = {
    alias: dtype
    for name, aliases in _ALIASES.items()
    for dtype in [DType(name, aliases[0])]
    for alias in dict.fromkeys((name, dtype.cpp, *aliases))
}
"""Every name that is understood, and its dtype."""


def find_dtype(text: str) -> DType | None:
    """The dtype that `text` names, or None. `torch.float16` is `float16`."""
    return DTYPES.get(text.removeprefix("torch."))


def suggest_dtype(text: str) -> str:
    """A hint for a name that is not a dtype: the nearest one, or the list of them."""
    names = list(dict.fromkeys(dtype.name for dtype in DTYPES.values()))
    plain = text.removeprefix("torch.").lower()
    near = difflib.get_close_matches(plain, names, n=1) or difflib.get_close_matches(plain, DTYPES, n=1)
    return f"did you mean {DTYPES[near[0]].name}?" if near else f"the dtypes are {', '.join(names)}"
