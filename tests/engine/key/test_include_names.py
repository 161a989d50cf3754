"""kjit.engine.key.include_names: names in sources that may refer to a file which does not exist yet."""

from __future__ import annotations

import pytest

from kjit.engine.key.include_names import Names, definitions_in, names_in


def names(text: str, *flags: str) -> Names:
    return names_in({"/project/a.h": text.encode()}, definitions_in(flags))


@pytest.mark.parametrize(
    "text",
    [
        '#if __has_include("late.h")',
        "#if __has_include(<late.h>)",
        "#if defined(__has_include_next) && __has_include_next( <late.h> )",
        '#if __has_include \\\n  ("late.h")',
        '#if __has_include/* one */(/* two */"late.h")',
        '#if /*/\n  */ __has_include("late.h")',
        '%:if __has_include("late.h")',
        "#if THEIR_HAS_INCLUDE(<late.h>)",
        '#define ASK __has_include\n#if ASK("late.h")',
        '#define ASK(x) __has_include(x)\n#if ASK("late.h")',
        '#define IS_LATE __has_include("late.h")\n#if IS_LATE',
        '#define NAME "late.h"\n#if __has_include(NAME)',
        "#define NAME \\\r\n <late.h>\n#if THEIR_HAS_INCLUDE(NAME)",
        '// __has_include("late.h")',
    ],
)
def test_a_name_that_is_tested_for_is_found(text: str) -> None:
    assert "late.h" in names(text).tested


@pytest.mark.parametrize("flag", ['-DNAME="late.h"', "-DNAME=<late.h>"])
def test_a_name_of_a_flag_counts(flag: str) -> None:
    assert names("#if __has_include(NAME)", flag).tested == ("late.h",)


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef __has_include\n#endif",
        "#if defined(__has_include) && defined __has_include_next",
        "#include <vector>\n#define THEIR_HAS_INCLUDE(x) __has_include(x)\n#if THEIR_HAS_INCLUDE(<late.h>)",
        '#include <vector>\n#if __has_include("late.h")',
    ],
)
def test_what_is_only_included_is_not_tested_for(text: str) -> None:
    assert {*names(text).tested} <= {"late.h"}


def test_names_with_parent_folders_have_the_folder_that_they_start_from() -> None:
    found = names('#include "../inc/a.h"\n#if __has_include(<x/../../late.h>)\n#include "plain.h"')
    assert found.climbing == (("/project", "../inc/a.h"), ("/project", "x/../../late.h"))
    assert ("/project", "plain.h") in found.named
