"""kjit.projects.op_names: rejected names, each with a suggestion that is valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjit.errors import UsageError
from kjit.projects.op_names import MAX_OP_LENGTH, check_op_name, op_problem


def suggested(hint: str) -> str:
    assert hint.startswith("for example: ")
    return hint.removeprefix("for example: ")


@pytest.mark.parametrize("name", ["scale", "rms_norm", "bump_", "a1", "index_select", "take_rows", "copy", "x" * 32])
def test_ordinary_names_are_accepted(name: str) -> None:
    check_op_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "is a path"),
        ("", "is empty"),
        ("a b", "a space"),
        ("a-b", "'-' in it"),
        ("été", "plain ASCII"),
        ("1x", "starts with a digit"),
        ("_x", "starts with an underscore"),
        ("a__b", "two underscores"),
        ("Scale", "capital letters"),
        ("class", "keyword of Python"),
        ("int", "keyword of C\\+\\+"),
        ("print", "builtin of Python"),
        ("l", "looks like the digit 1"),
        ("torch", "would hide a name"),
        ("tensor_view", "would hide TensorView"),
        ("test_scale", "pytest and packaging"),
        ("conftest", "pytest and packaging"),
        ("x" * 33, "33 characters"),
    ],
)
def test_a_bad_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_op_name(name)


@given(st.one_of(st.text(max_size=50), st.from_regex(r"[a-zA-Z_]\w{0,45}", fullmatch=True)))
def test_the_suggested_name_would_do(name: str) -> None:
    problem = op_problem(name)
    if problem is not None:
        assert op_problem(suggested(problem.hint)) is None
    else:
        assert name.isidentifier()
        assert len(name) <= MAX_OP_LENGTH


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("scale.py", "for example: scale"),
        ("kernels/csrc/rms_norm.cuh", "for example: rms_norm"),
        ("benchmarks/bench_scale.py", "for example: scale"),
        ("", "for example: my_op"),
        (".", "for example: my_op"),
        ("x: T[N] -> out: T[N]", "kjit new my_op 'x: T[N] -> out: T[N]'"),
    ],
)
def test_a_file_or_a_signature_in_the_place_of_a_name_has_a_hint_that_works(name: str, hint: str) -> None:
    problem = op_problem(name)
    assert problem is not None
    assert problem.hint == hint
