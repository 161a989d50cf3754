"""kjit.engine.compile.rewrite.launches: kernel<<<...>>>(...) becomes a call."""

from __future__ import annotations

import pytest
from units import rewritten


@pytest.mark.parametrize(
    ("launch", "becomes"),
    [
        ("k<<<1, 32>>>(x);", "k ->*::kjit_sim::grid(1, 32)(x);"),
        ("ns::k<T, 4> <<< g, b, n * 4, s >>> ();", "ns::k<T, 4>  ->*::kjit_sim::grid( g, b, n * 4, s ) ();"),
        ("k<<<f<g<int>>(1), (a >> 2)>>>(x);", "k ->*::kjit_sim::grid(f<g<int>>(1), (a >> 2))(x);"),
        ("table[i]<<<1,\n1>>>(x);", "table[i] ->*::kjit_sim::grid(1,\n1)(x);"),
        ("(*k)<<<dim3{1, 2}, 1>>>(x);", "(*k) ->*::kjit_sim::grid(dim3{1, 2}, 1)(x);"),
    ],
)
def test_a_launch_becomes_a_call(launch: str, becomes: str) -> None:
    assert rewritten(launch) == becomes


@pytest.mark.parametrize(
    "text",
    [
        'auto s = "k<<<1, 1>>>(x)";',
        'auto s = R"(k<<<1, 1>>>(x))";',
        "x = a << b; y = a < b; z = f<g<h<int>>>(1);",
        "x << operator<<<T>(y);",
        "char c = '\"'; int n = 1'000;",
    ],
)
def test_what_is_no_launch_stays(text: str) -> None:
    assert rewritten(text) == text


def test_a_kernel_template_deduces_its_arguments() -> None:
    text = "template <typename T, int kN = f<2>()> __global__ void k(T* x);\nvoid f() { ns::k<<<1, 2>>>(x); }"
    call = "::kjit_sim::deduced([&](auto&... kjit_args) { ns::k(kjit_args...); })"
    assert rewritten(text).splitlines()[1] == f"void f() {{ {call} ->*::kjit_sim::grid(1, 2)(x); }}"
