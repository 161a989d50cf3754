"""Docstrings: noun phrases or commands (docs/contributing.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# "Why a flag is rejected" stays possible: "the reason why" says no more.
CLAUSES = ("What ", "Where ", "How ", "Which ", "Who ")


def strings_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, its classes, functions and variables, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


@pytest.mark.parametrize(
    "folder", ["kjit", "tools", "benchmarks", "examples", pytest.param("tests", marks=pytest.mark.nightly)]
)
def test_a_docstring_does_not_begin_with_a_clause(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in strings_in(ast.parse(path.read_text("utf-8")))
        if text.startswith(CLAUSES)
    ]
    assert "\n".join(found) == ""
