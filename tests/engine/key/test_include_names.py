"""kjit.engine.key.include_names: names in sources that may refer to a file which does not exist yet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kjit.engine.key.include_names import Names, definitions_in, directives_in, names_in

# Each legal way to ask for `late.h`, and whether the text contains the name.
FORMS = {
    "plain": ('#if __has_include("late.h")', True),
    "angled": ("#if __has_include(<late.h>)", True),
    "next": ("#if defined(__has_include_next) && __has_include_next(<late.h>)", True),
    "on the next line": ('#if __has_include \\\n  ("late.h")', True),
    "with a comment inside": ('#if __has_include/* one */(/* two */"late.h")', True),
    "after a comment of two lines": ('#if /*/\n  */ __has_include("late.h")', True),
    "with a digraph": ('%:if __has_include("late.h")', True),
    "by an alias": ('#define ASK __has_include\n#if ASK("late.h")', True),
    "by a macro with a parameter": ('#define ASK(x) __has_include(x)\n#if ASK("late.h")', True),
    "by two macros": ("#define ASK(x) __has_include(x)\n#define ASK2(x) ASK(x)\n#if ASK2(<late.h>)", True),
    "in a macro": ('#define IS_LATE __has_include("late.h")\n#if IS_LATE', None),
    "a name from a macro": ('#define NAME "late.h"\n#if __has_include(NAME)', False),
    "an angled name from a macro": ("#define NAME <late.h>\n#if __has_include(NAME)", False),
    "stringised": ("#define TEXT(x) #x\n#define TEXT2(x) TEXT(x)\n#if __has_include(TEXT2(late.h))", False),
    "angled by a macro": ("#define IN(x) <x.h>\n#if __has_include(IN(late))", False),
    "stringised by an alias": ("#define ASK(x) __has_include(#x)\n#if ASK(late.h)", False),
    "angled by an alias": ("#define ASK(x) __has_include(<x.h>)\n#if ASK(late)", False),
    "part of a name from a macro": ("#define ASK(x) __has_include(x)\n#define A late\n#if ASK(<A.h>)", False),
    "pasted where it is asked": ('#define PASTE(a, b) a##b\n  # if PASTE(__has_, include)("late.h")', False),
    "pasted": ('#define PASTE(a, b) a##b\n#define ASK PASTE(__has_, include)\n#if ASK("late.h")', False),
}


def names(text: str, *flags: str) -> Names:
    return names_in({"/project/a.h": directives_in(text.encode())}, definitions_in(flags))


@pytest.mark.parametrize("form", FORMS)
def test_a_name_is_found_or_known_not_to_be(form: str) -> None:
    text, is_known = FORMS[form]
    found = names(text)
    if is_known is not None:
        assert found.is_known == is_known
    assert "late.h" in found.asked or not found.is_known


@pytest.mark.parametrize("form", FORMS)
def test_the_preprocessor_takes_each_of_these_forms(form: str, tmp_path: Path) -> None:
    text, _ = FORMS[form]
    (tmp_path / "unit.cpp").write_text(f"{text}\nFOUND\n#endif\n")
    command = ["g++", "-std=c++20", "-E", "-P", "-I", tmp_path / "one", "-I", tmp_path, tmp_path / "unit.cpp"]
    for is_there in (False, True):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ("FOUND" in done.stdout) == is_there
        (tmp_path / "one").mkdir(exist_ok=True)
        for folder in ("one", "."):
            (tmp_path / folder / "late.h").touch()


@pytest.mark.parametrize("flag", ["-DASK=__has_include", "-DASK(x)=__has_include(x)"])
def test_a_macro_of_a_flag_counts(flag: str) -> None:
    found = names('#if ASK("late.h")', flag)
    assert (found.asked, found.is_known) == (("late.h",), True)


def test_a_macro_of_another_header_is_recognised_by_its_name() -> None:
    assert names("#if THEIR_HAS_INCLUDE(<late.h>)").asked == ("late.h",)
    assert not names("#if THEIR_HAS_INCLUDE(NAME)").is_known


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef __has_include\n#endif",
        "#if defined(__has_include) && defined __has_include_next",
        "// __has_include(NAME)\n/* __has_include(NAME) */",
        "#define ASK(x) __has_include(x)",
        "#include <vector>",
        "#define PASTE(a, b) a##b\nint hash(int __h) { return PASTE(__, h); }",
    ],
)
def test_what_asks_for_nothing_is_known(text: str) -> None:
    assert (names(text).asked, names(text).is_known) == ((), True)


def test_a_comment_in_a_text_is_none() -> None:
    assert names('const char* url = "http://x";\n#if __has_include("late.h")').asked == ("late.h",)
    assert names('auto raw = R"(/*)";\n#if __has_include("late.h")').asked == ("late.h",)


def test_names_with_parent_folders_have_the_folder_that_they_start_from() -> None:
    found = names('#include "../inc/a.h"\n#if __has_include(<x/../../late.h>)\n#include "plain.h"')
    assert found.climbing == (("/project", "../inc/a.h"), ("/project", "x/../../late.h"))
    assert ("/project", "plain.h") in found.named
