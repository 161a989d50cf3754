"""The dependency rules hold, and the architecture page shows the code as it is."""

from __future__ import annotations

import itertools
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


def test_imports_are_read_with_when_they_happen(tmp_path: Path) -> None:
    package = tmp_path / "kjit"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "b.py").touch()
    (package / "c.py").touch()
    (package / "a.py").write_text(
        "import kjit.b\n"
        "TYPE_CHECKING = False\n"
        "if TYPE_CHECKING:\n    import kjit.unread\n    from kjit import c\n"
        "def f():\n    from kjit.c import name\n"
    )
    imports = architecture.imports_of(architecture.modules_in(package))
    assert imports == [Import("kjit.a", "kjit.b", False), Import("kjit.a", "kjit.c", True)]


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


def test_a_circle_is_found_where_it_closes_when_modules_are_loaded() -> None:
    a, b, c = (Import(f"kjit.{one}", f"kjit.{two}", False) for one, two in ("ab", "bc", "ca"))
    around = architecture.circle([a, b, c])
    assert around[0] == around[-1]
    assert set(itertools.pairwise(around)) == {each[:2] for each in (a, b, c)}
    assert architecture.circle([a, b, c._replace(on_demand=True)]) == []
