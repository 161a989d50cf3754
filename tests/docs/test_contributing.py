"""Parts that docs/contributing.md says are noticed if they are forgotten, and that no other test notices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kjit.engine.cache import contents
from kjit.scaffold.patterns import PATTERNS
from kjit.spec import KINDS

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def test_no_row_of_the_table_is_marked_as_unnoticed() -> None:
    assert "(*)" not in page("contributing.md")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_on_the_page(pattern: str) -> None:
    assert f"| `{pattern}` |" in page("adding-a-kernel.md")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_target_is_on_the_page_of_commands(kind: str) -> None:
    assert f"`{kind}`" in page("commands.md").partition("| `--target LIST` |")[2].partition("\n")[0]


def test_every_file_in_the_cache_is_on_the_page_of_the_cache() -> None:
    layout = re.findall(r"<cache>/v\d+/(\w+)", contents.__doc__ or "")
    assert layout and [name for name in layout if f"v2/{name}" not in page("cache.md")] == []
