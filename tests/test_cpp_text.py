"""kjit.cpp_text: tokens, and the pieces of a preprocessed unit."""

from __future__ import annotations

from kjit.cpp_text import closing, opening, own_code, pieces, place, tokens

UNIT = """# 1 "a.cu"
int a;
# 7 "b\\\"c.h" 1 3
int b;
# 1 "own.h" 1
# 2 "a.cu" 2

# 3 "a.cu" 3
MACRO"""


def test_a_unit_is_cut_at_line_markers() -> None:
    found = [(each.file, each.line, each.is_own, each.is_system, UNIT[each.begin : each.end]) for each in pieces(UNIT)]
    assert found == [
        ("", 1, False, False, ""),
        ("a.cu", 1, True, False, "int a;\n"),
        ('b"c.h', 7, False, True, "int b;\n"),
        ("own.h", 1, True, False, ""),
        ("a.cu", 2, True, False, "\n"),
        ("a.cu", 3, True, True, "MACRO"),
    ]
    assert "".join(UNIT[each.marker : each.end] for each in pieces(UNIT)) == UNIT


def test_a_place_is_that_of_the_line_marker_before_it() -> None:
    unit = '# 1 "a.cu"\nint a;\n# 7 "b.h" 1\nint b;\n\nint c;\n'
    assert [place(unit, unit.index(f"int {name}")) for name in "abc"] == [("a.cu", 1), ("b.h", 7), ("b.h", 9)]


def test_literals_directives_and_numbers_are_one_token_each() -> None:
    text = """f(1'000, '(', R"x(")x", "\\"");\n#pragma ")"\nk<<<1>>>"""
    found = [each for each in tokens(text, 0, len(text)) if each.kind != "space"]
    assert "".join(each.text for each in found) == """f(1'000,'(',R"x(")x","\\"");k<<<1>>>"""
    assert [each.text for each in found][-4:] == ["k", "<<<", "1", ">>>"]
    assert (closing(found, 1), opening(found, 9)) == (9, 1)
    assert all(text[each.begin : each.end] == each.text for each in found)


def test_a_macro_in_a_header_or_ahead_of_own_code_ends_no_header() -> None:
    """Of what a macro becomes, line markers have other flags than the file around it."""
    unit = """# 0 "op.cu"
# 0 "<built-in>"
# 1 "/cuda/include/cuda_runtime.h" 1 3
int min(int, int);
# 0 "<command-line>" 2
# 1 "op.cu"
# 1 "/lib/header.h" 1 3
static_assert(
# 5 "/lib/header.h"
900
# 5 "/lib/header.h" 3
> 800);
# 2 "op.cu" 2

# 3 "op.cu" 3
static_assert(
# 3 "op.cu"
5 > 4);
"""
    assert unit[own_code(unit) :].startswith('# 3 "op.cu" 3\nstatic_assert(\n# 3')
    assert own_code("int x;\n") == 0
