"""kjit/ffi.h: parameters, results, errors and exceptions of exports."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi
from torch.utils.dlpack import from_dlpack

CASES = "ffi_cases"


class _OfAUser:
    pass


INTEGERS = [(f"{sign}int{bits}", sign == "u", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize(("name", "unsigned", "bits"), INTEGERS)
def test_an_integer_type_takes_exactly_its_range(module: Any, name: str, unsigned: bool, bits: int) -> None:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if name == "uint64":  # an export cannot return more than 2^63: compare the half
        assert module.half_of_uint64(high) == high // 2
    else:
        assert module[f"echo_{name}"](high) == high
    assert module[f"echo_{name}"](low) == low
    for outside in (low - 1, high + 1):
        with pytest.raises((ValueError, OverflowError), match=r"out of range|too (big|large)"):
            module[f"echo_{name}"](outside)


def test_a_uint64_result_past_the_range_of_an_export_is_an_error(module: Any) -> None:
    with pytest.raises(RuntimeError, match="does not fit a 64-bit integer"):
        module.echo_uint64(2**63)


def test_a_fraction_is_not_an_integer(module: Any) -> None:
    with pytest.raises(TypeError, match=r"echo_int32\(\): argument 1 of 1 must be int, not float"):
        module.echo_int32(1.5)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 1e300, float("inf")])
def test_a_double_arrives_unchanged(module: Any, value: float) -> None:
    assert module.echo_double(value) == value


@pytest.mark.parametrize("make", [list, tuple, tvm_ffi.convert])
def test_a_list_of_tensors_is_taken_as_it_is(module: Any, make: Any) -> None:
    x = torch.ones(3)
    assert [module.count_of_list(make([x] * count), 0) for count in (0, 1, 3)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        (3, "argument 1 of 2 must be a list of tensors, not int"),
        (torch.ones(3), "argument 1 of 2 must be a list of tensors, not a tensor"),
        ({}, "argument 1 of 2 must be a list of tensors, not dict"),
        ([torch.ones(3), None], r"argument 1 of 2 must be a list of tensors: element \[1\] must be a tensor, not None"),
        ([[torch.ones(3)]], r".*element \[0\] must be a tensor, not a list or tuple"),
    ],
)
def test_what_is_no_list_of_tensors_is_refused_with_the_place(module: Any, xs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"count_of_list\(\): {message}"):
        module.count_of_list(xs, 0)


def test_a_tensor_in_a_list_has_to_have_memory(module: Any) -> None:
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"element \[1\]"):
        module.count_of_list([torch.ones(3), freed], 0)
    assert module.count_of_list([torch.ones(3), torch.empty(0)], 0) == 2


def test_nan_and_integers_are_floats(module: Any) -> None:
    assert module.echo_double(float("nan")) != module.echo_double(float("nan"))
    assert module.echo_float(3) == 3.0
    assert module.echo_float(True) == 1.0


def test_a_finite_value_that_would_become_infinite_is_an_error(module: Any) -> None:
    assert module.echo_float(3.4028234663852886e38) == 3.4028234663852886e38
    assert module.echo_float(float("-inf")) == float("-inf")
    with pytest.raises(ValueError, match="out of range for a 32-bit floating-point number: 1e39"):
        module.echo_float(1e39)


def test_an_integer_of_any_size_is_a_float(module: Any) -> None:
    assert module.echo_double(2**70) == float(2**70)
    assert module.echo_double(-(2**1000)) == float(-(2**1000))
    assert module.echo_double(2**64 - 1) == float(2**64 - 1)
    with pytest.raises(ValueError, match=r"argument 1 of 1 is out of range for a floating-point number"):
        module.echo_double(2**1024)
    with pytest.raises(ValueError, match=r"argument 1 of 1 is out of range for a 32-bit floating-point number"):
        module.echo_float(2**130)


def test_bool_takes_bools_and_zero_and_one(module: Any) -> None:
    assert module.echo_bool(True) is True
    assert module.echo_bool(0) is False
    assert module.echo_bool(np.bool_(True)) is True
    assert module.echo_bool(np.zeros(1)[0] > 0) is False
    with pytest.raises(TypeError, match="must be bool, not int"):
        module.echo_bool(2)


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (None, "None"),
        ("x", "str"),
        ("a longer string", "str"),
        (2.0, "float"),
        ([1], "a list or tuple"),
        (len, "a function"),
        (b"x", "bytes"),
        ({1: 2}, "dict"),
        (1 + 2j, "complex"),
        (np.bool_(True), type(np.bool_(True)).__name__.join(["numpy.", ""])),
        (torch.device("cpu"), "torch.device"),
        (torch.float32, "a dtype"),
        ({1}, "set"),
        (_OfAUser(), "test_ffi._OfAUser"),
    ],
)
def test_a_wrong_argument_names_function_position_and_what_came(module: Any, value: object, came: str) -> None:
    with pytest.raises(TypeError, match=rf"sum_of_all\(\): argument 1 of 1 must be a tensor, not {came}"):
        module.sum_of_all(value)


def test_a_wrong_count_is_a_type_error(module: Any) -> None:
    with pytest.raises(TypeError, match=r"sum_of_all\(\) takes 1 argument, but 2 were given"):
        module.sum_of_all(torch.zeros(2), 1)
    with pytest.raises(TypeError, match=r"nothing\(\) takes 0 arguments, but 1 was given"):
        module.nothing(1)


def test_a_tensor_is_seen_in_place(module: Any) -> None:
    assert module.sum_of_all(torch.arange(5, dtype=torch.float32)) == 10
    assert module.sum_of_all(torch.arange(8, dtype=torch.float32)[3:]) == 25
    assert module.sum_of_all(torch.zeros(0)) == 0
    assert module.sum_of_all(torch.tensor(2.5)) == 2.5


def test_none_is_an_empty_optional(module: Any) -> None:
    assert module.optional_rank(None) == -1
    assert module.optional_rank(torch.zeros(2, 3)) == 2
    assert module.optional_or(None) == 7.5
    assert module.optional_or(1.0) == 1.0


def test_the_value_of_an_empty_optional_is_an_error(module: Any) -> None:
    with pytest.raises(RuntimeError, match="is None"):
        module.optional_value(None)


def test_an_optional_of_the_wrong_type_is_a_type_error(module: Any) -> None:
    with pytest.raises(TypeError, match="must be a tensor or None, not int"):
        module.optional_rank(3)
    with pytest.raises(TypeError, match="must be float or None, not str"):
        module.optional_or("x")


def test_a_tensor_that_has_lost_its_memory_is_an_error(module: Any) -> None:
    freed = torch.zeros(2, 3)
    freed.untyped_storage().resize_(0)
    for value in (freed, torch._efficientzerotensor((2, 3))):
        with pytest.raises(
            RuntimeError, match=r"sum_of_all\(\): argument 1 of 1 is a tensor of 6 elements without data"
        ):
            module.sum_of_all(value)
        with pytest.raises(RuntimeError, match=r"same_tensor\(\): argument 1 of 1 is a tensor of 6 elements without"):
            module.same_tensor(value)
        with pytest.raises(RuntimeError, match=r"optional_rank\(\): argument 1 of 1 is a tensor of 6 elements without"):
            module.optional_rank(value)


@pytest.mark.parametrize("text", ["", "float32", "a", "exactly8", "longer than any short string", "n\0ul", "grüße"])
def test_a_string_arrives_whole(module: Any, text: str) -> None:
    assert module.text_size(text) == len(text.encode())
    assert module.text_is_float32(text) == (text == "float32")


def test_dtype_device_and_pointer_arrive(module: Any) -> None:
    assert module.dtype_bits(torch.bfloat16) == 16
    assert module.device_type(tvm_ffi.device("cpu")) == 1
    assert module.device_type(tvm_ffi.device("cuda:1")) == 2
    assert (module.device_type(torch.device("cpu")), module.device_id(torch.device("cpu"))) == (1, 0)
    assert (module.device_type(torch.device("cuda:3")), module.device_id(torch.device("cuda:3"))) == (2, 3)
    for value, came in ((torch.device("meta"), "torch.device"), ("cpu", "str"), (0, "int")):
        with pytest.raises(TypeError, match=rf"argument 1 of 1 must be a device \(cpu or cuda\), not {came}"):
            module.device_type(value)
    assert module.address(None) == 0
    assert module.address(0x7F00_0000_1234) == 0x7F00_0000_1234


def test_an_export_may_return_nothing(module: Any) -> None:
    assert module.nothing() is None


def test_static_members_and_templates_with_commas_are_exported(module: Any) -> None:
    assert module.twice(21) == 42
    assert module.five_times(4) == 20


def test_any_exception_becomes_a_python_exception(module: Any) -> None:
    with pytest.raises(RuntimeError, match="bad_alloc"):
        module.throw_bad_alloc()
    with pytest.raises(RuntimeError, match=r"^a kernel threw something that is not a std::exception: int$"):
        module.throw_an_int()
    with pytest.raises(RuntimeError, match=r"^only text$"):
        module.throw_text()
    with pytest.raises(RuntimeError, match=r"Silent was thrown, without a message$"):
        module.throw_silent()
    with pytest.raises(RuntimeError, match=r"Failed at ffi_cases\.cpp:\d+: n is 3, a 0\.5 of true"):
        module.throw_panic(3)


def test_an_error_that_is_no_text_is_still_shown(module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^caf\ufffd, \ufffd{3} and \ufffd{3}$"):
        module.throw_latin_1()
    with pytest.raises(RuntimeError, match=r"before n\ufffdul after$"):
        module.panic_with_a_null("n\0ul")


def test_the_message_of_an_exception_is_whole(module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^x{100000} the end$"):
        module.throw_much(100_000)


def test_dimensions_count_from_the_end_too(module: Any) -> None:
    x = torch.zeros(2, 3, 4)
    assert [module.size_at(x, i) for i in range(-3, 3)] == [2, 3, 4, 2, 3, 4]
    assert [module.stride_at(x, i) for i in range(-3, 3)] == [12, 4, 1, 12, 4, 1]
    for outside in (3, -4):
        with pytest.raises(RuntimeError, match=rf"dimension {outside} of a tensor with 3 dimensions"):
            module.size_at(x, outside)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 3),
        torch.zeros(0, 3).t(),
        torch.tensor(1.0),
        torch.zeros(4, 1, 5)[:, :1],
        torch.zeros(3, 4).t(),
        torch.zeros(4, 4)[:, :2],
        torch.zeros(1, 9)[:, ::3],
        torch.zeros(5)[::2],
        torch.zeros(2, 1).expand(2, 3),
    ],
)
def test_contiguous_means_what_torch_means(module: Any, x: torch.Tensor) -> None:
    assert module.contiguous(x) == x.is_contiguous()


def test_a_tensor_without_strides_is_contiguous(module: Any) -> None:
    assert module.null_strides_mean_contiguous()


def test_the_byte_offset_is_part_of_the_address(module: Any) -> None:
    assert module.byte_offset_is_counted_in()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", torch.float32),
        ("const_float", torch.float32),
        ("int64", torch.int64),
        ("bool", torch.bool),
        ("pair", torch.float32),
    ],
)
def test_the_data_has_the_type_of_its_elements(module: Any, name: str, dtype: torch.dtype) -> None:
    assert getattr(module, f"is_data_of_{name}")(torch.zeros(3, dtype=dtype)[1:])


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("float", torch.float64, "the elements are float64, and T is float32"),
        ("float", torch.int32, "the elements are int32, and T is float32"),
        ("int64", torch.float64, "the elements are float64, and T is int64"),
        ("bool", torch.uint8, "the elements are uint8, and T is bool"),
        ("pair", torch.float64, "the elements are float64, and T has 4 bytes"),
    ],
)
def test_the_data_of_other_elements_is_an_error(module: Any, name: str, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(message)):
        getattr(module, f"is_data_of_{name}")(torch.zeros(3, dtype=dtype))


def test_a_tensor_comes_back_as_the_same_tensor(module: Any) -> None:
    x = torch.arange(6.0)
    y = module.same_tensor(x)
    assert isinstance(y, torch.Tensor)
    assert y.data_ptr() == x.data_ptr()
    del x
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_no_tensor_is_none(module: Any) -> None:
    assert module.no_tensor() is None
    assert module.maybe(None) is None
    assert module.maybe(torch.ones(2)).tolist() == [1, 1]
    assert module.first_or_new(None, torch.zeros(3)).shape == (3,)
    assert module.first_or_new(torch.ones(2), torch.zeros(3)).tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"same_tensor\(\): argument 1 of 1 must be a tensor, not None"):
        module.same_tensor(None)
    with pytest.raises(RuntimeError, match="this tensor is empty"):
        module.size_of_no_tensor()


def test_a_new_tensor_comes_from_torchs_allocator(module: Any) -> None:
    x = torch.zeros(4, 5, dtype=torch.float16)
    like = module.made_like(x)
    assert (like.shape, like.dtype, like.device) == (x.shape, x.dtype, x.device)
    made = module.made(x, 3, torch.int64)
    assert (made.shape, made.dtype, made.is_contiguous()) == ((3, 5, 2), torch.int64, True)
    assert module.made_scalar(x).shape == ()
    assert module.made(x, 0, torch.int8).shape == (0, 5, 2)


def test_what_the_allocator_says_becomes_the_exception(module: Any) -> None:
    with pytest.raises((RuntimeError, MemoryError), match=r"ffi_cases\.cpp:\d+: .*overflow"):
        module.made(torch.zeros(1, 1), 2**61, torch.int64)
    with pytest.raises(RuntimeError, match=r"ffi_cases\.cpp:\d+: a new tensor is allocated by .* no tensors"):
        module.made_without_an_allocator(torch.device("cpu"))


def test_a_workspace_has_the_bytes_asked_for_and_none_for_none(module: Any) -> None:
    assert module.workspace_bytes(torch.zeros(1), 1000) == 1000
    assert module.workspace_bytes(torch.zeros(1), 0) == -1


def test_a_tensor_answers_like_its_view(module: Any) -> None:
    assert module.a_tensor_answers_like_its_view(torch.zeros(3, 8)[:, 2:5])


def test_memory_is_given_back_when_the_last_tensor_goes(module: Any) -> None:
    before = module.freed_so_far()
    x = tvm_ffi.from_dlpack(module.from_memory(2, 3))
    y = from_dlpack(x)
    assert y.tolist() == [[1, 2, 3], [4, 5, 6]]
    del x
    assert module.freed_so_far() == before
    del y
    assert module.freed_so_far() == before + 1


def test_foreign_memory_may_have_strides(module: Any) -> None:
    assert from_dlpack(module.transposed_numbers()).tolist() == [[0, 2, 4], [1, 3, 5]]
    like = torch.zeros(3, 2).t()
    assert from_dlpack(module.numbers_like(like, False)).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert from_dlpack(module.numbers_like(like, True)).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(RuntimeError, match="shape and stride have different ranks"):
        module.ranks_that_differ()


def test_shapes_are_made_of_lists_and_vectors(module: Any) -> None:
    assert module.shapes_are_made_of_lists_and_vectors(torch.zeros(7, 3))
