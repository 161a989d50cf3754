"""kjit.scaffold.python: a wrapper's code before the call of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kjit.scaffold.new import scaffold_op


def wrapper_of(root: Path, signature: str) -> dict[str, Any]:
    """The names that the generated wrapper of an op defines."""
    scaffold = scaffold_op("split", signature, pattern="custom", start=root)
    (wrapper,) = (file for file in scaffold.files.files if file.path.name == "split.py")
    namespace: dict[str, Any] = {"__name__": "of_test_python.split", "__file__": str(wrapper.path)}
    exec(compile(wrapper.text, str(wrapper.path), "exec", dont_inherit=True), namespace)
    return namespace


def shape_of_new(root: Path, signature: str) -> Callable[..., tuple[int, ...]]:
    """The shape of the output that is allocated, for the shapes of the inputs."""
    empty = wrapper_of(root, signature)["_empty"]
    return lambda *given: tuple(
        empty(*(torch.empty(each) if isinstance(each, tuple) else each for each in given)).shape
    )


@pytest.mark.parametrize(
    ("signature", "given", "allocated"),
    [
        ("x: T[N, H*D], w: T[D] -> out: T[N, H]", [(3, 12), (4,)], (3, 3)),
        ("x: T[N, H*D], w: T[D] -> out: T[N, H]", [(3, 12), (0,)], (3, 12)),
        ("x: T[N, H*D], w: T[D] -> out: T[N, H]", [(3, 0), (0,)], (3, 0)),
        ("x: T[N, 2*H*D], w: T[D] -> out: T[N, H]", [(3, 12), (0,)], (3, 12)),
        ("x: T[N, H*D/4], w: T[D] -> out: T[N, H]", [(3, 6), (8,)], (3, 3)),
        ("x: T[N+5] -> out: T[N]", [(7,)], (2,)),
        ("x: T[N+5] -> out: T[N]", [(3,)], (0,)),
        ("x: T[N] -> out: T[N-1]", [(0,)], (0,)),
        ("x: T[A+B], w: T[B] -> out: T[A, 2]", [(3,), (5,)], (0, 2)),
        ("x: T[N], g: const int = 2 -> out: T[N/g]", [(8,), 2], (4,)),
        ("x: T[N], g: const int = 2 -> out: T[N/g]", [(8,), 0], (8,)),
    ],
)
def test_an_output_is_allocated_for_any_shape_of_the_inputs(
    tmp_path: Path, signature: str, given: list[Any], allocated: tuple[int, ...]
) -> None:
    """If no size is valid, the checks in C++ raise the error, with the name of the argument."""
    assert shape_of_new(tmp_path, signature)(*given) == allocated


def test_an_output_that_is_like_a_tensor_of_a_list_is_allocated_after_it(tmp_path: Path) -> None:
    wrapper = wrapper_of(tmp_path, "xs: list[T[..., 2*D]] -> out: T[..., D], rows: int64[...]")
    out, rows = wrapper["_empty"]([torch.empty(3, 5, 8)])
    assert (out.shape, rows.shape, rows.dtype) == ((3, 5, 4), (3, 5), torch.int64)
    for call in (wrapper["_empty"], wrapper["split"]):
        with pytest.raises(ValueError, match="split: xs: expected 1 tensor or more but got 0"):
            call([])
