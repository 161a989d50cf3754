"""kjit.build.flags: names and values of compilers' flags, in each way to write them."""

from __future__ import annotations

import pytest

from kjit.build.flags import Flag, for_host_compiler, include_folders, map_folders, parse

JOINED = ["-I/in", "-isystem/in", "-iquote/in", "-idirafter/in", "-L/in", "-I=/in", "--include-path=/in"]


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["-I/in"], [Flag("-I", "/in")]),
        (["-I", "/in"], [Flag("-I", "/in", None)]),
        (["-I=/in"], [Flag("-I", "/in", "=")]),
        (["-isystem", "/in", "-O3"], [Flag("-isystem", "/in", None), Flag("", "-O3")]),
        (["-isystem/in"], [Flag("-isystem", "/in")]),
        (["-L/lib", "-lm"], [Flag("-L", "/lib"), Flag("-l", "m")]),
        (["-l", "m"], [Flag("-l", "m", None)]),
        (["-Xcompiler=-I/in,-DX"], [Flag("-Xcompiler", "-I/in,-DX", "=")]),
        (["-Xcompiler", "-I/in"], [Flag("-Xcompiler", "-I/in", None)]),
        (
            ["-Wl,-rpath,/lib", "-include", "/a.h"],
            [Flag("", "-Wl,-rpath,/lib"), Flag("", "-include"), Flag("", "/a.h")],
        ),
        (["--include-pathological", "-Xcompilers"], [Flag("", "--include-pathological"), Flag("", "-Xcompilers")]),
        (["-O3", "-I"], [Flag("", "-O3"), Flag("", "-I")]),  # its value is missing: the compiler will say so
    ],
)
def test_a_flag_is_told_from_its_value_and_written_as_it_was(words: list[str], flags: list[Flag]) -> None:
    assert list(parse(words)) == flags
    assert [word for flag in flags for word in flag.words()] == words


@pytest.mark.parametrize("words", [*([word] for word in JOINED), ["-I", "/in"], ["-L", "/in"], ["-isystem", "/in"]])
def test_a_folder_that_is_searched_gets_another_name_or_goes_with_its_flag(words: list[str]) -> None:
    assert map_folders([*words, "-O3"], lambda folder: f"{{here}}{folder}") == [
        *(word.replace("/in", "{here}/in") for word in words),
        "-O3",
    ]
    assert map_folders([*words, "-O3"], lambda _: None) == ["-O3"]


@pytest.mark.parametrize(
    "word", ["-Wl,-rpath,/in", '-DDATA="/in"', "-fprofile-use=/in", "@/in", "/in/lib.a", "-Xlinker=-rpath,/in"]
)
def test_a_path_that_may_end_up_in_the_library_stays(word: str) -> None:
    assert map_folders([word], lambda _: "elsewhere") == [word]


@pytest.mark.parametrize("words", [["-Xcompiler=-I/in,-DX"], ["-Xcompiler", "-isystem /in -DX"]])
def test_flags_for_nvccs_host_compiler_are_read_too(words: list[str]) -> None:
    assert list(include_folders(words)) == ["/in"]
    assert map_folders(words, lambda _: None)[-1].endswith("-DX")
    assert "/in" not in " ".join(map_folders(words, lambda _: "there"))
    assert map_folders(["-Xcompiler", "-I/in"], lambda _: None) == []


def test_folders_of_libraries_hold_no_headers() -> None:
    assert list(include_folders(["-I/one", "-L/lib", "-isystem", "/two"])) == ["/one", "/two"]


def test_the_host_compilers_own_flags_are_told_apart_as_nvcc_does() -> None:
    for words in (
        ["-Xcompiler", "-Wall,-Wextra"],
        ["-Xcompiler=-Wall -Wextra"],
        ["--compiler-options", "-Wall -Wextra"],
    ):
        assert for_host_compiler(["-DA=1", *words, "-gencode", "arch=compute_90,code=sm_90"]) == [
            "-DA=1",
            "-Wall",
            "-Wextra",
        ]
