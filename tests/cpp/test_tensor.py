"""kjit/tensor.h: what a matcher accepts, and the messages of mismatches."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

CASES = "tensor_cases"


def refused(message: str) -> Any:
    return pytest.raises(RuntimeError, match=re.escape(message))


def test_tensors_that_fit_bind_the_symbols(module: Any) -> None:
    assert module.two_tensors(torch.zeros(4, 8), torch.zeros(4, 8)) == 32
    assert module.two_tensors(torch.zeros(0, 8), torch.zeros(0, 8)) == 0


def test_a_mismatch_names_the_argument_the_place_and_where_the_symbol_was_bound(module: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        module.two_tensors(torch.zeros(4, 9), torch.zeros(4, 8))
    first, second = str(caught.value).splitlines()
    tensor = "Tensor<4, 9>[strides=<9, 1>, dtype=float32, device=cpu]"
    assert re.fullmatch(re.escape(f"Tensor match failed for dst: {tensor} at tensor_cases.cpp:") + r"\d+", first)
    cause = re.escape(
        "- Root cause: Size mismatch for shape#1('head_dim'): expected 8 (bound by src at tensor_cases.cpp:"
    )
    assert re.fullmatch(cause + r"\d+\) but got 9", second)


def test_a_wrong_rank_dtype_and_layout_are_reported(module: Any) -> None:
    good = torch.zeros(4, 8)
    with refused("Tensor dimension mismatch: expected 2 but got 1"):
        module.two_tensors(good, torch.zeros(4))
    with refused("DType mismatch: expected one of [float32, float16] but got int32"):
        module.two_tensors(good, torch.zeros(4, 8, dtype=torch.int32))
    with refused("Tensor is not contiguous as expected"):
        module.two_tensors(good, torch.zeros(8, 4).t())


def test_minus_one_matches_a_different_size_every_time(module: Any) -> None:
    module.any_size(torch.zeros(2, 3), torch.zeros(7, 3))
    with refused("Size mismatch for shape#1: expected 3 but got 4"):
        module.any_size(torch.zeros(2, 3), torch.zeros(2, 4))


def test_sizes_that_follow_from_others_are_solved_and_compared(module: Any) -> None:
    assert module.halves(torch.zeros(2, 6), torch.zeros(2, 3)) == 3
    assert module.halves(torch.zeros(2, 0), torch.zeros(2, 0)) == 0
    assert module.groups(torch.zeros(2, 256), torch.zeros(2, 2)) == 256
    assert module.heads(torch.zeros(48), torch.zeros(8)) == 3
    assert module.joined(torch.zeros(3), torch.zeros(9)) == 4
    assert module.shifted(torch.zeros(5), torch.zeros(4)) == 4


def test_every_tensor_of_a_list_is_verified(module: Any) -> None:
    good = torch.zeros(4, 8)
    assert module.listed([good, good], good) == 64
    assert module.listed((), good) == 0
    assert module.listed([good] * 10_000, good) == 320_000
    with refused("Tensor match failed for xs[1]: Tensor<4, 9>"):
        module.listed([good, torch.zeros(4, 9)], good)
    with refused("expected 4 (bound by xs[0] at tensor_cases.cpp:"):
        module.listed([good, good], torch.zeros(3, 8))
    with refused("DType mismatch: expected float32 (bound by xs[0] at tensor_cases.cpp:"):
        module.listed([good, good.half()], good)


def test_a_tensor_that_may_be_absent_is_verified_where_it_is_there(module: Any) -> None:
    ones = torch.ones(4, dtype=torch.float64)
    assert module.maybe(ones, ones + 1) == 3
    assert module.maybe(None, ones) == -1
    with refused("Size mismatch for shape#0('N'): expected 5 (bound by x at tensor_cases.cpp:"):
        module.maybe(torch.ones(5, dtype=torch.float64), ones)
    with refused("Tensor match failed for x:"):
        module.maybe(ones.float(), ones)


@pytest.mark.parametrize("count", [1, 4])
def test_a_kernel_is_given_the_address_of_each_tensor_of_a_list(module: Any, count: int) -> None:
    values = [2.0**i for i in range(count)]
    assert module.first_of_each([torch.tensor([value], dtype=torch.float64) for value in values]) == sum(values)


@pytest.mark.parametrize("count", [0, 5, 10_000])
def test_a_list_without_tensors_or_with_more_than_fit_is_refused(module: Any, count: int) -> None:
    with refused(f"xs: expected 1 to 4 tensors but got {count}"):
        module.first_of_each([torch.zeros(1, dtype=torch.float64)] * count)


BASE = torch.zeros(64)


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
    module.written(torch.as_strided(BASE, sizes, strides))


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
        module.written(torch.as_strided(BASE, sizes, strides))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("export", "shapes", "message"),
    [
        ("halves", [(2, 7), (2, 3)], "Tensor match failed for x: "),
        ("halves", [(2, 7), (2, 3)], "Size mismatch for shape#1('2*D'): expected a multiple of 2 but got 7"),
        ("halves", [(2, 6), (2, 4)], "Size mismatch for shape#1('D'): expected 3 (bound by x at tensor_cases.cpp:"),
        ("groups", [(2, 100), (2, 1)], "shape#1('D/128'): 128 does not divide 100, as D is 100 (bound by x at"),
        ("groups", [(2, 256), (2, 3)], "shape#1('D/128'): expected 2, as D is 256 (bound by x at tensor_cases.cpp:"),
        ("heads", [(50,), (8,)], "shape#0('2*H*D'): expected a multiple of 16, as D is 8 (bound by weight at"),
        ("joined", [(3,), (4,)], "shape#0('2*A+B-1'): expected at least 5, as A is 3 (bound by a at"),
        ("shifted", [(0,), (0,)], "shape#0('N+1'): expected at least 1 but got 0"),
    ],
)
def test_a_size_that_does_not_follow_is_reported_with_the_numbers(
    module: Any, export: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with refused(message):
        getattr(module, export)(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, "'A' and 'B' have no value yet: verify a tensor that has one of these sizes before this one"),
        (1, "a size is a product of positive numbers and at most two symbols"),
        (2, "a size cannot be divided by 0"),
        (3, "a size is a product of positive numbers and at most two symbols, before any division or sum"),
        (4, "a sum of sizes has one product and at most one more symbol"),
        (5, "shape#0('4*A'): expected a size of more than 63 bits, as A is 4611686018427387904"),
    ],
)
def test_a_size_that_cannot_be_computed_is_refused(module: Any, which: int, message: str) -> None:
    with refused(message):
        module.too_much(which, torch.zeros(4))


def test_a_tensor_without_a_name_is_still_described(module: Any) -> None:
    module.exact(torch.zeros(2, 3))
    with refused("Tensor match failed for Tensor<3, 2>"):
        module.exact(torch.zeros(3, 2))


def test_a_zero_dimensional_tensor_matches_an_empty_shape(module: Any) -> None:
    module.scalar(torch.tensor(1.0, dtype=torch.float64))
    with refused("expected 0 but got 1"):
        module.scalar(torch.zeros(1, dtype=torch.float64))


def test_strides_are_bound_and_checked(module: Any) -> None:
    assert module.row_stride(torch.zeros(4, 10)[:, :3]) == 10
    with refused("Size mismatch for stride#1: expected 1 but got 2"):
        module.row_stride(torch.zeros(4, 10)[:, ::2])
    assert module.shared_row_stride(torch.zeros(4, 10)[:, :3], torch.zeros(5, 10)) == 10
    with refused("Size mismatch for stride#0('row_stride'): expected 10 (bound by a at"):
        module.shared_row_stride(torch.zeros(4, 10), torch.zeros(4, 11))
    module.any_strides(torch.zeros(3, 4).t())


def test_the_stride_of_a_dimension_of_size_one_is_not_checked(module: Any) -> None:
    one_column = torch.zeros(4, 8)[:, :1]  # strides 8, 1
    module.row_stride(one_column.expand(4, 1).as_strided((4, 1), (8, 77)))
    assert module.row_stride(torch.zeros(1, 8).as_strided((1, 8), (99, 1))) == 99


def test_a_meaningless_stride_gives_way_to_a_real_one(module: Any) -> None:
    one_row = torch.zeros(1, 8).as_strided((1, 8), (99, 1))
    assert module.shared_row_stride(one_row, torch.zeros(4, 8)) == 8
    assert module.shared_row_stride(torch.zeros(4, 8), one_row) == 8


def test_a_whole_shape_must_agree(module: Any) -> None:
    assert module.same_shape(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)) == 24
    assert module.same_shape(torch.tensor(1.0), torch.tensor(2.0)) == 1
    with refused("Shape mismatch for 'x.shape': expected <2, 3> (bound by a at tensor_cases.cpp"):
        module.same_shape(torch.zeros(2, 3), torch.zeros(3, 2))
    with refused("but got <6>"):
        module.same_shape(torch.zeros(2, 3), torch.zeros(6))


def test_leading_dimensions_are_as_many_as_there_are(module: Any) -> None:
    column = torch.zeros(4)
    assert module.leading_dimensions(torch.zeros(2, 3, 4), column, torch.zeros(2, 3)) == 6
    assert module.leading_dimensions(torch.zeros(4), column, torch.tensor(0.0)) == 1
    with refused("Size mismatch for shape#0('columns'): expected 5 (bound by a at tensor_cases.cpp"):
        module.leading_dimensions(torch.zeros(2, 3, 5), column, torch.zeros(2, 3))
    with refused("Shape mismatch for 'batch': expected <2, 3> (bound by a at tensor_cases.cpp"):
        module.leading_dimensions(torch.zeros(2, 3, 4), column, torch.zeros(2))
    with refused("Tensor dimension mismatch: expected at least 1 but got 0"):
        module.leading_dimensions(torch.tensor(0.0), column, torch.zeros(2))


def test_a_symbol_given_without_options_keeps_those_that_it_has(module: Any) -> None:
    with refused("Device mismatch: expected cuda but got cpu"):
        module.device_options_are_kept(torch.zeros(3))
    module.dtype_options_are_kept(torch.zeros(3, dtype=torch.bfloat16))
    with refused("DType mismatch: expected one of [float16, bfloat16] but got float32"):
        module.dtype_options_are_kept(torch.zeros(3))


DTYPES = ["bool", "uint8", "int64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_matches_its_dtype_and_no_other(module: Any, name: str) -> None:
    for other in DTYPES:
        x = torch.zeros(3, dtype=getattr(torch, other))
        if other == name:
            module[f"of_{name}"](x)
        else:
            with refused(f"DType mismatch: expected {name} but got {other}"):
                module[f"of_{name}"](x)


def test_a_dtype_symbol_must_agree(module: Any) -> None:
    module.one_dtype_for_both(torch.zeros(2), torch.zeros(3))
    with refused("DType mismatch: expected float32 (bound by a at"):
        module.one_dtype_for_both(torch.zeros(2), torch.zeros(3, dtype=torch.float16))


def test_alignment_covers_the_data_and_every_row(module: Any) -> None:
    module.aligned(torch.zeros(4, 8), 16)
    module.aligned(torch.zeros(1, 7), 16)  # one row: its stride is never used
    with refused("Tensor data pointer is not aligned to 16 bytes"):
        module.aligned(torch.zeros(41)[1:].reshape(5, 8), 16)
    with refused("Tensor stride for dimension 0 is not aligned to 16 bytes"):
        module.aligned(torch.zeros(4, 7), 16)
    with refused("Alignment must be a power of 2, not 12"):
        module.aligned(torch.zeros(4, 8), 12)


def test_alignment_of_a_tensor_without_elements_does_not_matter(module: Any) -> None:
    module.aligned(torch.zeros(8)[1:1].reshape(0, 3), 16)


def test_a_symbol_without_a_value_cannot_be_unwrapped(module: Any) -> None:
    with refused("Size value is not set: lost"):
        module.unwrap_nothing()


def test_a_symbol_is_set_once(module: Any) -> None:
    with refused("Size value already set"):
        module.set_twice()


def test_is_type_knows_the_half_types(module: Any) -> None:
    assert module.is_each_type(torch.zeros(1, dtype=torch.bfloat16))


def test_sizes_past_two_to_the_31_and_negative_strides_are_read(module: Any) -> None:
    assert module.large_and_negative()


def test_a_tensor_without_memory_is_refused(module: Any) -> None:
    with refused("Tensor has no data"):
        module.no_data()


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


def test_strides_of_every_kind_are_read_past_two_to_the_31(module: Any) -> None:
    assert module.strides_of_every_kind()


def test_a_symbol_has_its_value_or_none(module: Any) -> None:
    assert module.values_may_be_asked_for()


def test_options_may_come_from_any_list(module: Any) -> None:
    module.options_from_lists(torch.zeros(3))
    with refused("DType mismatch: expected one of [float16, float32] but got int64"):
        module.options_from_lists(torch.zeros(3, dtype=torch.int64))


def test_a_matcher_may_be_kept(module: Any) -> None:
    module.a_named_matcher(torch.zeros(3), torch.zeros(3))
    with refused("expected 3 (bound by a at"):
        module.a_named_matcher(torch.zeros(3), torch.zeros(4))


def test_auto_keeps_a_matcher_and_a_copy_goes_its_own_way(module: Any) -> None:
    single, half = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.float16)
    module.a_matcher_that_auto_keeps(single, single)
    with refused("Tensor match failed for b of the dtype of a"):
        module.a_matcher_that_auto_keeps(single, half)
    with refused("Tensor match failed for b: Tensor<4, 2>"):
        module.a_matcher_that_auto_keeps(single, torch.zeros(4, 2))


def test_dtypes_and_devices_are_compared(module: Any) -> None:
    assert module.dtypes_and_devices_are_compared(torch.zeros(1), torch.zeros(2))
    assert not module.dtypes_and_devices_are_compared(torch.zeros(1), torch.zeros(2, dtype=torch.int32))
