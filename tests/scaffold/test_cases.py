"""kjit.scaffold.cases: with what the test of an op calls it, and what it holds the results against."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from matrix import OPS, RARE, Op

import kjit.testing
from kjit.scaffold.cases import MANY
from kjit.scaffold.dtypes import DEFAULT_DTYPES
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
    """What of these names a generated test defines at its top."""
    modules = {"itertools": itertools, "kjit": kjit, "math": math, "torch": torch}
    namespace: dict[str, Any] = {"Any": Any, "Callable": Callable, **modules}
    chosen = ast.parse(text)
    chosen.body = [node for node in chosen.body if _name_of(node) in names]
    exec(compile(chosen, "test", "exec"), namespace)
    return namespace


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""


def shapes_in(text: str) -> list[tuple[int, ...]]:
    """The shapes of the main tensor with which a generated test calls its op."""
    found = defined_in(text, "SHAPE", "LENGTHS", "LONG", "SIZES", "SHAPES")
    return [found["SHAPE"], *found["SHAPES"]]


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


@pytest.mark.parametrize("op", [*OPS, *RARE], ids=lambda op: op.name)
def test_the_end_of_a_large_result_is_what_the_ends_of_large_inputs_give(tmp_path: Path, op: Op) -> None:
    """The test of 2**31 elements, with 2**20, on the CPU, and with the reference in the place of the op."""
    text = generated_test(tmp_path, op)
    name = "test_indexes_past_two_to_the_31"
    fixed = ("square", "square_min", "number", "pick_row", "pick_one", "square_matrix")
    assert (name in text) == (op.name not in fixed)
    if op.name in fixed:
        return
    small = text.replace("@needs_gpu\n", "").replace('"cuda"', '"cpu"').replace("2**31", "2**20")
    helpers = ("reference", "make_inputs", "make", "choose", "expect", "wide", "check", "check_one")
    names = defined_in(small, name, "INPUTS", "TENSORS", "OPTIONAL", *helpers)
    dtypes = DEFAULT_DTYPES if op.dtypes is None else parse_dtypes(op.dtypes)
    asked: list[int] = []
    ran: list[torch.Tensor] = []

    def run(inputs: dict[str, Any]) -> Any:
        results = names["expect"](inputs)
        ran.extend(results if isinstance(results, tuple) else [results])
        return results

    names.update(DTYPES=[getattr(torch, dtype.name) for dtype in dtypes], run=run)
    names[name](asked.append)
    assert max(result.numel() for result in ran) > 2**20 / 1024
    assert asked == [8 * 2**20 * (len(names["TENSORS" if "TENSORS" in names else "INPUTS"]) + 1)]


def test_the_numbers_of_more_rows_than_an_int32_counts_fit_it(tmp_path: Path) -> None:
    assert "rows = max(1, min(math.prod(shape), 2**31 - 1))\n" in generated_test(tmp_path, rare("pick_few"))


def test_an_op_with_more_elements_in_every_test_has_no_test_for_as_many(tmp_path: Path) -> None:
    signature = "src: T[M, 65536, 65536], index: int64[N] -> out: T[N, 65536, 65536]"
    text = generated_test(tmp_path, Op("take_planes", signature, pattern="gather"))
    assert "two_to_the_31" not in text
    assert "gpu_memory" not in text
    assert "Callable" not in text


def rare(name: str) -> Op:
    return next(op for op in RARE if op.name == name)


def agree(text: str, actual: Sequence[float], expected: Sequence[float], dtype: torch.dtype, *given: object) -> bool:
    """Whether a generated test takes results of `dtype` for right."""
    names = defined_in(text, "INPUTS", "check", "check_one")
    result, right = torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=torch.float64)
    several = "check_one" in names
    try:
        names["check"](*(((result,), (right,)) if several else (result, right)), *given)
    except AssertionError:
        return False
    return True


def test_a_float64_is_held_to_what_the_tensors_that_it_is_made_of_allow(tmp_path: Path) -> None:
    text = generated_test(tmp_path, rare("widen_"))
    wide, narrow = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float32)
    for x, y, z, error, right in (
        (wide, wide, None, 1e-9, True),
        (wide, wide, None, 1e-6, False),
        (wide, narrow, None, 1e-6, True),
        (narrow, wide, None, 1e-6, True),
        (wide, wide, narrow.half(), 1e-6, True),
        (wide, narrow, None, 1e-4, False),
    ):
        inputs = {"x": x, "y": y, "z": z}
        assert agree(text, [1 + error], [1.0], torch.float64, inputs) == right, (inputs, error)


@pytest.mark.parametrize("name", ["scale", "mixed", "rms_norm", "take_rows", "doubles"])
def test_an_op_whose_results_are_as_wide_as_what_it_computes_in_is_held_to_the_limits_of_its_results(
    tmp_path: Path, name: str
) -> None:
    text = generated_test(tmp_path, next(op for op in OPS if op.name == name))
    assert "**kjit.testing.tolerances(actual.dtype)," in text


@pytest.mark.parametrize("name", ["cut_off", "row_rms"])
def test_what_is_cut_off_to_a_whole_number_may_come_out_on_either_side_of_it_only_close_to_it(
    tmp_path: Path, name: str
) -> None:
    text = generated_test(tmp_path, next(op for op in [*RARE, *OPS] if op.name == name))
    for actual, expected, right in (
        (2, 2.9999999, True),
        (3, 2.9999999, True),
        (2, 3.0000001, True),
        (4, 3.0000001, False),
        (2, 2.5, True),
        (3, 2.5, False),
        (1, 2.5, False),
        (-2, -2.9999999, True),
        (-3, -2.9999999, True),
        (-3, -2.5, False),
        (10**8, 10**8 + 5.0, True),
        (10**8, 10**8 + 500.0, False),
    ):
        assert agree(text, [actual], [expected], torch.int32) == right, (actual, expected)


def test_a_negative_number_in_an_unsigned_integer_comes_out_on_either_side_too(tmp_path: Path) -> None:
    text = generated_test(tmp_path, rare("cut_off"))
    assert agree(text, [255], [-1.0], torch.uint8)
    assert agree(text, [0], [-1.0], torch.uint8)
    assert not agree(text, [7], [-1.0], torch.uint8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("number", None), ("pick_row", '["src", "out"]'), ("pick_one", None), ("rms_norm", "TENSORS")],
)
def test_only_a_tensor_with_several_elements_is_tried_with_gaps_between_them(
    tmp_path: Path, name: str, expected: str | None
) -> None:
    text = generated_test(tmp_path, next(op for op in [*RARE, *OPS] if op.name == name))
    before, found, _ = text.partition("\ndef test_refuses_a_tensor_that_is_not_contiguous(")
    if expected is None:
        assert not found
    else:
        assert before.splitlines()[-1] == f'@pytest.mark.parametrize("name", {expected})'


@pytest.mark.parametrize(
    ("pattern", "signature", "elements", "nbytes"),
    [
        ("elementwise", "x: float32[N, N] -> out: float32[N, N]", 7 * 7, 7 * 7 * 8),
        ("rowwise", "x: float32[N, N] -> out: float32[N, N]", 7 * 7, 7 * 7 * 8),
        ("rowwise", "x: float32[4, 128] -> out: float32[4, 128]", 4 * 128, 4 * 128 * 8),
        ("gather", "src: float32[M], index: int64[1] -> out: float32[1]", 1, 16),
    ],
)
def test_the_benchmark_of_an_op_in_which_nothing_grows_counts_what_it_calls_the_op_with(
    tmp_path: Path, pattern: str, signature: str, elements: int, nbytes: int
) -> None:
    files = scaffold_op("fixed", signature, pattern=pattern, start=tmp_path).files.files
    text = next(file.text for file in files if file.path.name == "bench_fixed.py")
    assert f"x_vals=[{elements}]" in text
    assert defined_in(text, "bytes_moved")["bytes_moved"](elements) == nbytes


def test_the_columns_grow_in_the_benchmark_of_an_op_whose_rows_cannot(tmp_path: Path) -> None:
    signature = "src: float32[M, D], index: int64[1] -> out: float32[1, D]"
    files = scaffold_op("pick_row", signature, pattern="gather", start=tmp_path).files.files
    text = next(file.text for file in files if file.path.name == "bench_pick_row.py")
    assert "make_inputs((1, size), device)" in text
    assert defined_in(text, "bytes_moved")["bytes_moved"](100) == 100 * 8 + 8
