"""kjit.make_cpp_args: every Python value has the same value in C++."""

from __future__ import annotations

import ctypes
import enum
import math
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kjit
from kjit import make_cpp_args
from kjit.engine.toolchain.compilers import find_cxx
from kjit.spec import CPP_DTYPES


class Color(enum.IntEnum):
    RED = 3


class Layout(str, enum.Enum):
    ROW = "kRow"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (-7, "-7"),
        (-(2**31), "(-2147483647 - 1)"),
        (2**31, "2147483648LL"),
        (-(2**63), "(-9223372036854775807LL - 1)"),
        (2**63, "9223372036854775808ULL"),
        (Color.RED, "3"),
        (0.1, "0x1.999999999999ap-4"),
        (-0.0, "-0x0.0p+0"),
        (math.inf, "__builtin_inf()"),
        (-math.inf, "-__builtin_inf()"),
        (math.nan, '__builtin_nan("")'),
        ("std::pair<int, float>", "std::pair<int, float>"),
        (Layout.ROW, "kRow"),
    ],
)
def test_a_value_is_written_as(value: object, written: str) -> None:
    assert make_cpp_args(value) == (written,)


@pytest.mark.parametrize(
    "name", [name for name in CPP_DTYPES.values() if name.startswith(("fp", "bf")) and "fnuz" not in name]
)
def test_the_headers_define_a_type_of_this_name_with_and_without_cuda(name: str) -> None:
    header = (Path(kjit.__file__).parent / "include" / "kjit" / "dtype.h").read_text("utf-8")
    always, cuda, light = re.split("^#if KJIT_CUDA_TYPES$|^#else$", header, flags=re.MULTILINE)[-3:]
    definition = re.compile(rf"^(?:using {name} =|struct {name} |KJIT_LIGHT_TYPE_\({name},)", re.MULTILINE)
    assert definition.search(always) or (definition.search(cuda) and definition.search(light))


@pytest.mark.parametrize("dtype", CPP_DTYPES)
def test_a_dtype_is_written_as_its_name_in_the_headers(dtype: str) -> None:
    assert make_cpp_args(getattr(torch, dtype)) == (CPP_DTYPES[dtype],)


def test_the_text_of_several_is_a_list_of_template_arguments() -> None:
    args = make_cpp_args(torch.float16, 4, True)
    assert f"Scale<{args}>::run" == "Scale<fp16_t, 4, true>::run"


def test_an_integer_of_numpy_is_the_integer_that_it_equals() -> None:
    numpy = pytest.importorskip("numpy")
    assert make_cpp_args(numpy.int64(-3), numpy.uint64(2**63)) == ("-3", "9223372036854775808ULL")


@pytest.mark.parametrize("value", [None, 1j, b"x", [1], torch.ones(()), torch.complex64, object, 2**64, -(2**63) - 1])
def test_an_unsupported_value_is_named_with_what_is_supported(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        make_cpp_args(value)
    assert repr(value) in str(caught.value)
    assert "bool, int (64 bits), float, str" in str(caught.value)
    assert "bfloat16" in str(caught.value)


def test_torch_is_not_imported_for_values_without_torch() -> None:
    script = "import sys, kjit; kjit.make_cpp_args(True, 1, 0.5, 'T'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_cpp_reads_back_every_number_bit_by_bit(tmp_path: Path) -> None:
    integers = [0, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
    unsigned = [2**63, 2**64 - 1]
    floats = [0.1, -0.1, -0.0, 5e-324, sys.float_info.max, 1 / 3, math.inf, -math.inf, math.nan]
    cases = [(value, "long long", make_cpp_args(value)) for value in integers]
    cases += [(value, "unsigned long long", make_cpp_args(value)) for value in unsigned]
    cases += [(value, "double", make_cpp_args(value)) for value in floats]
    lines = ["template <auto V> struct Auto { static constexpr auto value = V; };"]
    for index, (_, kind, args) in enumerate(cases):
        # `auto` above shows that the literal has no other value under its own type; here it meets the parameter's.
        lines.append(f"template <{kind} V> struct T{index} {{ static constexpr {kind} value = V; }};")
        lines.append(f'extern "C" {kind} get{index}() {{ return T{index}<{args}>::value; }}')
        lines.append(f"static_assert(sizeof(Auto<{args}>) == 1);")
    source, library = tmp_path / "values.cpp", tmp_path / "values.so"
    source.write_text("\n".join([*lines, ""]))
    subprocess.run([find_cxx().path, "-std=c++20", "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    for index, (value, kind, _) in enumerate(cases):
        get = loaded[f"get{index}"]
        get.restype = {"long long": ctypes.c_int64, "unsigned long long": ctypes.c_uint64, "double": ctypes.c_double}[
            kind
        ]
        form = "<d" if kind == "double" else "<q" if kind == "long long" else "<Q"
        assert struct.pack(form, get()) == struct.pack(form, value), f"{value} came back as {get()}"
