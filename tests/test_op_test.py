"""kjit.testing.OpTest: a correct op passes its tests, and each kind of wrong op fails one of them."""

from __future__ import annotations

import contextlib
import shlex
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import Forks
from torch.testing._internal.optests import OpCheckError

import kjit
from kjit.testing.op_test import OpTest

_CPU_ONLY = kjit.Spec("half", cpp_files=["/x/half.cpp"])
_BOTH = kjit.Spec("half", cpp_files=["/x/half.cpp"], cuda_files=["/x/half.cuh"])


class _Module:
    """A declared module that is asked for its specs only."""

    def __init__(self, spec: kjit.Spec) -> None:
        self.spec = spec

    def __call__(self) -> None:
        raise AssertionError("nothing is loaded")

    def specs(self) -> list[kjit.Spec]:
        return [self.spec]


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@kjit.torch_op("kjit_op_tests::half", outputs=_empty)
def half(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """As an op of kjit does it, with a kernel in Python."""
    out = _empty(x) if out is None else out
    for name, tensor in (("x", x), ("out", out)):
        if not tensor.is_contiguous():
            raise RuntimeError(f"Tensor match failed for {name}: not contiguous")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"half: {tensor.dtype} is not one of the two")
    if x.shape != out.shape:
        raise RuntimeError("Tensor match failed for out: shape mismatch")
    return out.copy_(x * 0.5)


@kjit.torch_op("kjit_op_tests::shift_", mutates_args=("x",))
def shift_(x: torch.Tensor, by: torch.Tensor | None = None) -> None:
    x.add_(1 if by is None else by)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def make_inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, Any]:
    return {"x": kjit.testing.random_tensor(shape, dtype, device)}


def checks_of(
    op: Any, spec: kjit.Spec = _CPU_ONLY, reference: Any = reference, inputs: Any = make_inputs, **attributes: Any
) -> type[OpTest]:
    shapes = (*kjit.testing.boundary_shapes((None,), largest=4), (2, 3))
    attributes = {"shape": (7,), "shapes": shapes, **attributes}
    dtypes = (torch.float32, torch.float64)
    keywords = {"op": op, "module": _Module(spec), "reference": reference, "inputs": inputs, "dtypes": dtypes}
    return types.new_class("OfOp", (OpTest,), keywords, lambda body: body.update(attributes))


def wrong(change: Callable[[torch.Tensor, torch.Tensor], object]) -> Any:
    """The op, but for what `change` does with its input and its output."""

    @kjit.torch_op("kjit_op_tests::wrong", outputs=_empty)
    def op(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        result = half(x, out=out)
        returned = change(x, result)
        return returned if isinstance(returned, torch.Tensor) else result

    return op


def names_of(tests: type[OpTest]) -> set[str]:
    return {name for name in dir(tests) if name.startswith("test_") and getattr(tests, name) is not None}


# -- which tests there are


def test_tests_that_do_not_concern_an_op_are_not_there() -> None:
    for_cpu = names_of(checks_of(half, in_place=("x", "out")))
    assert "test_writes_to_the_output_that_it_is_given" in for_cpu
    assert "test_refuses_tensors_on_a_gpu" in for_cpu
    assert not {name for name in for_cpu if "cuda" in name or "stream" in name or "absent" in name or "index" in name}
    for_both = names_of(checks_of(half, _BOTH))
    assert for_both - for_cpu == {
        "test_can_be_captured_in_a_cuda_graph",
        "test_compiles_without_a_gpu",
        "test_refuses_tensors_on_different_devices",
        "test_runs_on_a_gpu_that_is_not_the_current_one",
        "test_runs_on_the_current_stream",
    }
    in_place = names_of(checks_of(shift_, reference=lambda x, by=None: x + (1 if by is None else by)))
    assert "test_what_is_absent_counts_as_zeros" in in_place
    assert "test_writes_to_the_output_that_it_is_given" not in in_place


def test_a_class_without_a_part_of_it_is_refused() -> None:
    with pytest.raises(TypeError, match="class Partly: give op=, module=, reference= and inputs= together"):

        class Partly(OpTest, op=half):
            pass


_FILE = """
from test_op_test import _CPU_ONLY, _Module, half, kjit, make_inputs, reference, torch

class TestHalf(
    kjit.testing.OpTest,
    op=half,
    module=_Module(_CPU_ONLY),
    reference=reference,
    inputs=make_inputs,
    dtypes=(torch.float32, torch.float64),
):
    shape = (7,)
    shapes = (3,), (2, 3)
    in_place = ("x", "out")
    test_passes_the_checks_of_torch_library = None
    test_torch_compile_takes_it_whole = None  # below, in this process: what it imports takes seconds
    test_refuses_tensors_on_a_gpu = None  # it takes them, as its kernel is in Python

    def test_one_of_its_own(self, dtypes, device):
        assert self.run(self.make(device, dtypes=dtypes))[0].shape == (7,)
"""


def test_pytest_runs_the_tests_of_a_right_op(tmp_path: Path, forked: Forks) -> None:
    (tmp_path / "test_half.py").write_text(_FILE)
    options = [
        "-v",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        f"pythonpath={shlex.quote(str(Path(__file__).parent))}",
    ]
    done = forked.pytest(*options, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for test in (
        "test_agrees_with_pytorch[(2, 3)-torch.float64-cpu] PASSED",
        "test_refuses_none[x-cpu] PASSED",
        "test_refuses_a_tensor_that_is_not_contiguous[out-cpu] PASSED",
        "test_one_of_its_own[torch.float32-cpu] PASSED",
    ):
        assert f"TestHalf::{test}" in done.stdout
    assert "test_passes_the_checks_of_torch_library" not in done.stdout


def test_torch_compile_takes_a_right_op_whole() -> None:
    checks_of(half)().test_torch_compile_takes_it_whole("cpu")


# -- wrong ops


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (lambda _, out: out[-1:].mul_(2), "test_agrees_with_pytorch"),
        (lambda _, out: out.clone(), "test_writes_to_the_output_that_it_is_given"),
        (lambda x, _: x.zero_(), "test_passes_the_checks_of_torch_library"),
    ],
    ids=["a wrong element", "another tensor than the one given", "an input that is changed"],
)
def test_a_wrong_op_fails(change: Any, failing: str) -> None:
    tests = checks_of(wrong(change))()
    arguments: dict[str, Any] = {"device": "cpu", "dtypes": (torch.float32,), "shape": (5,)}
    test = getattr(tests, failing)
    wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    with pytest.raises((AssertionError, OpCheckError)):
        test(**{name: arguments[name] for name in wanted})


@pytest.mark.parametrize(
    "test",
    ["test_refuses_a_tensor_that_is_not_contiguous", "test_refuses_a_tensor_of_another_shape"],
)
def test_an_op_that_takes_what_it_should_refuse_fails(test: str) -> None:
    @kjit.torch_op("kjit_op_tests::tolerant", outputs=_empty)
    def tolerant(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        return (_empty(x) if out is None else out).copy_(x * 0.5)

    with pytest.raises((AssertionError, pytest.fail.Exception), match=r"DID NOT RAISE|did not match"):
        getattr(checks_of(tolerant)(), test)("x", "cpu")


def test_a_reference_with_fewer_results_is_reported() -> None:
    tests = checks_of(half)
    inputs = tests.make("cpu")
    with pytest.raises(AssertionError, match="the reference gives 2 results, and the op 1"):
        tests.check(tests.run(inputs), (inputs["x"], inputs["x"]), inputs)


@pytest.mark.parametrize(("factor", "is_right"), [(0.5, True), (0.25, False), (0, False)])
def test_a_gradient_is_compared_with_that_of_the_reference(factor: float, is_right: bool) -> None:
    op = wrong(lambda _, out: out)
    assert "test_gradients_agree_with_pytorch" not in names_of(checks_of(op))
    op.register_autograd(lambda _, grad: grad * factor if factor else None)
    tests = checks_of(op)
    assert "test_gradients_agree_with_pytorch" in names_of(tests)
    assert "test_refuses_to_lose_a_gradient" not in names_of(tests)
    with contextlib.nullcontext() if is_right else pytest.raises(AssertionError, match="the gradient of 'x'"):
        tests().test_gradients_agree_with_pytorch((torch.float32,), "cpu")


def test_other_values_of_a_number_are_compared() -> None:
    @kjit.torch_op("kjit_op_tests::negated", outputs=_empty)
    def negated(x: torch.Tensor, negate: bool = True, *, out: torch.Tensor | None = None) -> torch.Tensor:
        del negate
        return (_empty(x) if out is None else out).copy_(-x)

    tests = checks_of(
        negated,
        reference=lambda x, negate: -x if negate else x,
        inputs=lambda shape, dtype, device: make_inputs(shape, dtype, device) | {"negate": True},
        values=[("negate", True), ("negate", False)],
    )
    tests().test_agrees_with_pytorch((5,), (torch.float32,), "cpu")
    tests().test_agrees_with_pytorch_for_other_values(("negate", True), "cpu")
    with pytest.raises(AssertionError):
        tests().test_agrees_with_pytorch_for_other_values(("negate", False), "cpu")


def test_the_bytes_moved_are_those_of_inputs_and_results_and_of_the_rows_chosen_in_tables() -> None:
    @kjit.torch_op("kjit_op_tests::put_", mutates_args=("table",))
    def put_(table: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> None:
        raise AssertionError(f"nothing runs: {table}, {index}, {x}")

    def inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
        index = torch.zeros(shape[:1], dtype=torch.int64, device=device)
        return {"table": torch.empty((100, *shape[1:]), dtype=dtype, device=device), "index": index} | make_inputs(
            shape, dtype, device
        )

    put = checks_of(put_, inputs=inputs, tables=("table",), index="index")
    assert put.bytes_moved((3, 8), torch.float64) == 2 * 3 * 8 * 8 + 3 * 8
    assert checks_of(half).bytes_moved((2**20, 2**20), torch.float32) == 2 * 2**40 * 4
    shift = checks_of(shift_, inputs=lambda shape, dtype, device: make_inputs(shape, dtype, device) | {"by": None})
    assert shift.bytes_moved((5,), torch.float32) == 2 * 5 * 4


def test_what_is_not_written_is_noticed() -> None:
    @kjit.torch_op("kjit_op_tests::lazy", outputs=_empty)
    def lazy(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        return torch.empty_like(x) if out is None else out

    zeros = checks_of(lazy, reference=torch.zeros_like)
    for _ in range(3):  # memory that has been freed often has zeros
        torch.zeros(5)
        with pytest.raises(AssertionError):
            zeros().test_agrees_with_pytorch((5,), (torch.float32,), "cpu")


# -- how exact a result must be


def test_the_limits_grow_with_the_sizes_that_a_result_does_not_have() -> None:
    inputs = {"x": torch.zeros(4095, 2), "by": None}
    assert agree([1.0, 5e-5], [1.0, 0.0], torch.float32, inputs)
    assert not agree([1.0, 5e-3], [1.0, 0.0], torch.float32, inputs)
    assert not agree([1.0, 5e-5], [1.0, 0.0], torch.float32)


def test_a_test_may_have_tolerances_of_its_own() -> None:
    tests = checks_of(half, tolerances={torch.float32: {"rtol": 0.0, "atol": 0.1}})
    result, inputs = torch.tensor([1.05]), {"x": torch.zeros(1)}
    tests.check((result,), (torch.ones(1, dtype=torch.float64),), inputs)
    with pytest.raises(AssertionError):
        tests.check((result.double(),), (torch.ones(1, dtype=torch.float64),), inputs)


def agree(
    actual: Sequence[float], expected: Sequence[float], dtype: torch.dtype, inputs: dict[str, Any] | None = None
) -> bool:
    """Whether results of `dtype` are taken for right."""
    if inputs is None:
        inputs = {"x": torch.zeros(1, dtype=dtype), "by": None}
    result, right = torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=torch.float64)
    try:
        checks_of(shift_).check((result,), (right,), inputs)
    except AssertionError:
        return False
    return True


def test_a_float64_is_held_to_what_the_tensors_that_it_is_made_of_allow() -> None:
    wide, narrow = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float32)
    for x, by, error, right in (
        (wide, None, 1e-9, True),
        (wide, wide, 1e-6, False),
        (wide, narrow, 1e-6, True),
        (narrow, None, 1e-6, True),
        (wide, narrow.half(), 1e-6, True),
        (wide, narrow, 1e-4, False),
    ):
        assert agree([1 + error], [1.0], torch.float64, {"x": x, "by": by}) == right, (x, by, error)


def test_what_is_cut_off_to_a_whole_number_may_come_out_on_either_side_of_it_only_close_to_it() -> None:
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
        assert agree([actual], [expected], torch.int32) == right, (actual, expected)


def test_a_negative_number_in_an_unsigned_integer_comes_out_on_either_side_too() -> None:
    assert agree([255], [-1.0], torch.uint8)
    assert agree([0], [-1.0], torch.uint8)
    assert not agree([7], [-1.0], torch.uint8)


def test_what_is_too_large_for_fp8_is_its_largest_number() -> None:
    assert agree([448.0], [1000.0], torch.float8_e4m3fn)
    assert not agree([384.0], [1000.0], torch.float8_e4m3fn)
