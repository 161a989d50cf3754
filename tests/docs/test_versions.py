"""docs/versions.md agrees with pyproject.toml and the source: declared versions, private names of other projects."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from kjit.project import load_toml
from kjit.runtime import torch_op

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kjit"
PAGE = (ROOT / "docs" / "versions.md").read_text("utf-8")
PROJECT = load_toml(ROOT / "pyproject.toml")["project"]

# Documented, though the names do not look so.
PROMISED = {"_asdict", "_exit", "_fields", "_make", "_replace"}


def declared_pythons() -> list[str]:
    matches = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in PROJECT["classifiers"])
    return [match[1] for match in matches if match]


def test_the_lowest_python_of_the_classifiers_is_the_one_that_is_required() -> None:
    lowest = min(declared_pythons(), key=lambda python: int(python.partition(".")[2]))
    assert SpecifierSet(PROJECT["requires-python"]) == SpecifierSet(f">={lowest}")


@pytest.mark.parametrize("which", ["lowest", "latest"])
def test_the_table_of_runs_has_every_python_that_is_declared(which: str) -> None:
    rows = re.findall(rf"^\| (3\.\d+) +\| {which} +\|", PAGE, re.MULTILINE)
    assert rows == declared_pythons()


def test_the_table_of_versions_has_every_dependency_as_it_is_declared() -> None:
    rows = dict(re.findall(r"^\| ([a-z][\w-]*) +\| (\S*) +\|", PAGE, re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    for each in map(Requirement, [*PROJECT["dependencies"], *extras["bench"]]):
        assert each.name in rows
        assert SpecifierSet(rows[each.name]) == each.specifier, each.name


def test_the_newest_torch_that_an_error_names_was_run() -> None:
    runs = re.findall(r"^\| 3\.\d+ +\| latest +\| (\d+\.\d+)", PAGE, re.MULTILINE)
    assert set(runs) == {torch_op.NEWEST_TORCH}


# -- private names


@lru_cache(maxsize=1)
def listed() -> frozenset[str]:
    """The names in the first column of the tables of private names."""
    section = PAGE.partition("## Private names that kjit uses")[2]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return frozenset(name for cell in cells for name in re.findall(r"`([^`]+)`", cell))


@lru_cache(maxsize=1)
def used_in_python() -> dict[str, set[str]]:
    """The names with an underscore that the Python source uses and does not define itself, and the files."""
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    defined = r"\b(?:def|class) (_\w+)|^ *(?:self\.\w+, )?(?:self\.)?(_\w+)(?:, \w+)*\s*[:=]"
    own = {name for text in texts.values() for names in re.findall(defined, text, re.MULTILINE) for name in names}
    own |= {path.stem for path in texts} | PROMISED
    used: dict[str, set[str]] = {}
    for path, text in texts.items():
        for name in re.findall(r"""(?:\.|\["|attr\(\w+, ")(_(?!_)[a-zA-Z]\w*)""", text):
            if name not in own:
                used.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return used


def test_what_the_source_uses_without_a_promise_is_found() -> None:
    assert {"_is_tracing", "_getframe", "_destroy", "_current_level", "_torchdynamo_inline"} <= set(used_in_python())


def test_what_the_source_uses_without_a_promise_is_on_the_page() -> None:
    parts = {part for name in listed() for part in re.split(r"[./]", name)}
    assert {name: files for name, files in used_in_python().items() if name not in parts} == {}


def test_what_is_on_the_page_is_used_by_the_source() -> None:
    text = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp"))
    for name in listed():
        is_file = name.endswith((".h", ".so"))
        own = name.rpartition("/")[2] if is_file else re.split(r"[./]", name)[-1]
        assert re.search(rf"\b{re.escape(own)}\b", text), name


def test_names_of_pytorch_that_ops_cannot_do_without_are_asked_for_and_on_the_page() -> None:
    assert set(torch_op.UNPROMISED) <= listed()
    parts = {part for name in torch_op.UNPROMISED for part in name.split(".")}
    in_ops = {"kjit/runtime/op_call.py", "kjit/runtime/torch_op.py"}
    assert {name for name, files in used_in_python().items() if files & in_ops} <= parts


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"\b(test_\w+?)(?:\.py)?\b", PAGE))
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")} | {"test_range"}
    assert {name for name in named if name not in files and f"def {name}(" not in text} == set()
