"""kjit/ffi.h: what an export takes, returns, refuses and throws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm_ffi


@pytest.fixture(scope="module")
def module(load_cpp: Any) -> Any:
    return load_cpp("ffi_cases")


@pytest.fixture(scope="module")
def tvm_module(load_cpp: Any) -> Any:
    return load_cpp("tvm_ffi_cases")


INTEGERS = [(f"{sign}int{bits}", sign == "u", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize(("name", "unsigned", "bits"), INTEGERS)
def test_an_integer_type_takes_exactly_its_range(module: Any, name: str, unsigned: bool, bits: int) -> None:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if name == "uint64":  # a result past 2^63 does not fit what an export returns: look at the half
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


def test_nan_and_integers_are_floats(module: Any) -> None:
    assert module.echo_double(float("nan")) != module.echo_double(float("nan"))
    assert module.echo_float(3) == 3.0
    assert module.echo_float(True) == 1.0


def test_a_finite_value_that_would_become_infinite_is_an_error(module: Any) -> None:
    assert module.echo_float(3.4028234663852886e38) == 3.4028234663852886e38
    assert module.echo_float(float("-inf")) == float("-inf")
    with pytest.raises(ValueError, match="out of range for a 32-bit floating-point number: 1e39"):
        module.echo_float(1e39)


def test_bool_takes_bools_and_zero_and_one(module: Any) -> None:
    assert module.echo_bool(True) is True
    assert module.echo_bool(0) is False
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
    with pytest.raises(TypeError, match="must be a tensor, not int"):
        module.optional_rank(3)


@pytest.mark.parametrize("text", ["", "float32", "a", "exactly8", "longer than any short string", "n\0ul", "grüße"])
def test_a_string_arrives_whole(module: Any, text: str) -> None:
    assert module.text_size(text) == len(text.encode())
    assert module.text_is_float32(text) == (text == "float32")


def test_dtype_device_and_pointer_arrive(module: Any) -> None:
    assert module.dtype_bits(torch.bfloat16) == 16
    assert module.device_type(tvm_ffi.device("cpu")) == 1
    assert module.device_type(tvm_ffi.device("cuda:1")) == 2
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
    with pytest.raises(RuntimeError, match=r"not a std::exception"):
        module.throw_an_int()
    with pytest.raises(RuntimeError, match=r"Failed at ffi_cases\.cpp:\d+: n is 3, a 0\.5 of true"):
        module.throw_panic(3)


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


def test_tvm_ffi_types_are_converted_by_the_same_macro(tvm_module: Any) -> None:
    assert tvm_module.total([1, 2, 3], None) == 6
    assert tvm_module.greet("you") == "hello you"
    assert tvm_module.same(5) == 5
    assert tvm_module.rows(torch.zeros(4, 2), torch.zeros(4, 3)) == 4


def test_tvm_ffi_types_that_do_not_fit_are_a_type_error(tvm_module: Any) -> None:
    with pytest.raises(TypeError, match=r"total\(\): argument 1 of 2"):
        tvm_module.total(3, None)


def test_a_tvm_ffi_error_keeps_its_kind(tvm_module: Any) -> None:
    with pytest.raises(IndexError, match="past the end"):
        tvm_module.fail_as_index_error()
