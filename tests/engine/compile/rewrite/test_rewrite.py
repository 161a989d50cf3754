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
    source.write_text(unit("wgmma_fence();"))
    assert main(str(source), str(tmp_path / "none")) == 1
    assert capsys.readouterr().err.startswith("/op/a.cuh:1: error: the simulator cannot run tensor core instructions")
    assert not (tmp_path / "none").exists()
