"""kjit/ffi.h: what an export takes, returns, refuses and throws."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi
from torch.utils.dlpack import from_dlpack


class _OfAUser:
    pass


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


def test_an_error_that_is_no_text_is_still_shown(module: Any, tvm_module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^caf\ufffd, \ufffd{3} and \ufffd{3}$"):
        module.throw_latin_1()
    with pytest.raises(ValueError, match=r"^caf\ufffd$"):
        tvm_module.fail_in_latin_1()
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


def test_tvm_ffi_types_are_converted_by_the_same_macro(tvm_module: Any) -> None:
    assert tvm_module.total([1, 2, 3], None) == 6
    assert tvm_module.greet("you") == "hello you"
    assert tvm_module.same(5) == 5
    assert tvm_module.rows(torch.zeros(4, 2), torch.zeros(4, 3)) == 4


T = torch.ones(2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensors", [T, T]),
        ("tensors", []),
        ("views", (T,)),
        ("tensor", T),
        ("optional_tensor", None),
        ("function", len),
        ("ints", [1, True, np.int64(3), -(2**31)]),
        ("bytes", [0, 255]),
        ("floats", [1, 2.5, np.float32(1)]),
        ("flags", [True, 0, 1]),
        ("nested", [[1], (), [2, 3]]),
        ("two_ints", (1, 2)),
        ("pair", (T, 1)),
        ("std_tuple", (1, "a")),
        ("map", {"a": T}),
        ("map", {}),
        ("std_map", {"a": [1, 2], "b": []}),
        ("either", T),
        ("either", 3),
        ("either", [T]),
        ("optional_double", None),
        ("optional_double", 2),
        ("optional_ints", None),
        ("optional_ints", [1]),
        ("text", "x"),
        ("object", None),
        ("object", [1]),
    ],
)
def test_tvm_ffi_types_take_what_fits(tvm_module: Any, name: str, value: object) -> None:
    assert tvm_module[name](value) is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tensors", [T, None], "must be Array<Tensor>: element [1] must be a tensor, not None"),
        ("tensors", [T, 3], "must be Array<Tensor>: element [1] must be a tensor, not int"),
        ("tensors", T, "must be Array<Tensor>, not a tensor"),
        ("tensors", None, "must be Array<Tensor>, not None"),
        ("views", [None], "must be std::vector<TensorView>: element [0] must be a tensor, not None"),
        ("tensor", None, "must be a tensor, not None"),
        ("tensor", "x", "must be a tensor, not str"),
        ("optional_tensor", 3, "must be Optional<Tensor>, not int"),
        ("function", None, "must be a function, not None"),
        ("ints", 3, "must be std::vector<int>, not int"),
        ("ints", [1, None], "must be std::vector<int>: element [1] must be int, not None"),
        ("ints", [1, 2.0], "must be std::vector<int>: element [1] must be int, not float"),
        ("ints", ["a"] * 10_000, "must be std::vector<int>: element [0] must be int, not str"),
        ("ints", {1: 2}, "must be std::vector<int>, not dict"),
        ("ints", torch.tensor([1, 2]), "must be std::vector<int>, not a tensor"),
        ("floats", [T[0]], "must be Array<float>: element [0] must be float, not a tensor"),
        ("flags", [True, 2], "must be Array<bool>: element [1] must be bool, not int"),
        ("flags", [1 + 2j], "must be Array<bool>: element [0] must be bool, not complex"),
        ("nested", [[1], [2, None]], "must be Array<Array<int64_t>>: element [1][1] must be int, not None"),
        ("nested", [1], "must be Array<Array<int64_t>>: element [0] must be Array<int64_t>, not int"),
        ("two_ints", (1, 2, 3), "must be std::array<int, 2>, and has 3 elements instead of 2"),
        ("pair", (T,), "must be Tuple<Tensor, double>, and has 1 element instead of 2"),
        ("pair", (None, 1.0), "must be Tuple<Tensor, double>: element [0] must be a tensor, not None"),
        ("pair", (T, "x"), "must be Tuple<Tensor, double>: element [1] must be float, not str"),
        ("std_tuple", (1, 2), "must be std::tuple<int16_t, std::string>: element [1] must be str, not int"),
        ("map", {"a": None}, "must be Map<String, Tensor>: element ['a'] must be a tensor, not None"),
        ("map", {3: T}, "must be Map<String, Tensor>: key 3 must be str, not int"),
        ("map", [("a", T)], "must be Map<String, Tensor>, not a list or tuple"),
        ("std_map", {"a": [1, "x"]}, "must be std::map<std::string, std::vector<int>>: element ['a'][1] must be int"),
        ("either", None, "must be Variant<Tensor, int64_t, Array<Tensor>>, not None"),
        ("either", "x", "must be Variant<Tensor, int64_t, Array<Tensor>>, not str"),
        ("either", [None], "must be Variant<Tensor, int64_t, Array<Tensor>>: element [0] must be a tensor, not None"),
        ("optional_double", "x", "must be Optional<double>, not str"),
        ("optional_ints", [None], "must be std::optional<std::vector<int>>: element [0] must be int, not None"),
        ("text", b"x", "must be str, not bytes"),
    ],
)
def test_tvm_ffi_types_that_do_not_fit_name_type_and_element(
    tvm_module: Any, name: str, value: object, said: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{name}(): argument 1 of 1 {said}")):
        tvm_module[name](value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ints", [0, 2**31], "must be std::vector<int>: element [1] is out of range for a 32-bit integer: 2147483648"),
        ("ints", [2**70], "must be std::vector<int>: element [0] is out of range for a 32-bit integer"),
        ("bytes", [256], "must be Array<uint8_t>: element [0] is out of range for an unsigned 8-bit integer: 256"),
        (
            "floats",
            [1e39],
            "must be Array<float>: element [0] is out of range for a 32-bit floating-point number: 1e39",
        ),
        ("two_ints", (1, 2**40), "must be std::array<int, 2>: element [1] is out of range for a 32-bit integer"),
        ("std_tuple", (2**15, ""), "element [0] is out of range for a 16-bit integer: 32768"),
    ],
)
def test_a_number_in_a_list_is_not_cut_down(tvm_module: Any, name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        tvm_module[name](value)


def test_none_in_a_list_of_optional_tensors_is_none(tvm_module: Any) -> None:
    assert tvm_module.elements_of([T, None, torch.ones(3)]) == 2 - 1 + 3
    assert tvm_module.elements_of_values({"a": T, "b": torch.ones(3)}) == 5


def test_a_list_that_tvm_ffi_made_is_looked_into_too(tvm_module: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("must be Array<Tensor>: element [0] must be a tensor, not None")):
        tvm_module.tensors(tvm_ffi.Array([None]))
    with pytest.raises(TypeError, match=re.escape("must be Map<String, Tensor>: element ['a'] must be a tensor, not")):
        tvm_module.map(tvm_ffi.Map({"a": None}))


def test_a_tensor_without_memory_in_a_list_is_an_error(tvm_module: Any) -> None:
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    for name, value in (("tensors", [T, freed]), ("views", [T, freed])):
        with pytest.raises(RuntimeError, match=r"element \[1\] is a tensor of 3 elements without data"):
            tvm_module[name](value)
    with pytest.raises(RuntimeError, match=r"tensor\(\): argument 1 of 1 is a tensor of 3 elements without data"):
        tvm_module.tensor(freed)


def test_a_tvm_ffi_error_keeps_its_kind(tvm_module: Any) -> None:
    with pytest.raises(IndexError, match="past the end"):
        tvm_module.fail_as_index_error()


@pytest.mark.parametrize("order", ["before", "after"])
def test_tensors_of_both_kinds_are_exchanged(tvm_module: Any, order: str) -> None:
    """In functions before tvm-ffi's C++ headers are included, with kjit's types, and after, with tvm-ffi's."""
    x = torch.arange(6.0).reshape(2, 3)
    assert tvm_module[f"same_{order}"](x).data_ptr() == x.data_ptr()
    like = tvm_module[f"like_{order}"](x, x)
    assert (like.shape, like.dtype) == (x.shape, x.dtype)
    assert tvm_module[f"like_{order}"](x, None) is None


def test_kjits_tensors_are_in_tvm_ffis_containers(tvm_module: Any) -> None:
    x = torch.arange(3.0)
    pair = tvm_module.pair_of_light_tensors(x, None)
    assert [each.data_ptr() for each in pair] == [x.data_ptr()] * 2
    assert tvm_module.pair_of_light_tensors(x, torch.zeros(5))[1].shape == (3,)
    assert tvm_module.sum_of_sizes([x, torch.zeros(4)]) == 7
    for value, came in ((4, "int"), (None, "None")):
        with pytest.raises(TypeError, match=rf"Array<Tensor>: element \[1\] must be a tensor, not {came}"):
            tvm_module.sum_of_sizes([x, value])


def test_a_function_of_python_can_be_called(tvm_module: Any) -> None:
    assert tvm_module.twice(lambda x: x * 3, 2) == 18
    with pytest.raises(TypeError, match=r"twice\(\): argument 1 of 2"):
        tvm_module.twice(4, 2)


def test_objects_of_a_registered_class_are_exchanged(tvm_module: Any) -> None:
    counter = tvm_module.new_counter()
    assert [tvm_module.count(counter, torch.zeros(n)) for n in (2, 3)] == [2, 5]
    with pytest.raises(TypeError, match=r"count\(\): argument 1 of 2 must be Counter, not None"):
        tvm_module.count(None, torch.zeros(1))
    with pytest.raises(TypeError, match=r"sum_of_sizes\(\): argument 1 of 1 must be .*, not a kjit\.tests\.Counter"):
        tvm_module.sum_of_sizes(counter)


def test_tvm_ffis_headers_may_come_first(load_cpp: Any) -> None:
    module = load_cpp("tvm_first_cases")
    x = torch.arange(6.0).reshape(2, 3)
    assert module.rows(x, None) == 2
    assert module.rows(x, x) == 4
    assert module.made_like(x).shape == (2, 3)
