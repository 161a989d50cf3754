"""kjit.engine.key.macros: the macros that expand to a word."""

from __future__ import annotations

import pytest

from kjit.engine.key.macros import Definitions, definitions_in, without_comments


@pytest.mark.parametrize(
    "text",
    [
        "#define A WORD",
        "  #  define\tA(x) (x + WORD)",
        "%:define A WORD",
        "#define A \\\n  1 + \\\r\n  WORD",
        "#define B WORD\n#define A B",
        "#define A B\n#define B WORD",
        "#if X\n#define A 1\n#else\n#define A WORD\n#endif",
        "#define A(x) defined(x) && WORD",
    ],
)
def test_a_macro_that_leads_to_a_word_is_found(text: str) -> None:
    assert b"A" in Definitions([b"int before;\n", text.encode()]).leading_to([b"WORD"])


@pytest.mark.parametrize("text", ["#define A WORDS", "#define A B\nWORD", "#define WORD A", "#undef A WORD"])
def test_one_that_does_not_is_not(text: str) -> None:
    assert Definitions([text.encode()]).leading_to([b"WORD"]) == {b"WORD"}


def test_macros_that_lead_to_each_other_come_to_an_end() -> None:
    assert Definitions([b"#define A B WORD\n#define B A\n"]).leading_to([b"WORD"]) == {b"A", b"B", b"WORD"}


def test_the_macros_of_flags_are_written_as_in_a_file() -> None:
    assert definitions_in(["-DA=1", "-D", "B", "-O3", "-DC(x)=x"]) == b"#define A 1\n#define B\n#define C(x) x\n"
    assert definitions_in(["--define-macro=A=1", "-Xcompiler=-DB"], "nvcc") == b"#define A 1\n#define B\n"


def test_comments_are_spaces_and_texts_stay() -> None:
    assert without_comments(b'a/* "x" */b // c\n"/* d */" \'"\' R"(//)" e\\\nf') == b'a b  \n"/* d */" \'"\' R"(//)" ef'
