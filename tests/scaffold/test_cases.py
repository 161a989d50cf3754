"""kjit.scaffold.cases: with what the test of an op calls it."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from matrix import OPS, Op

from kjit.scaffold.cases import MANY
from kjit.scaffold.new import parse_devices, scaffold_op

SHAPES_OF = ("SHAPE", "LENGTHS", "LONG", "SIZES", "SHAPES")


def generated_test(root: Path, op: Op) -> str:
    scaffold = scaffold_op(
        op.name, op.signature, pattern=op.pattern, devices=parse_devices(op.devices), simd=op.simd, start=root
    )
    return next(file.text for file in scaffold.files.files if file.path.name == f"test_{op.name}.py")


def shapes_in(text: str) -> list[tuple[int, ...]]:
    """The shapes of the main tensor with which a generated test calls its op."""
    namespace: dict[str, list[tuple[int, ...]]] = {}
    for node in ast.parse(text).body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id in SHAPES_OF:
            exec(compile(ast.Module([node], []), "shapes", "exec"), namespace)
    return [namespace["SHAPE"], *namespace["SHAPES"]]  # type: ignore[list-item]


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


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_op_with_small_sizes_is_tested_around_every_length(tmp_path: Path, op: Op) -> None:
    assert "if size <=" not in generated_test(tmp_path, op)
