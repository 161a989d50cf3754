"""kjit/tensor.h: what a matcher accepts, and the messages of mismatches."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

CASES = "tensor_cases"


def refused(message: str) -> Any:
    return pytest.raises(RuntimeError, match=re.escape(message))


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


ONE_ROW = zeros(1, 8).as_strided((1, 8), (99, 1))
"""The stride of a dimension of size one means nothing."""

# What a function of the C++ file returns for tensors that match.
ACCEPTED: list[tuple[str, list[Any], Any]] = [
    ("two_tensors", [zeros(4, 8), zeros(4, 8)], 32),
    ("two_tensors", [zeros(0, 8), zeros(0, 8)], 0),
    ("any_size", [zeros(2, 3), zeros(7, 3)], None),
    ("exact", [zeros(2, 3)], None),
    ("scalar", [torch.tensor(1.0, dtype=torch.float64)], None),
    # Sizes that follow from others are solved and compared.
    ("halves", [zeros(2, 6), zeros(2, 3)], 3),
    ("halves", [zeros(2, 0), zeros(2, 0)], 0),
    ("groups", [zeros(2, 256), zeros(2, 2)], 256),
    ("heads", [zeros(48), zeros(8)], 3),
    ("joined", [zeros(3), zeros(9)], 4),
    ("shifted", [zeros(5), zeros(4)], 4),
    ("listed", [[zeros(4, 8)] * 2, zeros(4, 8)], 64),
    ("listed", [(), zeros(4, 8)], 0),
    ("listed", [[zeros(4, 8)] * 10_000, zeros(4, 8)], 320_000),
    ("maybe", [doubles(1, 1), doubles(2, 2)], 3),
    ("maybe", [None, doubles(2, 2)], -1),
    ("first_of_each", [[doubles(2)]], 2),
    ("first_of_each", [[doubles(1), doubles(2), doubles(4), doubles(8)]], 15),
    ("row_stride", [zeros(4, 10)[:, :3]], 10),
    ("row_stride", [zeros(4, 8)[:, :1].as_strided((4, 1), (8, 77))], 8),
    ("row_stride", [ONE_ROW], 99),
    ("shared_row_stride", [zeros(4, 10)[:, :3], zeros(5, 10)], 10),
    ("shared_row_stride", [ONE_ROW, zeros(4, 8)], 8),
    ("shared_row_stride", [zeros(4, 8), ONE_ROW], 8),
    ("any_strides", [zeros(3, 4).t()], None),
    ("same_shape", [zeros(2, 3, 4), zeros(2, 3, 4)], 24),
    ("same_shape", [torch.tensor(1.0), torch.tensor(2.0)], 1),
    ("leading_dimensions", [zeros(2, 3, 4), zeros(4), zeros(2, 3)], 6),
    ("leading_dimensions", [zeros(4), zeros(4), torch.tensor(0.0)], 1),
    ("dtype_options_are_kept", [zeros(3, dtype=torch.bfloat16)], None),
    ("one_dtype_for_both", [zeros(2), zeros(3)], None),
    ("aligned", [zeros(4, 8), 16], None),
    ("aligned", [zeros(1, 7), 16], None),  # one row: its stride is never used
    ("aligned", [zeros(8)[1:1].reshape(0, 3), 16], None),  # nothing is read
    ("is_each_type", [zeros(1, dtype=torch.bfloat16)], True),
    ("options_from_lists", [zeros(3)], None),
    ("a_named_matcher", [zeros(3), zeros(3)], None),
    ("a_matcher_that_auto_keeps", [zeros(3, 2), zeros(3, 2)], None),
    ("dtypes_and_devices_are_compared", [zeros(1), zeros(2)], True),
    ("dtypes_and_devices_are_compared", [zeros(1), zeros(2, dtype=torch.int32)], False),
    ("large_and_negative", [], True),
    ("strides_of_every_kind", [], True),
    ("values_may_be_asked_for", [], True),
]
BY = "(bound by {} at tensor_cases.cpp:"
# What the error of one that does not match says.
REFUSED: list[tuple[str, list[Any], str]] = [
    ("two_tensors", [zeros(4, 8), zeros(4)], "Tensor dimension mismatch: expected 2 but got 1"),
    (
        *("two_tensors", [zeros(4, 8), zeros(4, 8, dtype=torch.int32)]),
        "DType mismatch: expected one of [float32, float16] but got int32",
    ),
    ("two_tensors", [zeros(4, 8), zeros(8, 4).t()], "Tensor is not contiguous as expected"),
    ("any_size", [zeros(2, 3), zeros(2, 4)], "Size mismatch for shape#1: expected 3 but got 4"),
    ("exact", [zeros(3, 2)], "Tensor match failed for Tensor<3, 2>"),
    ("scalar", [doubles(1)], "expected 0 but got 1"),
    ("halves", [zeros(2, 7), zeros(2, 3)], "Tensor match failed for x: "),
    ("halves", [zeros(2, 7), zeros(2, 3)], "Size mismatch for shape#1('2*D'): expected a multiple of 2 but got 7"),
    ("halves", [zeros(2, 6), zeros(2, 4)], f"Size mismatch for shape#1('D'): expected 3 {BY.format('x')}"),
    ("groups", [zeros(2, 100), zeros(2, 1)], "shape#1('D/128'): 128 does not divide 100, as D is 100 (bound by x at"),
    ("groups", [zeros(2, 256), zeros(2, 3)], f"shape#1('D/128'): expected 2, as D is 256 {BY.format('x')}"),
    ("heads", [zeros(50), zeros(8)], "shape#0('2*H*D'): expected a multiple of 16, as D is 8 (bound by weight at"),
    ("joined", [zeros(3), zeros(4)], "shape#0('2*A+B-1'): expected at least 5, as A is 3 (bound by a at"),
    ("shifted", [zeros(0), zeros(0)], "shape#0('N+1'): expected at least 1 but got 0"),
    ("listed", [[zeros(4, 8), zeros(4, 9)], zeros(4, 8)], "Tensor match failed for xs[1]: Tensor<4, 9>"),
    ("listed", [[zeros(4, 8)] * 2, zeros(3, 8)], f"expected 4 {BY.format('xs[0]')}"),
    (
        "listed",
        [[zeros(4, 8), zeros(4, 8).half()], zeros(4, 8)],
        f"DType mismatch: expected float32 {BY.format('xs[0]')}",
    ),
    ("maybe", [doubles(*[1] * 5), doubles(*[1] * 4)], f"Size mismatch for shape#0('N'): expected 5 {BY.format('x')}"),
    ("maybe", [zeros(4), doubles(*[1] * 4)], "Tensor match failed for x:"),
    ("first_of_each", [[]], "xs: expected 1 to 4 tensors but got 0"),
    ("first_of_each", [[doubles(0)] * 5], "xs: expected 1 to 4 tensors but got 5"),
    ("row_stride", [zeros(4, 10)[:, ::2]], "Size mismatch for stride#1: expected 1 but got 2"),
    (
        *("shared_row_stride", [zeros(4, 10), zeros(4, 11)]),
        "Size mismatch for stride#0('row_stride'): expected 10 (bound by a at",
    ),
    ("same_shape", [zeros(2, 3), zeros(3, 2)], f"Shape mismatch for 'x.shape': expected <2, 3> {BY.format('a')}"),
    ("same_shape", [zeros(2, 3), zeros(6)], "but got <6>"),
    (
        *("leading_dimensions", [zeros(2, 3, 5), zeros(4), zeros(2, 3)]),
        f"Size mismatch for shape#0('columns'): expected 5 {BY.format('a')}",
    ),
    (
        *("leading_dimensions", [zeros(2, 3, 4), zeros(4), zeros(2)]),
        f"Shape mismatch for 'batch': expected <2, 3> {BY.format('a')}",
    ),
    (
        *("leading_dimensions", [torch.tensor(0.0), zeros(4), zeros(2)]),
        "Tensor dimension mismatch: expected at least 1 but got 0",
    ),
    ("device_options_are_kept", [zeros(3)], "Device mismatch: expected cuda but got cpu"),
    ("dtype_options_are_kept", [zeros(3)], "DType mismatch: expected one of [float16, bfloat16] but got float32"),
    ("one_dtype_for_both", [zeros(2), zeros(3).half()], "DType mismatch: expected float32 (bound by a at"),
    ("aligned", [zeros(41)[1:].reshape(5, 8), 16], "Tensor data pointer is not aligned to 16 bytes"),
    ("aligned", [zeros(4, 7), 16], "Tensor stride for dimension 0 is not aligned to 16 bytes"),
    ("aligned", [zeros(4, 8), 12], "Alignment must be a power of 2, not 12"),
    ("unwrap_nothing", [], "Size value is not set: lost"),
    ("set_twice", [], "Size value already set"),
    ("no_data", [], "Tensor has no data"),
    (
        *("options_from_lists", [zeros(3, dtype=torch.int64)]),
        "DType mismatch: expected one of [float16, float32] but got int64",
    ),
    ("a_named_matcher", [zeros(3), zeros(4)], "expected 3 (bound by a at"),
    ("a_matcher_that_auto_keeps", [zeros(3, 2), zeros(3, 2).half()], "Tensor match failed for b of the dtype of a"),
    ("a_matcher_that_auto_keeps", [zeros(3, 2), zeros(4, 2)], "Tensor match failed for b: Tensor<4, 2>"),
    # Sizes that cannot be computed.
    (
        "too_much",
        [0, zeros(4)],
        "'A' and 'B' have no value yet: verify a tensor that has one of these sizes before this",
    ),
    ("too_much", [1, zeros(4)], "a size is a product of positive numbers and at most two symbols"),
    ("too_much", [2, zeros(4)], "a size cannot be divided by 0"),
    ("too_much", [3, zeros(4)], "product of positive numbers and at most two symbols, before any division or sum"),
    ("too_much", [4, zeros(4)], "a sum of sizes has one product and at most one more symbol"),
    ("too_much", [5, zeros(4)], "shape#0('4*A'): expected a size of more than 63 bits, as A is 4611686018427387904"),
]


@pytest.mark.parametrize(("export", "arguments", "result"), ACCEPTED)
def test_tensors_that_fit_bind_the_symbols(module: Any, export: str, arguments: list[Any], result: Any) -> None:
    assert module[export](*arguments) == result


@pytest.mark.parametrize(("export", "arguments", "message"), REFUSED)
def test_a_tensor_that_does_not_fit_is_refused(module: Any, export: str, arguments: list[Any], message: str) -> None:
    with refused(message):
        module[export](*arguments)


def test_a_mismatch_names_the_argument_the_place_and_where_the_symbol_was_bound(module: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        module.two_tensors(zeros(4, 9), zeros(4, 8))
    first, second = str(caught.value).splitlines()
    tensor = "Tensor<4, 9>[strides=<9, 1>, dtype=float32, device=cpu]"
    assert re.fullmatch(re.escape(f"Tensor match failed for dst: {tensor} at tensor_cases.cpp:") + r"\d+", first)
    cause = re.escape(f"- Root cause: Size mismatch for shape#1('head_dim'): expected 8 {BY.format('src')}")
    assert re.fullmatch(cause + r"\d+\) but got 9", second)


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2, 3, 4), (12, 4, 1)),
        ((2, 3, 4), (1, 2, 6)),
        ((2, 3, 4), (24, 4, 1)),
        ((2, 1, 4), (4, 0, 1)),
        ((0, 3, 4), (0, 0, 0)),
        ((1, 1, 1), (0, 0, 0)),
        ((2, 3, 2), (1, 16, 8)),
    ],
)
def test_a_tensor_whose_elements_are_apart_may_be_written_to(module: Any, sizes: Any, strides: Any) -> None:
    module.written(torch.as_strided(zeros(64), sizes, strides))


@pytest.mark.parametrize(
    ("sizes", "strides", "message"),
    [
        ((2, 3, 4), (0, 4, 1), "the stride of dimension 0 is 0, and the dimensions within it span 1"),
        ((2, 3, 4), (11, 4, 1), "the stride of dimension 0 is 11, and the dimensions within it span 12"),
        ((2, 3, 4), (12, 3, 1), "the stride of dimension 1 is 3, and the dimensions within it span 4"),
        ((2, 2, 4), (1, 16, 1), "is 1, and the dimensions within it span"),
    ],
)
def test_a_tensor_whose_elements_share_memory_may_not(module: Any, sizes: Any, strides: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match="Tensor has overlapping elements, and is written to") as caught:
        module.written(torch.as_strided(zeros(64), sizes, strides))
    assert message in str(caught.value)


DTYPES = ["bool", "uint8", "int64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_matches_its_dtype_and_no_other(module: Any, name: str) -> None:
    for other in DTYPES:
        x = zeros(3, dtype=getattr(torch, other))
        if other == name:
            module[f"of_{name}"](x)
        else:
            with refused(f"DType mismatch: expected {name} but got {other}"):
                module[f"of_{name}"](x)


@pytest.mark.parametrize("name", ["float16", "float32", "int64"])
def test_an_element_that_is_not_at_a_multiple_of_its_size_is_refused(module: Any, name: str) -> None:
    dtype = getattr(torch, name)
    size = dtype.itemsize
    module.verify_at(4096 + size, dtype, 3)
    with refused(f"Tensor data pointer is not aligned to its elements: {name} takes {size} bytes"):
        module.verify_at(4096 + size // 2, dtype, 3)
    module.verify_at(4096 + size // 2, dtype, 0)  # nothing is read


def test_an_element_of_a_byte_may_be_anywhere(module: Any) -> None:
    for dtype in (torch.uint8, torch.bool, torch.float8_e4m3fn):
        module.verify_at(4097, dtype, 3)
