"""kjit.scaffold.cases: the arguments of an op's test, and its expected results."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from matrix import OPS, RARE, Op

import kjit.testing
from kjit.scaffold.cases import MANY
from kjit.scaffold.new import DEFAULT_DTYPES, parse_devices, parse_dtypes, scaffold_op


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


@pytest.mark.parametrize("op", [*OPS, *RARE], ids=lambda op: op.name)
def test_the_end_of_a_large_result_is_what_the_ends_of_large_inputs_give(tmp_path: Path, op: Op) -> None:
    """The test of 2**31 elements, with 2**20, on the CPU, and with the reference in place of the op."""
    text = generated_test(tmp_path, op).replace("2**31", "2**20")
    attributes = attributes_in(text)
    fixed = ("square", "square_min", "number", "pick_row", "pick_one", "square_matrix")
    has_none = op.name in fixed or op.pattern == "scatter"  # of which the end of a table says nothing
    assert ("huge_shape" in attributes) != has_none
    if has_none:
        return
    dtypes = [getattr(torch, dtype.name) for dtype in (parse_dtypes(op.dtypes) if op.dtypes else DEFAULT_DTYPES)]
    functions = defined_in(text, "reference", "make_inputs")
    make_inputs = functions["make_inputs"]
    variables = len(inspect.signature(make_inputs).parameters) - 2
    asked: list[int] = []
    ran: list[torch.Tensor] = []

    class OnCpu(kjit.testing.OpTest):
        mutated: ClassVar[list[str]] = []
        reference, inputs = staticmethod(functions["reference"]), staticmethod(make_inputs)

        @classmethod
        def make(cls, device: str, **others: Any) -> dict[str, Any]:
            assert device == "cuda"
            return super().make("cpu", **others)

        @classmethod
        def run(cls, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
            results = cls.expect(inputs)
            ran.extend(results)
            return results

    parameters = inspect.signature(functions["reference"]).parameters.values()
    tensors = [parameter.name for parameter in parameters if "Tensor" in str(parameter.annotation)]
    known = {"given": tensors, "outputs": ["out"], "variants": [(dtypes[0],) * variables]}
    for name, value in {**attributes, **known}.items():
        setattr(OnCpu, name, value)
    OnCpu().test_indexes_past_two_to_the_31(asked.append)
    assert max(result.numel() for result in ran) > 2**20 / 1024
    assert min(asked) >= 8 * 2**31 * 2


@pytest.mark.parametrize(
    ("pattern", "signature", "shape"),
    [
        ("elementwise", "x: float32[N, N] -> out: float32[N, N]", "(7, 7)"),
        ("rowwise", "x: float32[4, 128] -> out: float32[4, 128]", "(4, 128)"),
        ("rowwise", "x: T[B, D] -> out: T[B, D]", "(ROWS, size)"),
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
