"""kjit.engine.compile.rewrite.rewrite: the program, and the rewrites of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from units import rewritten, unit

from kjit.engine.compile.rewrite.rewrite import main


@pytest.mark.parametrize(
    ("loop", "becomes"),
    [
        ("while (*flag == (0));", "while(*flag==(0))::kjit_sim::looked();"),
        ("if (a) { b(); } while (*flag) { }", "if(a){b();}while(*flag){::kjit_sim::looked();}"),
        ("do { f(); } while (*flag);", "do{f();}while(*flag);"),
        ("do f(); while (*flag);", "dof();while(*flag);"),
        ("while (i < n) f();", "while(i<n)f();"),
    ],
)
def test_a_loop_that_only_waits_lets_others_run(loop: str, becomes: str) -> None:
    assert "".join(rewritten(f"void k() {{ {loop} }}").split()) == f"voidk(){{{becomes}}}"


def test_as_a_program_it_writes_the_file_or_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.ii", tmp_path / "a.sim.ii"
    source.write_text(unit("k<<<1, 1>>>(x);"))
    assert main(str(source), str(target)) == 0
    assert target.read_text() == unit("k ->*::kjit_sim::grid(1, 1)(x);")
    source.write_text(unit('asm("bar.arrive 0, 64;");'))
    assert main(str(source), str(tmp_path / "none")) == 1
    assert capsys.readouterr().err.startswith("/op/a.cuh:1: error: the simulator cannot run inline PTX")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (
            "namespace a { template <class T> struct K : B<T> { int x; using p = p<T>; p y; }; }",
            (
                "namespace a { template <typename kjit_0> using kjit_outer0_p = p<kjit_0>; "
                "template <class T> struct K : B<T> { int x; using p = kjit_outer0_p<T>; p y; }; }"
            ),
        ),
        (
            "struct K { struct L { using v = typename v<f<int, 2>, 4>; }; };",
            (
                "template <typename kjit_0, auto kjit_1> using kjit_outer0_v = v<kjit_0, kjit_1>; "
                "struct K { struct L { using v = typename kjit_outer0_v<f<int, 2>, 4>; }; };"
            ),
        ),
    ],
)
def test_a_name_may_mean_something_else_in_a_class(text: str, becomes: str) -> None:
    assert "".join(rewritten(text).split()) == "".join(becomes.split())


@pytest.mark.parametrize(
    "text",
    [
        "using p = p<int>;",
        "struct K { using p = a::p<int>; using q = p<int>; using r = r<int>::t; };",
        "struct S f() { using p = p<int>; }",
        "void f() { struct K { using p = p<int>; }; }",
    ],
)
def test_other_names_stay(text: str) -> None:
    assert rewritten(text) == text
