"""kjit.scaffold.layout: lines that are too long break where the formatters would break them, and mean what they did."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from matrix import ops_with_long_names

from kjit.scaffold.layout import CPP_WIDTH, break_cpp, break_python
from kjit.scaffold.new import parse_devices, scaffold_op
from kjit.scaffold.patterns import PATTERNS


def lines(*text: str) -> str:
    return "".join(f"{line}\n" for line in text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("call(a, b)", ["call(a, b)"]),
        ("    value = call(first, second)", ["    value = call(", "        first, second", "    )"]),
        ("call(the_first, second, third)", ["call(", "    the_first,", "    second,", "    third,", ")"]),
        ("shapes = ((1, 2, 3), (4, 5, 6))", ["shapes = (", "    (1, 2, 3),", "    (4, 5, 6),", ")"]),
        ("only = (call(first, second, 3),)", ["only = (", "    call(", "        first, second, 3", "    ),", ")"]),
        ("def f(of_one: int) -> tuple[int, ...]:", ["def f(", "    of_one: int,", ") -> tuple[int, ...]:"]),
        ("return the_first_one, another_one", ["return (", "    the_first_one,", "    another_one,", ")"]),
        ("return the_first_one + other", ["return (", "    the_first_one + other", ")"]),
        ("return the_first_one + another * 3", ["return (", "    the_first_one", "    + another * 3", ")"]),
        ("return table[(the_index + another)]", ["return table[", "    (the_index + another)", "]"]),
        ("from module import first, second", ["from module import (", "    first,", "    second,", ")"]),
        ('raise TypeError("a, (b", and_more)', ["raise TypeError(", '    "a, (b", and_more', ")"]),
        ("# a comment that is too long, (really)", ["# a comment that is too long, (really)"]),
        ("a_name_that_nothing_can_break = 1", ["a_name_that_nothing_can_break = 1"]),
    ],
)
def test_a_line_of_python_breaks_as_ruff_would(line: str, expected: list[str]) -> None:
    assert break_python(f"{line}\n", width=26) == lines(*expected)


def test_a_docstring_stays_as_it_is() -> None:
    text = lines(
        '"""A summary, (with brackets).', "", "More text, (with brackets), more.", '"""', "call(first, second, third)"
    )
    assert break_python(text, width=20) == text.replace(
        "call(first, second, third)", "call(\n    first,\n    second,\n    third,\n)"
    )


LONG, LONGER = "a" * 50, "b" * 60


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"  run({LONG}, {LONGER}, c, d);", [f"  run({LONG}, {LONGER},", "      c, d);"]),
        (f"void run({LONG}<T, U> {LONG}, int c) {{", [f"void run({LONG}<T, U> {LONG},", "         int c) {"]),
        (f"  {LONGER} = {LONG} < c + dddd;", [f"  {LONGER} =", f"      {LONG} < c + dddd;"]),
        (f'  Size {LONG}{{"a, b"}}, {LONGER}{{"b"}};', [f'  Size {LONG}{{"a, b"}},', f'      {LONGER}{{"b"}};']),
        (f"  run<int>({LONGER}(), {LONGER});", [f"  run<int>({LONGER}(),", f"           {LONGER});"]),
        (f"  {LONGER}<int>({LONGER}(), c);", [f"  {LONGER}<int>(", f"      {LONGER}(), c);"]),
        (f"  // {LONG}, {LONGER}, (c, d)", [f"  // {LONG}, {LONGER}, (c, d)"]),
    ],
)
def test_a_line_of_cpp_breaks_as_clang_format_would(line: str, expected: list[str]) -> None:
    assert break_cpp(f"{line}\n") == lines(*expected)


def meaning(text: str, suffix: str) -> str:
    """A file without what depends on the width of its lines."""
    if suffix != ".py":
        return re.sub(r"\s+", "", text)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_names_of_any_length_change_no_meaning_and_no_line_is_too_long(tmp_path: Path, pattern: str) -> None:
    for op in ops_with_long_names(pattern, range(12)):
        texts: dict[int, dict[Path, str]] = {}
        for width in (88, 100, 10_000):
            (tmp_path / "pyproject.toml").write_text(f"[tool.ruff]\nline-length = {width}\n\n[tool.kjit]\n")
            devices = parse_devices(op.devices)
            files = scaffold_op(op.name, op.signature, pattern=pattern, devices=devices, start=tmp_path).files.files
            texts[width] = {file.path: file.text for file in files}
            for path, text in texts[width].items():
                allowed = width if path.suffix == ".py" else CPP_WIDTH
                assert [line for line in text.splitlines() if len(line) > allowed] == []
                assert meaning(text, path.suffix) == meaning(texts[88][path], path.suffix)
