"""kjit.scaffold.render: lists fit their lines, and the formatters that are installed write the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kjit.scaffold.render import cpp_chains, cpp_line, formatted, python_line

NAMES = [f"a_name_of_letters_{letter}" for letter in "abcde"]


def test_a_list_stays_on_its_line_where_it_fits() -> None:
    assert python_line("def f(", ["a", "b"], ") -> None:") == "def f(a, b) -> None:"
    assert python_line("return ", ["a", "b"]) == "return a, b"
    assert cpp_line("  f(", ["a", "b"], ");") == "  f(a, b);"
    assert cpp_line("  f(", [], ");") == "  f();"


def test_a_long_list_of_python_has_an_item_a_line() -> None:
    items = "".join(f"        {name},\n" for name in NAMES)
    assert python_line("    f(", NAMES, ")") == f"    f(\n{items}    )"
    assert python_line("    return ", NAMES) == f"    return (\n{items}    )"
    assert python_line("    x = (", ["x" * 90], ",)") == f"    x = (\n        {'x' * 90},\n    )"


def test_a_long_list_of_cpp_fills_lines_below_its_first_item() -> None:
    assert cpp_line("  call_of(", [*NAMES, "other"], ");") == f"  call_of({', '.join(NAMES)},\n          other);"


def test_calls_of_methods_begin_again_where_they_do_not_fit() -> None:
    call = f".verify({'x' * 40})"
    assert cpp_chains("  Of(n)", [call, call, call]) == f"  Of(n){call}{call};\n  Of(n){call};"
    assert cpp_chains("  Of(n).at(2)", [call * 3]) == "\n      ".join(["  Of(n)", ".at(2)", call, call, f"{call};"])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("op.h", "int  f( ){return 1 ;}\n", "int f() {\n  return 1;\n}\n"), ("op.py", "x = f( 'a')\n", 'x = f("a")\n')],
)
def test_the_formatters_write_a_file(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert formatted(text, tmp_path / "not_there_yet" / name) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected", "settings", "content"),
    [
        (
            "op.h",
            "void f() {\n  g();\n  h();\n}\n",
            "void f() {\n    g();\n    h();\n}\n",
            ".clang-format",
            "BasedOnStyle: Google\nIndentWidth: 4\n",
        ),
        ("op.py", 'x = "a"\n', "x = 'a'\n", "ruff.toml", '[format]\nquote-style = "single"\n'),
    ],
)
def test_the_settings_are_the_projects(
    tmp_path: Path, name: str, text: str, expected: str, settings: str, content: str
) -> None:
    (tmp_path / settings).write_text(content)
    assert formatted(text, tmp_path / "csrc" / name) == expected


@pytest.mark.parametrize("name", ["op.h", "op.py"])
def test_without_a_formatter_a_text_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert formatted("x  =  1;\n", tmp_path / name) == "x  =  1;\n"
