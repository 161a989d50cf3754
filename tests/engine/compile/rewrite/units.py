"""Units for tests of the rewriter, as a preprocessor writes them."""

from __future__ import annotations

from kjit.engine.compile.rewrite.rewrite import rewrite


def unit(text: str) -> str:
    """As a preprocessor writes it: a system header, then an op's file that `text` is."""
    return f'# 1 "/sys/sim.h" 1 3\nsystem<<<1, 1>>>(x);\n# 1 "/op/a.cuh" 1\n{text}'


def rewritten(text: str) -> str:
    """The op's file after rewriting, which has to succeed and to keep all lines."""
    result, refusals = rewrite(unit(text))
    assert refusals == []
    assert result.startswith(unit(""))
    assert result.count("\n") == unit(text).count("\n")
    return result[len(unit("")) :]
