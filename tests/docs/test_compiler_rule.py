"""The section of docs/environment.md on the choice of a compiler, compared with the rule in the code."""

from __future__ import annotations

import re
from pathlib import Path

from kjit.engine.compile import kind

PAGE = (Path(__file__).parents[2] / "docs" / "environment.md").read_text("utf-8")
SECTION = PAGE.partition("\n## Which compiler gets a CUDA source\n")[2].partition("\n## ")[0]


def test_the_page_lists_the_headers_of_the_rule() -> None:
    items = SECTION.partition("\n- of C: ")[2].partition("\n\n")[0]
    listed = [word for span in re.findall(r"`([^`]+)`", items) for word in span.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) == kind.HEADERS


def test_what_the_page_says_is_refused_is_refused() -> None:
    extensions = SECTION.partition("\n- extensions of GCC: ")[2].partition(", attributes in brackets")[0]
    named = re.findall(r"`(\w+)`", extensions)
    assert len(named) > 10
    uses = [f"int i = {name}(0);" for name in named]
    uses += ["[[gnu::hot]] void f();", "int i = ({ int j = 1; j; });", "int i = j ?: 1;", "case 1 ... 5: break;"]
    uses += ["cudaMemcpyToSymbol(a, b, 1);"]
    assert [use for use in uses if not kind.lacking(f'# 1 "a.cu"\n{use}\n')] == []
