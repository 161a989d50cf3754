"""Look-up of words in a table."""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC, FLOATS, check_dtype

IDS = (torch.int32, torch.int64)


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def embedding(self, ids: torch.Tensor, table: torch.Tensor, out: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=FLOATS, index=IDS))
def _embedding(dtype: torch.dtype, index: torch.dtype) -> kjit.Spec:
    check_dtype("embedding", dtype)
    if index not in IDS:
        raise TypeError(f"embedding: ids of {index} are neither torch.int32 nor torch.int64")
    args = kjit.make_cpp_args(dtype, index)
    wrappers = [("embedding", f"Embedding<{args}>::run")]
    return kjit.Spec("embedding", *args, cuda_files=[CSRC / "embedding.cuh"], cuda_wrappers=wrappers)


def _rows(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return table.new_empty((ids.shape[0], table.shape[1]))


@kjit.torch_op(outputs=_rows)
def embedding(ids: torch.Tensor, table: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Take rows of a table: `table[ids]`, and zeros for an id that it has no row for, such as -1.

    Args:
        ids: int32[N] or int64[N].
        table: T[V, D], contiguous; T is bfloat16, float16 or float32.
        out: T[N, D]; takes the result and is returned. It must not overlap the table.

    Raises:
        TypeError: T, or the dtype of `ids`, is another one.
        RuntimeError: a tensor is not contiguous, or its shape, dtype or device does not fit.
        kjit.KjitError: ids is not on a GPU, or a gradient is required.
    """
    if out is None:
        out = _rows(ids, table)
    _embedding(table.dtype, ids.dtype, device=ids).embedding(ids, table, out)
    return out
