"""kjit/ffi.h: parameters, results, errors and exceptions of exports."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi
from torch.utils.dlpack import from_dlpack

CASES = "ffi_cases"


class _OfAUser:
    pass


T = torch.ones(3)
RANGE = torch.arange(8, dtype=torch.float32)
INFINITY = float("inf")
# An export, its arguments, and what it returns.
RETURNED: list[tuple[str, list[Any], Any]] = [
    *(("echo_double", [value], value) for value in (0.0, -0.0, 1.5, 1e300, INFINITY)),
    ("echo_float", [3], 3.0),
    ("echo_float", [True], 1.0),
    ("echo_float", [3.4028234663852886e38], 3.4028234663852886e38),
    ("echo_float", [-INFINITY], -INFINITY),
    # An integer of any size is a float.
    *(("echo_double", [value], float(value)) for value in (2**70, -(2**1000), 2**64 - 1)),
    *(("echo_bool", [value], result) for value, result in ((True, True), (0, False), (np.bool_(True), True))),
    ("echo_bool", [np.zeros(1)[0] > 0], False),
    *(
        ("count_of_list", [make([T] * count), 0], count)
        for make, count in itertools.product([list, tuple, tvm_ffi.convert], (0, 1, 3))
    ),
    ("count_of_list", [[T, torch.empty(0)], 0], 2),
    # A tensor is seen in place.
    ("sum_of_all", [RANGE], 28.0),
    ("sum_of_all", [RANGE[3:]], 25.0),
    ("sum_of_all", [torch.zeros(0)], 0.0),
    ("sum_of_all", [torch.tensor(2.5)], 2.5),
    ("optional_rank", [None], -1),
    ("optional_rank", [torch.zeros(2, 3)], 2),
    ("optional_or", [None], 7.5),
    ("optional_or", [1.0], 1.0),
    *(
        ("text_size", [text], len(text.encode()))
        for text in ("", "a", "exactly8", "longer than any short string", "n\0ul", "grüße")
    ),
    ("text_is_float32", ["float32"], True),
    ("text_is_float32", ["float16"], False),
    ("dtype_bits", [torch.bfloat16], 16),
    ("device_type", [tvm_ffi.device("cpu")], 1),
    ("device_type", [tvm_ffi.device("cuda:1")], 2),
    ("device_type", [torch.device("cpu")], 1),
    ("device_id", [torch.device("cpu")], 0),
    ("device_type", [torch.device("cuda:3")], 2),
    ("device_id", [torch.device("cuda:3")], 3),
    ("address", [None], 0),
    ("address", [0x7F00_0000_1234], 0x7F00_0000_1234),
    ("nothing", [], None),
    ("twice", [21], 42),  # a static member
    ("five_times", [4], 20),  # a template with a comma
    # Dimensions count from the end too.
    *(("size_at", [torch.zeros(2, 3, 4), i], size) for i, size in zip(range(-3, 3), [2, 3, 4] * 2, strict=True)),
    *(("stride_at", [torch.zeros(2, 3, 4), i], size) for i, size in zip(range(-3, 3), [12, 4, 1] * 2, strict=True)),
    *(
        ("contiguous", [x], x.is_contiguous())
        for x in (
            *(torch.zeros(2, 3), torch.zeros(0, 3).t(), torch.tensor(1.0), torch.zeros(4, 1, 5)[:, :1]),
            *(torch.zeros(3, 4).t(), torch.zeros(4, 4)[:, :2], torch.zeros(1, 9)[:, ::3], torch.zeros(5)[::2]),
            torch.zeros(2, 1).expand(2, 3),
        )
    ),
    ("null_strides_mean_contiguous", [], True),
    ("byte_offset_is_counted_in", [], True),
    ("workspace_bytes", [T, 1000], 1000),
    ("workspace_bytes", [T, 0], -1),
    ("a_tensor_answers_like_its_view", [torch.zeros(3, 8)[:, 2:5]], True),
    ("shapes_are_made_of_lists_and_vectors", [torch.zeros(7, 3)], True),
    # The data has the type of its elements.
    ("is_data_of_float", [torch.zeros(3)[1:]], True),
    ("is_data_of_const_float", [torch.zeros(3)[1:]], True),
    ("is_data_of_int64", [torch.zeros(3, dtype=torch.int64)[1:]], True),
    ("is_data_of_bool", [torch.zeros(3, dtype=torch.bool)[1:]], True),
    ("is_data_of_pair", [torch.zeros(3)[1:]], True),
]
LIST = r"count_of_list\(\): argument 1 of 2 must be a list of tensors"
# An export, its arguments, and the error.
RAISED: list[tuple[str, list[Any], type[Exception], str]] = [
    ("echo_uint64", [2**63], RuntimeError, "does not fit a 64-bit integer"),
    ("echo_int32", [1.5], TypeError, r"echo_int32\(\): argument 1 of 1 must be int, not float"),
    ("echo_float", [1e39], ValueError, "out of range for a 32-bit floating-point number: 1e39"),
    ("echo_float", [2**130], ValueError, "argument 1 of 1 is out of range for a 32-bit floating-point number"),
    ("echo_double", [2**1024], ValueError, "argument 1 of 1 is out of range for a floating-point number"),
    ("echo_bool", [2], TypeError, "must be bool, not int"),
    ("count_of_list", [3, 0], TypeError, f"{LIST}, not int"),
    ("count_of_list", [T, 0], TypeError, f"{LIST}, not a tensor"),
    ("count_of_list", [{}, 0], TypeError, f"{LIST}, not dict"),
    ("count_of_list", [[T, None], 0], TypeError, rf"{LIST}: element \[1\] must be a tensor, not None"),
    ("count_of_list", [[[T]], 0], TypeError, r"element \[0\] must be a tensor, not a list or tuple"),
    ("sum_of_all", [T, 1], TypeError, r"sum_of_all\(\) takes 1 argument, but 2 were given"),
    ("nothing", [1], TypeError, r"nothing\(\) takes 0 arguments, but 1 was given"),
    ("optional_value", [None], RuntimeError, "is None"),
    ("optional_rank", [3], TypeError, "must be a tensor or None, not int"),
    ("optional_or", ["x"], TypeError, "must be float or None, not str"),
    *(
        ("device_type", [value], TypeError, rf"argument 1 of 1 must be a device \(cpu or cuda\), not {came}")
        for value, came in ((torch.device("meta"), "torch.device"), ("cpu", "str"), (0, "int"))
    ),
    ("size_at", [torch.zeros(2, 3, 4), 3], RuntimeError, "dimension 3 of a tensor with 3 dimensions"),
    ("size_at", [torch.zeros(2, 3, 4), -4], RuntimeError, "dimension -4 of a tensor with 3 dimensions"),
    # Any exception becomes one of Python's, with its whole message, even if it is no text.
    ("throw_bad_alloc", [], RuntimeError, "bad_alloc"),
    ("throw_an_int", [], RuntimeError, r"^a kernel threw something that is not a std::exception: int$"),
    ("throw_text", [], RuntimeError, r"^only text$"),
    ("throw_silent", [], RuntimeError, r"Silent was thrown, without a message$"),
    ("throw_panic", [3], RuntimeError, r"Failed at ffi_cases\.cpp:\d+: n is 3, a 0\.5 of true"),
    ("throw_latin_1", [], RuntimeError, "^caf\ufffd, \ufffd{3} and \ufffd{3}$"),
    ("panic_with_a_null", ["n\0ul"], RuntimeError, "before n\ufffdul after$"),
    ("throw_much", [100_000], RuntimeError, r"^x{100000} the end$"),
    ("is_data_of_float", [torch.zeros(3).double()], RuntimeError, "the elements are float64, and T is float32"),
    ("is_data_of_float", [torch.zeros(3).int()], RuntimeError, "the elements are int32, and T is float32"),
    ("is_data_of_int64", [torch.zeros(3).double()], RuntimeError, "the elements are float64, and T is int64"),
    ("is_data_of_bool", [torch.zeros(3).byte()], RuntimeError, "the elements are uint8, and T is bool"),
    ("is_data_of_pair", [torch.zeros(3).double()], RuntimeError, "the elements are float64, and T has 4 bytes"),
]


@pytest.mark.parametrize(("export", "arguments", "result"), RETURNED)
def test_values_arrive_and_return(module: Any, export: str, arguments: list[Any], result: Any) -> None:
    returned = module[export](*arguments)
    assert (type(returned), returned) == (type(result), result)


@pytest.mark.parametrize(("export", "arguments", "error", "message"), RAISED)
def test_what_does_not_fit_and_what_is_thrown_is_an_exception(
    module: Any, export: str, arguments: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        module[export](*arguments)


def test_nan_stays_nan(module: Any) -> None:
    assert module.echo_double(float("nan")) != module.echo_double(float("nan"))


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


def test_a_tensor_in_a_list_has_to_have_memory(module: Any) -> None:
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"element \[1\]"):
        module.count_of_list([torch.ones(3), freed], 0)


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
