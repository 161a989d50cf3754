"""CUDA ops as `kjit new` writes them, compiled for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from machine import QUICKLY

import kjit
from kjit.scaffold.new import parse_devices, scaffold_op


def build(folder: Path, op: str, signature: str, *, pattern: str, dtypes: Iterable[str]) -> Any:
    """The module of an op, with an export for each of the dtypes, which are named as in C++ (`fp32_t`)."""
    scaffold = scaffold_op(op, signature, pattern=pattern, devices=parse_devices("cuda"), start=folder)
    source = folder / f"{op}.cuh"
    source.write_text(next(file.text for file in scaffold.files.files if file.path.name == source.name))
    struct = op.title().replace("_", "")
    return kjit.load_jit(
        op,
        cuda_files=[source],
        cuda_wrappers=[(dtype, f"{struct}<{dtype}>::run") for dtype in dtypes],
        extra_cuda_cflags=list(QUICKLY),
    )
