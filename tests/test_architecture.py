"""The dependency rules hold, and the architecture page shows the code as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import architecture  # noqa: E402
from architecture import Import  # noqa: E402

PAGE = architecture.PAGE.read_text("utf-8")


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    """Those of all of kjit."""
    return architecture.imports_of(architecture.modules_in(ROOT / "kjit"))


def test_parts_import_what_is_below_them_alone(imports: list[Import]) -> None:
    assert architecture.violations(imports) == []


def test_no_modules_import_each_other_in_a_circle(imports: list[Import]) -> None:
    assert architecture.circle(imports) == []


def test_the_picture_is_that_of_the_code(imports: list[Import]) -> None:
    assert architecture.drawn(PAGE, architecture.picture(imports)) == PAGE, "python tools/architecture.py --fix"


def test_no_part_has_more_lines_than_its_budget() -> None:
    sizes = architecture.sizes()
    assert sizes.keys() == architecture.BUDGET.keys()
    assert [kind for kind, lines in sizes.items() if lines > architecture.BUDGET[kind] or lines == 0] == []


def test_every_python_file_that_the_page_lists_is_there() -> None:
    listed = set(re.findall(r"\b(\w+\.py)\b", PAGE[PAGE.index("\n## Modules") : PAGE.index("\n## Why kjit writes")]))
    assert listed - {path.name for path in (ROOT / "kjit").rglob("*.py")} == set()


def test_what_the_rules_forbid_is_named() -> None:
    up = Import("kjit.engine.pool", "kjit.cli.build", True)
    early = Import("kjit.runtime.load", "kjit.engine.pool", False)
    allowed = [
        Import("kjit.runtime.load", "kjit.engine.pool", True),
        Import("kjit.cli.build", "kjit.engine.pool", False),
    ]
    assert architecture.violations([up, early, *allowed]) == [
        "kjit.engine.pool (engine) imports kjit.cli.build (cli) on demand",
        "kjit.runtime.load (runtime) imports kjit.engine.pool (engine) when it is loaded",
    ]
