"""An op without a kernel, and whether its calls run in C++."""

from __future__ import annotations

import sys
from typing import Any

import torch

import kjit
from kjit.runtime import native

X = torch.tensor([1.0, 2.0])


def make_op() -> Any:
    @kjit.torch_op("kjit_eager_tests::copy", outputs=torch.empty_like)
    def copy(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        return out.copy_(x)

    return copy


def runs_in_cpp(op: Any) -> bool:
    """Whether a call goes where the function's `__dict__` says, which no Python reads."""
    _, *others = road = op.__dict__["_kjit_road"]
    op.__dict__["_kjit_road"] = (lambda *_, **__: "C++", *others)
    try:
        # Unpacked, for then 3.11 asks the function, too.
        by_interpreter = op(*(X,)) == "C++"
    finally:
        op.__dict__["_kjit_road"] = road
    if sys.version_info[:2] == (3, 11):
        assert by_interpreter is (native.cell_of(op, "_kjit_direct").cell_contents is not None)
    return by_interpreter
