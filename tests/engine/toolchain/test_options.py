"""kjit.engine.toolchain.options: the table of options, and flags taken apart by it."""

from __future__ import annotations

import pytest

from kjit.engine.toolchain.options import OPTIONS, Dialect, Flag, options_for_clangd_to_remove, parse


@pytest.mark.parametrize(
    ("dialect", "words", "flags"),
    [
        ("c++", ["-isystem", "/in", "-O3"], [Flag("-isystem", "/in", None), Flag("", "-O3")]),
        ("c++", ["-L/lib", "-lm"], [Flag("-L", "/lib"), Flag("-l", "m")]),
        ("c++", ["-l", "m"], [Flag("-l", "m", None)]),
        ("c++", ["-include/a.h", "-include", "/a.h"], [Flag("-include", "/a.h"), Flag("-include", "/a.h", None)]),
        ("c++", ["-D", "-I/in"], [Flag("-D", "-I/in", None)]),
        ("c++", ["-Wl,-rpath,/lib"], [Flag("", "-Wl,-rpath,/lib")]),
        ("c++", ["--include-pathological", "-I-"], [Flag("", "--include-pathological"), Flag("", "-I-")]),
        ("c++", ["-Bsymbolic", "-Tdata=1"], [Flag("", "-Bsymbolic"), Flag("", "-Tdata=1")]),
        ("c++", ["-O3", "-I"], [Flag("", "-O3"), Flag("", "-I")]),  # its value is missing: the compiler will say so
        ("nvcc", ["-Xcompiler=-I/in,-DX"], [Flag("-Xcompiler", "-I/in,-DX", "=")]),
        ("nvcc", ["-Xcompiler", "-I/in"], [Flag("-Xcompiler", "-I/in", None)]),
        ("nvcc", ["-lineinfo", "-lcuda"], [Flag("", "-lineinfo"), Flag("-l", "cuda")]),
        ("nvcc", ["-Xcompilers"], [Flag("", "-Xcompilers")]),
    ],
)
def test_an_option_is_distinguished_from_its_value(dialect: Dialect, words: list[str], flags: list[Flag]) -> None:
    assert list(parse(words, dialect)) == flags
    assert [word for flag in flags for word in flag.words()] == words


def test_every_name_is_in_one_row_of_the_table() -> None:
    for options in OPTIONS.values():
        names = [name for option in set(options.values()) for name in option.names.split()]
        assert len(names) == len(set(names)) == len(options)


def test_the_long_name_of_each_option_for_nvrtc_is_known() -> None:
    for name, option in OPTIONS["nvcc"].items():
        if option.nvrtc == "same":
            assert option.long(name).startswith("--")


def test_clangd_removes_what_only_nvcc_has_in_each_spelling() -> None:
    removed = options_for_clangd_to_remove()
    assert {"-lineinfo", "-Xcompiler", "-Xcompiler=*", "-gencode=*", "--generate-code=*"} <= set(removed)
    assert not {"-I", "-D", "-std=*", "-include", "-O", "-c"} & set(removed)
