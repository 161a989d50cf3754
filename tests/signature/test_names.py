"""kjit.signature.names: rejected names, each with a suggestion that is valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjit.signature.names import free_name, parameter_problem


def suggested(hint: str) -> str:
    assert hint.startswith("for example: ")
    return hint.removeprefix("for example: ")


@given(st.one_of(st.text(max_size=50), st.from_regex(r"[a-zA-Z_]\w{0,45}", fullmatch=True)), st.booleans())
def test_the_suggested_parameter_would_do(name: str, dimension: bool) -> None:
    problem = parameter_problem(name, dimension=dimension)
    if problem is not None:
        assert parameter_problem(suggested(problem.hint), dimension=dimension) is None


@pytest.mark.parametrize("name", ["X", "alpha__", "class", "template", "dtype", "i", "threadIdx", "numel", "mut"])
def test_a_parameter_that_the_code_uses_itself_is_refused(name: str) -> None:
    assert parameter_problem(name) is not None


@pytest.mark.parametrize("name", ["NULL", "EOF", "sched_priority", "shape", "i"])
def test_a_dimension_that_is_a_macro_or_a_local_name_is_refused(name: str) -> None:
    assert parameter_problem(name, dimension=True) is not None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["x", "x" * 28, "dtype_"])
@pytest.mark.parametrize("suffix", ["", "_in"])
def test_a_free_name_is_found_for_every_parameter_and_however_many_are_taken(name: str, suffix: str) -> None:
    taken = {name}
    for _ in range(20):
        free = free_name(name, taken, suffix=suffix)
        assert free not in taken
        assert parameter_problem(free) is None
        taken.add(free)
