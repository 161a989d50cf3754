"""kjit.dtypes: kind, size and C++ name follow from the name of a dtype, and agree with torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import kjit
from kjit.dtypes import DTYPES, DType, find_dtype
from kjit.spec import make_cpp_args


@pytest.mark.parametrize("dtype", dict.fromkeys(DTYPES.values()), ids=str)
def test_kind_size_and_cpp_name_are_those_of_torch_and_of_template_arguments(dtype: DType) -> None:
    known = getattr(torch, dtype.name)
    assert dtype.bytes == known.itemsize
    assert (dtype.kind == "float") == known.is_floating_point
    assert (dtype.kind == "bool") == (known == torch.bool)
    assert (dtype.cpp,) == make_cpp_args(known)
    assert {find_dtype(name) for name in (dtype.name, dtype.cpp, dtype.short, f"torch.{dtype.name}")} == {dtype}


@pytest.mark.parametrize("dtype", dict.fromkeys(DTYPES.values()), ids=str)
def test_the_cpp_name_is_a_type_of_c_or_of_the_header_about_element_types(dtype: DType) -> None:
    header = Path(kjit.__file__).with_name("include") / "kjit" / "dtype.h"
    own = set(re.findall(r"^(?:using|struct) (\w+_t)\b", header.read_text("utf-8"), re.MULTILINE))
    assert dtype.cpp in own | {"double", "bool"} or re.fullmatch(r"u?int(8|16|32|64)_t", dtype.cpp)


def test_a_name_of_c_or_numpy_is_understood_and_a_dtype_without_arithmetic_is_none() -> None:
    assert find_dtype("half") == find_dtype("fp16") == DTYPES["float16"]
    assert find_dtype("long") == DTYPES["int64"]
    assert find_dtype("uint16") is None
