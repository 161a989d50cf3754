"""docs/versions.md agrees with pyproject.toml and the source: declared versions, private names of other projects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def chains_in(node: ast.AST) -> Iterator[str]:
    """The chains of attributes in a module, each as a whole, and what strings have of them, but for docstrings."""
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if is_docstring:
            continue
        if isinstance(child, ast.Attribute):
            root: ast.expr = child
            names = []
            while isinstance(root, ast.Attribute):
                names.append(root.attr)
                root = root.value
            yield ".".join([root.id if isinstance(root, ast.Name) else "?", *reversed(names)])
            yield from chains_in(root)
            continue
        if isinstance(child, ast.ImportFrom) and child.module != "__future__":
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield from re.findall(r"[\w.]*\._(?!_)\w[\w.]*", child.value)
        by_name = [child.slice] if isinstance(child, ast.Subscript) else []
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id.endswith("attr"):
            by_name = child.args[1:2]
        yield from (f"?.{each.value}" for each in by_name if isinstance(each, ast.Constant))
        yield from chains_in(child)


def own_names() -> set[str]:
    """Every name with an underscore that kjit itself defines."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= {path.stem} if path.stem.startswith("_") else set()
        text = path.read_text("utf-8")
        found |= set(re.findall(r"\b(?:def|class) (_\w+)", text))
        found |= set(re.findall(r"^\s*(?:self\.)?(_\w+)(?:, \w+)*\s*[:=]", text, re.MULTILINE))
        found |= set(re.findall(r"^\s*self\.\w+, self\.(_\w+)\s*=", text, re.MULTILINE))
    return found


@lru_cache(maxsize=1)
def used_in_python() -> dict[str, set[str]]:
    """The private names of other projects that the Python source uses, and the files."""
    own = own_names()
    used: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for chain in chains_in(ast.parse(path.read_text("utf-8"))):
            root, *names = chain.split(".")
            private = [name for name in names if re.match(r"_(?!_)", name)]
            is_foreign = root in ("torch", "sys", "os", "typer", "click", "rich", "triton", "tvm_ffi")
            if private and (is_foreign or not own.issuperset(private)) and not PROMISED.issuperset(private):
                used.setdefault(chain, set()).add(path.relative_to(ROOT).as_posix())
    return {chain: where for chain, where in used.items() if "._kjit_" not in chain}


def test_what_the_source_uses_without_a_promise_is_found() -> None:
    python = used_in_python()
    assert {"torch._C._is_tracing", "sys._getframe", "gradient.library._destroy"} <= set(python)
    assert {"_kjit_forward_mode._current_level", "?._torchdynamo_inline"} <= set(python)


def test_what_the_source_uses_without_a_promise_is_on_the_page() -> None:
    names = listed()
    for chain, where in used_in_python().items():
        # What begins with the name of a variable is on the page under that of its class or module.
        is_whole = chain.startswith("torch.") or "." not in chain or "/" in chain
        end = chain if is_whole else f".{chain.rpartition('.')[2]}"
        is_listed = any(f"{name}.".startswith(f"{end}.") if is_whole else f".{name}".endswith(end) for name in names)
        assert is_listed, f"{chain}, which {', '.join(where)} uses, is not on the page"


def test_what_is_on_the_page_is_used_by_the_source() -> None:
    text = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp"))
    for name in listed():
        is_file = name.endswith((".h", ".so"))
        own = name.rpartition("/")[2] if is_file else re.split(r"[./]", name)[-1]
        assert re.search(rf"\b{re.escape(own)}\b", text), name


def test_names_of_pytorch_that_ops_cannot_do_without_are_asked_for_and_on_the_page() -> None:
    assert set(torch_op.UNPROMISED) <= listed()
    in_ops = {
        chain
        for chain, where in used_in_python().items()
        if chain.startswith("torch.") and where & {"kjit/runtime/op_call.py", "kjit/runtime/torch_op.py"}
    }
    assert in_ops - {"torch._ops.OpOverload"} <= set(torch_op.UNPROMISED)


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"\b(test_\w+?)(?:\.py)?\b", PAGE))
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")} | {"test_range"}
    assert {name for name in named if name not in files and f"def {name}(" not in text} == set()
