"""kjit.engine.compile.rewrite.shared_memory: dynamic shared memory gets its address."""

from __future__ import annotations

import pytest
from units import rewritten


@pytest.mark.parametrize("shared", ["__shared__", "static thread_local"])
@pytest.mark.parametrize(
    ("declaration", "type_", "rest"),
    [
        ("extern SHARED float s[];", "float", ""),
        ("extern SHARED __attribute__((aligned(16))) unsigned char s[];", "unsigned char", ""),
        ("alignas(16) extern SHARED T s[][32];", "T", "[32]"),
    ],
)
def test_dynamic_shared_memory_in_a_function_is_a_reference(
    shared: str, declaration: str, type_: str, rest: str
) -> None:
    text = rewritten(f"void k() {{ {declaration.replace('SHARED', shared)} }}")
    once = f"extern {type_} kjit_dynamic_s[]{rest} __attribute__((unused));"
    reference = f"{type_} (&s)[]{rest} = *reinterpret_cast<{type_} (*)[]{rest}>(::kjit_sim::dynamic_shared());"
    alignment = "alignas(16)" if declaration.startswith("alignas") else ""
    assert "".join(text.split()) == "".join(f"void k() {{ {alignment} {once} {reference} }}".split())


def test_dynamic_shared_memory_outside_functions_is_replaced_where_it_is_used() -> None:
    text = "namespace { extern __shared__ float s[]; void k() { s[1] = x.s + p->s + a::s; } } void f() { s(); }"
    value = "(*reinterpret_cast<float (*)[]>(::kjit_sim::dynamic_shared()))"
    expected = f"namespace {{ ; void k() {{ {value}[1] = x.s + p->s + a::s; }} }} void f() {{ s(); }}"
    assert "".join(rewritten(text).split()) == "".join(expected.split())


def test_dynamic_shared_memory_in_a_lambda_is_replaced_where_it_is_used() -> None:
    text = (
        "void k() { extern __shared__ float s[]; auto f = [=] (int i) { return t[s[i]] + x.s; }; s[0] = f(1);"
        " for_each([] { s[1] = 2; }); [[maybe_unused]] int v = s[2]; } void g() { s(); }"
    )
    value = "(*reinterpret_cast<float (*)[]>(::kjit_sim::dynamic_shared()))"
    _, _, body = rewritten(text).partition("dynamic_shared())")
    assert body.lstrip(" ;") == (
        f"auto f = [=] (int i) {{ return t[{value}[i]] + x.s; }}; s[0] = f(1);"
        f" for_each([] {{ {value}[1] = 2; }}); [[maybe_unused]] int v = s[2]; }} void g() {{ s(); }}"
    )


def test_an_alignment_goes_ahead_of_shared() -> None:
    text = rewritten("static thread_local alignas(16) int s[4];\nstatic thread_local int t;")
    assert text.splitlines()[0].split() == ["alignas(16)", "static", "thread_local", "int", "s[4];"]
    assert text.splitlines()[1] == "static thread_local int t;"


@pytest.mark.parametrize("text", ["extern int s[];", "extern thread_local int s;", 'extern "C" { void f(); }'])
def test_other_declarations_stay(text: str) -> None:
    assert rewritten(text) == text
