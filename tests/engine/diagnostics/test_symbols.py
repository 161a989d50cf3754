"""kjit.engine.diagnostics.symbols: C++ names, readable."""

from __future__ import annotations

import pytest

from kjit.engine.diagnostics.symbols import demangle, short_names


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z2k2iPf", "k2"),
        ("_ZN4kjit5ScaleIfLi4EE3runEv", "kjit::Scale<float, 4>::run"),
        ("_ZN12_GLOBAL__N_16kernelEPf", "{anonymous}::kernel"),
        ("main", "main"),
        ("_Zgarbage", "_Zgarbage"),
    ],
)
def test_names_are_demangled_without_their_parameters(mangled: str, name: str) -> None:
    assert demangle(mangled) == name


class TestShortNames:
    def test_namespaces_are_left_out(self) -> None:
        assert short_names(["{anonymous}::fill<a::b, 4>", "kjit::copy"]) == ["fill<b, 4>", "copy"]
        kernel = "kjit::kernels::elementwise<{anonymous}::Scale<kjit::bf16_t>, 8, kjit::In<kjit::bf16_t> >"
        assert short_names([kernel]) == ["elementwise<Scale<bf16_t>, 8, In<bf16_t>>"]

    def test_what_would_be_the_same_keeps_them(self) -> None:
        assert short_names(["a::fill", "b::fill", "c::copy"]) == ["a::fill", "b::fill", "copy"]
        assert short_names(["k::f<a::T>", "k::f<b::T>"]) == ["f<a::T>", "f<b::T>"]
