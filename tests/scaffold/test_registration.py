"""Every signature of the language is valid for PyTorch's registration, or rejected."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from drawn import ANY_SHAPES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from registered import register

from kjit.signature.parser import parse_signature
from kjit.signature.signature import SignatureError


def of_many(inputs: int, numbers: int, outputs: int) -> str:
    """A signature with these numbers of parameters."""
    parts = [*(f"x{n}: T[N]" for n in range(inputs)), *(f"n{n}: int = {n}" for n in range(numbers))]
    return f"{', '.join(parts)} -> {', '.join(f'out{n}: T[N]' for n in range(outputs))}"


@pytest.mark.parametrize(("inputs", "numbers", "outputs"), [(63, 0, 1), (1, 62, 1), (1, 0, 63), (20, 20, 24)])
def test_an_op_has_at_most_64_parameters_and_outputs(tmp_path: Path, inputs: int, numbers: int, outputs: int) -> None:
    register(tmp_path, of_many(inputs, numbers, outputs), "elementwise")
    for more in ((inputs + 1, numbers, outputs), (inputs, numbers + 1, outputs), (inputs, numbers, outputs + 1)):
        text = of_many(*more)
        with pytest.raises(SignatureError, match=r"65 parameters and outputs are too many: .* at most 64") as caught:
            parse_signature(text)
        assert text[caught.value.column :].startswith(f"out{more[2] - 1}:")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    defaults=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**64), 2**64), max_size=3),
    counts=st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)) | st.just((2, 58, 2)),
    shape=ANY_SHAPES.filter(bool),
)
@example(defaults=[], counts=(1, 0, 1), shape=(2**32, 2**31))
def test_what_is_read_pytorch_takes_as_an_op(
    tmp_path: Path, defaults: list[float | int], counts: tuple[int, int, int], shape: tuple[str | int, ...]
) -> None:
    numbers = "".join(f", a{n}: {type(each).__name__} = {each!r}" for n, each in enumerate(defaults))
    tensor = f"T[{', '.join(map(str, shape))}]"
    text = of_many(*counts).replace(" ->", f"{numbers} ->").replace("T[N]", tensor)
    fits = (
        all(each in range(-(2**63), 2**63) for each in defaults if isinstance(each, int))
        and all(not 0 < abs(each) < sys.float_info.min for each in defaults if isinstance(each, float))
        and sum(counts) + len(defaults) <= 64
        and math.prod(dimension for dimension in shape if isinstance(dimension, int)) < 2**63
    )
    if fits:
        register(tmp_path, text, "minimal")
    else:
        with pytest.raises(SignatureError):
            parse_signature(text)
