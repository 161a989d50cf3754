"""kjit/tvm_ffi.h: exports with the types of tvm-ffi's C++ headers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi

CASES = "tvm_ffi_cases"


def test_tvm_ffi_types_are_converted_by_the_same_macro(module: Any) -> None:
    assert module.total([1, 2, 3], None) == 6
    assert module.greet("you") == "hello you"
    assert module.same(5) == 5
    assert module.rows(torch.zeros(4, 2), torch.zeros(4, 3)) == 4


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
def test_tvm_ffi_types_take_what_fits(module: Any, name: str, value: object) -> None:
    assert module[name](value) is None


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
def test_tvm_ffi_types_that_do_not_fit_name_type_and_element(module: Any, name: str, value: object, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{name}(): argument 1 of 1 {said}")):
        module[name](value)


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
def test_a_number_in_a_list_is_not_cut_down(module: Any, name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        module[name](value)


def test_none_in_a_list_of_optional_tensors_is_none(module: Any) -> None:
    assert module.elements_of([T, None, torch.ones(3)]) == 2 - 1 + 3
    assert module.elements_of_values({"a": T, "b": torch.ones(3)}) == 5


def test_a_list_that_tvm_ffi_made_is_looked_into_too(module: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("must be Array<Tensor>: element [0] must be a tensor, not None")):
        module.tensors(tvm_ffi.Array([None]))
    with pytest.raises(TypeError, match=re.escape("must be Map<String, Tensor>: element ['a'] must be a tensor, not")):
        module.map(tvm_ffi.Map({"a": None}))


def test_a_tensor_without_memory_in_a_list_is_an_error(module: Any) -> None:
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    for name, value in (("tensors", [T, freed]), ("views", [T, freed])):
        with pytest.raises(RuntimeError, match=r"element \[1\] is a tensor of 3 elements without data"):
            module[name](value)
    with pytest.raises(RuntimeError, match=r"tensor\(\): argument 1 of 1 is a tensor of 3 elements without data"):
        module.tensor(freed)


def test_an_error_that_is_no_text_is_still_shown(module: Any) -> None:
    with pytest.raises(ValueError, match=r"^caf\ufffd$"):
        module.fail_in_latin_1()


def test_a_tvm_ffi_error_keeps_its_kind(module: Any) -> None:
    with pytest.raises(IndexError, match="past the end"):
        module.fail_as_index_error()


@pytest.mark.parametrize("order", ["before", "after"])
def test_tensors_of_both_kinds_are_exchanged(module: Any, order: str) -> None:
    """In functions before tvm-ffi's C++ headers are included, with kjit's types, and after, with tvm-ffi's."""
    x = torch.arange(6.0).reshape(2, 3)
    assert module[f"same_{order}"](x).data_ptr() == x.data_ptr()
    like = module[f"like_{order}"](x, x)
    assert (like.shape, like.dtype) == (x.shape, x.dtype)
    assert module[f"like_{order}"](x, None) is None


def test_kjits_tensors_are_in_tvm_ffis_containers(module: Any) -> None:
    x = torch.arange(3.0)
    pair = module.pair_of_light_tensors(x, None)
    assert [each.data_ptr() for each in pair] == [x.data_ptr()] * 2
    assert module.pair_of_light_tensors(x, torch.zeros(5))[1].shape == (3,)
    assert module.sum_of_sizes([x, torch.zeros(4)]) == 7
    for value, came in ((4, "int"), (None, "None")):
        with pytest.raises(TypeError, match=rf"Array<Tensor>: element \[1\] must be a tensor, not {came}"):
            module.sum_of_sizes([x, value])


def test_a_function_of_python_can_be_called(module: Any) -> None:
    assert module.twice(lambda x: x * 3, 2) == 18
    with pytest.raises(TypeError, match=r"twice\(\): argument 1 of 2"):
        module.twice(4, 2)


def test_objects_of_a_registered_class_are_exchanged(module: Any) -> None:
    counter = module.new_counter()
    assert [module.count(counter, torch.zeros(n)) for n in (2, 3)] == [2, 5]
    with pytest.raises(TypeError, match=r"count\(\): argument 1 of 2 must be Counter, not None"):
        module.count(None, torch.zeros(1))
    with pytest.raises(TypeError, match=r"sum_of_sizes\(\): argument 1 of 1 must be .*, not a kjit\.tests\.Counter"):
        module.sum_of_sizes(counter)


def test_tvm_ffis_headers_may_come_first(load_cpp: Any) -> None:
    module = load_cpp("tvm_first_cases")
    x = torch.arange(6.0).reshape(2, 3)
    assert module.rows(x, None) == 2
    assert module.rows(x, x) == 4
    assert module.made_like(x).shape == (2, 3)
