"""kjit.scaffold.cases: the arguments of an op's test, and its expected results."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from matrix import Op

import kjit.testing
from kjit.scaffold.cases import MANY
from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op


def generated_test(root: Path, op: Op) -> str:
    scaffold = scaffold_op(
        op.name,
        op.signature,
        pattern=op.pattern,
        devices=parse_devices(op.devices),
        dtypes=None if op.dtypes is None else parse_dtypes(op.dtypes),
        start=root,
    )
    return next(file.text for file in scaffold.files.files if file.path.name == f"test_{op.name}.py")


def defined_in(text: str, *names: str) -> dict[str, Any]:
    """The top-level functions of these names in a generated file."""
    namespace: dict[str, Any] = {"Any": Any, "kjit": kjit, "math": math, "torch": torch}
    chosen = ast.parse(text)
    chosen.body = [node for node in chosen.body if isinstance(node, ast.FunctionDef) and node.name in names]
    exec(compile(chosen, "test", "exec"), namespace)
    return namespace


def attributes_in(text: str) -> dict[str, Any]:
    """The attributes of the class in a generated test."""
    (of_tests,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    assignments = ast.Module([node for node in of_tests.body if isinstance(node, ast.Assign)], [])
    attributes: dict[str, Any] = {}
    exec(compile(assignments, "test", "exec"), {"kjit": kjit}, attributes)
    return attributes


def shapes_in(text: str) -> list[tuple[int, ...]]:
    """The shapes of the main tensor with which a generated test calls its op."""
    attributes = attributes_in(text)
    return [attributes["shape"], *attributes["shapes"]]


@pytest.mark.parametrize(
    ("pattern", "signature", "rows_of_table"),
    [
        ("elementwise", "x: T[N, 4096] -> out: T[N, 4096]", None),
        ("rowwise", "x: T[N, 4096] -> out: T[N, 4096]", None),
        ("rowwise", "x: T[B, S, 4096], weight: T[4096] -> out: T[B, S, 4096]", None),
        ("rowwise", "x: T[B, S, H, W, 4096] -> out: T[B, S, H, W, 4096]", None),
        ("gather", "src: T[M, H, D], index: int32[B, 4096] -> out: T[B, 4096, H, D]", None),
        ("gather", "src: T[100000, D], index: int64[N] -> out: T[N, D]", 100_000),
        ("gather", "src: T[100000, H, D], index: int64[N] -> out: T[N, H, D]", 100_000),
    ],
)
def test_sizes_of_its_own_do_not_make_the_tensors_of_an_op_too_large_for_a_test(
    tmp_path: Path, pattern: str, signature: str, rows_of_table: int | None
) -> None:
    shapes = shapes_in(generated_test(tmp_path, Op("hidden", signature, pattern=pattern)))
    assert max(math.prod(shape) for shape in shapes) <= MANY
    if rows_of_table is not None:
        assert max(rows_of_table * math.prod(shape[1:]) for shape in shapes) <= MANY
    assert len(shapes) > 10


def test_an_op_whose_own_sizes_are_too_large_is_tested_with_few_rows(tmp_path: Path) -> None:
    signature = "x: T[N, 4096, 4096] -> out: T[N, 4096, 4096]"
    shapes = shapes_in(generated_test(tmp_path, Op("huge", signature)))
    assert {shape[0] for shape in shapes} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("pattern", "signature", "shape"),
    [
        ("elementwise", "x: float32[N, N] -> out: float32[N, N]", "(7, 7)"),
        ("rowwise", "x: float32[4, 128] -> out: float32[4, 128]", "(4, 128)"),
        ("rowwise", "x: T[B, D] -> out: T[B, D]", "(4096, size)"),
        ("gather", "src: float32[M], index: int64[1] -> out: float32[1]", "(1,)"),
        ("gather", "src: float32[M, D], index: int64[1] -> out: float32[1, D]", "(1, size)"),
        ("custom", "x: T[M, K], w: T[K, N] -> out: T[M, N]", "(size, 1024, 1024)"),
    ],
)
def test_the_benchmark_varies_a_size_if_one_can_grow(tmp_path: Path, pattern: str, signature: str, shape: str) -> None:
    files = scaffold_op("an_op", signature, pattern=pattern, start=tmp_path).files.files
    text = next(file.text for file in files if file.path.name == "bench_an_op.py")
    assert f"    return {shape}\n" in text
    assert ("x_vals=[1]" in text) == ("size" not in shape)


def test_no_test_has_a_size_of_0_by_which_another_is_found(tmp_path: Path) -> None:
    """Of `H*D`, which is 0 then, `H` could be anything."""
    text = generated_test(tmp_path, Op("split", "w: T[D], x: T[H*D] -> out: T[H]", pattern="custom"))
    shapes = shapes_in(text)
    assert min(d for d, _ in shapes) == 1
    assert min(h for _, h in shapes) == 0
    text = generated_test(tmp_path, Op("split", "w: T[D], x: T[N, H*D] -> out: T[H]", pattern="custom"))
    assert 0 in {n for _, n, _ in shapes_in(text)}
