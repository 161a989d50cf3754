"""kjit.engine.portable: libraries compiled on another machine."""

from __future__ import annotations

import pytest

from kjit.engine.portable import differences_of_machines, glibc_of, numbers_of, this_machine
from kjit.runtime import bundle


def test_what_was_compiled_here_runs_here() -> None:
    assert differences_of_machines(this_machine()) == ()


@pytest.mark.parametrize(
    ("built", "here", "fits"),
    [("0.1.2", "0.1.2", True), ("0.1.2", "0.1.15.post2", True), ("0.1.2", "0.1.1", False), ("0.1.2", "0.2.2", False)],
)
def test_a_version_fits_from_that_it_was_compiled_with_on_in_its_series(
    built: str, here: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_tvm_ffi_version", lambda: here)
    lines = differences_of_machines(this_machine() | {"tvm-ffi": built})
    assert lines == (() if fits else (f"it was built with tvm-ffi {built}, and this is tvm-ffi {here}",))


@pytest.mark.parametrize("name", ["system", "machine"])
def test_another_kind_of_machine_is_reported(name: str) -> None:
    here = this_machine()[name]
    assert differences_of_machines(this_machine() | {name: "other"}) == (f"it was built for other, and this is {here}",)


def test_versions_are_compared_by_their_numbers() -> None:
    assert numbers_of("2.9") < numbers_of("2.36") < numbers_of("10.0.post1")
    assert numbers_of("0.1.15.post2") == (0, 1, 15)
    assert numbers_of("unknown") == ()


def test_the_newest_symbol_of_the_c_library_says_which_is_needed() -> None:
    assert glibc_of(b"\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0GLIBCXX_3.4\0") == "2.17"
    assert glibc_of(b"none of them") is None
