"""kjit.engine.key.flags: the folders and files named by flags, in every spelling."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kjit.engine.key.flags import files_of_options, for_host_compiler, include_folders, without_folders
from kjit.engine.toolchain.options import OPTIONS, Dialect, expand, parse
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import bundle
from kjit.spec import Target

# Each way to name the folder IN, in which headers are looked for.
CXX = [
    ["-IIN"],
    ["-I", "IN"],
    ["--include-directory=IN"],
    ["--include-directory", "IN"],
    ["--include-directory-after=IN"],
    ["--include-directory-after", "IN"],
    ["-iquoteIN"],
    ["-iquote", "IN"],
    ["-isystemIN"],
    ["-isystem", "IN"],
    ["-idirafterIN"],
    ["-idirafter", "IN"],
    ["-iprefix", "IN/", "-iwithprefix", "../in"],
    ["-iprefixIN/", "-iwithprefixbefore../in"],
    ["--include-prefix=IN/", "--include-with-prefix=../in"],
    ["--include-prefix", "IN/", "--include-with-prefix-before", "../in"],
    ["--include-prefix", "IN/", "--include-with-prefix-after=../in"],
    ["-Wp,-IIN"],
    ["-Wp,-I,IN"],
    ["-Xpreprocessor", "-IIN"],
    ["-Xpreprocessor", "-I", "-Xpreprocessor", "IN"],
    ["@IN/options"],
    ["@IN/nested"],
]
NVCC = [
    ["-IIN"],
    ["-I=IN"],
    ["-I", "IN"],
    ["-I/nowhere,IN"],
    ["--include-path=IN"],
    ["--include-path", "IN"],
    ["-isystem=IN"],
    ["-isystem", "IN"],
    ["--system-include=IN"],
    ["--system-include", "/nowhere,IN"],
    ["-Xcompiler=-IIN"],
    ["-Xcompiler", "-isystem,IN"],
    ["-Xcompiler", "-I 'IN'"],
    ["--compiler-options=-iquoteIN,-DX"],
    ["--compiler-options", "-DX -idirafter IN"],
    ["-optf", "IN/options"],
    ["-optf=IN/nested"],
    ["--options-file=IN/options"],
    ["--options-file", "IN/nested,IN/options"],
]
WAYS: list[tuple[Dialect, list[str]]] = [*(("c++", words) for words in CXX), *(("nvcc", words) for words in NVCC)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a header, and with files of options that name it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "found.h").touch()
    (tmp_path / "in" / "options").write_text(f"-DA\\ B='x y'\n -I \"{tmp_path}/in\"\n")
    return tmp_path / "in"


def at(words: list[str], folder: Path, dialect: Dialect) -> list[str]:
    (folder / "nested").write_text(f"{'@' if dialect == 'c++' else '-optf '}{folder}/options\n")
    return [word.replace("IN", str(folder)) for word in words]


@pytest.mark.parametrize(("dialect", "words"), WAYS)
def test_a_folder_of_headers_is_found_in_each_spelling(folder: Path, dialect: Dialect, words: list[str]) -> None:
    found = [str(Path(each).resolve()) for each in include_folders(at(words, folder, dialect), dialect)]
    assert set(found) - {"/nowhere"} == {str(folder)}


@pytest.mark.parametrize(("dialect", "words"), WAYS)
def test_what_was_taken_apart_is_what_was_written(folder: Path, dialect: Dialect, words: list[str]) -> None:
    words = ["-O3", *at(words, folder, dialect), "-Wall", "-DX=1"]
    assert [word for flag in parse(words, dialect) for word in flag.words()] == words


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("words", CXX)
def test_compilers_understand_each_spelling_like_that(
    folder: Path, tmp_path: Path, compiler: str, words: list[str]
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "unit.cpp").write_text('#include "found.h"\n')
    words = [word.replace("-DA\\ B='x y'", "") for word in at(words, folder, "c++")]
    (folder / "options").write_text(f"-DX='x y'\n -I \"{folder}\"\n")
    subprocess.run([compiler, *words, "-fsyntax-only", tmp_path / "unit.cpp"], check=True)


@pytest.mark.nvcc
@pytest.mark.parametrize("words", NVCC)
def test_nvcc_understands_each_spelling_like_that(folder: Path, tmp_path: Path, words: list[str]) -> None:
    toolchain = Toolchain.for_target(Target.cuda("9.0a"))
    assert toolchain.cuda is not None
    (tmp_path / "unit.cu").write_text('#include "found.h"\n')
    words = at(words, folder, "nvcc")
    (folder / "options").write_text(f"-DX=1\n -I {folder}\n")
    command = [toolchain.cuda.nvcc.path, "-ccbin", toolchain.cxx.path, "-M", *words, tmp_path / "unit.cu"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_a_list_from_which_nothing_is_left_out_keeps_its_quotes() -> None:
    quoted = ['-Xcompiler=-DX="a,b"']
    assert without_folders(quoted, "nvcc") == quoted
    assert without_folders(['-Xcompiler=-DX="a,b",-I/in'], "nvcc") == ["-Xcompiler=-DX=a\\,b"]


def test_flags_that_only_say_where_to_search_can_be_left_out() -> None:
    assert without_folders(["-I/in", "-O3", "-isystem", "/in", "-L/lib", "-include", "/a.h"]) == [
        "-O3",
        "-include",
        "/a.h",
    ]
    assert without_folders(["-Xcompiler", "-I/in"], "nvcc") == []
    assert without_folders(["-Xcompiler=-isystem /in -DX"], "nvcc") == ["-Xcompiler=-DX"]


def test_folders_of_libraries_hold_no_headers() -> None:
    assert list(include_folders(["-I/one", "-L/lib", "-isystem", "/two"])) == ["/one", "/two"]


def test_files_of_options_may_name_others_and_themselves(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"-O2 @{second}")
    second.write_text(f"-DX @{first} @/nowhere/third")
    assert list(files_of_options([f"@{first}"])) == [str(first), str(second), str(first), "/nowhere/third"]
    assert [flag.value for flag, _ in expand([f"@{first}"]) if flag.meaning == "macro"] == ["X"]


def test_the_host_compilers_own_flags_are_separated_as_by_nvcc(tmp_path: Path) -> None:
    (tmp_path / "options").write_text("-Xcompiler -Wall,-Wextra --maxrregcount=32\n")
    for words in (
        ["-Xcompiler", "-Wall,-Wextra"],
        ["-Xcompiler=-Wall -Wextra"],
        ["--compiler-options", "-Wall -Wextra"],
        ["-optf", str(tmp_path / "options")],
    ):
        assert for_host_compiler(["-DA=1", *words, "-gencode", "arch=compute_90,code=sm_90"]) == [
            "-DA=1",
            "-Wall",
            "-Wextra",
        ]


def test_what_nvcc_calls_otherwise_is_handed_to_the_host_compiler_by_its_own_name() -> None:
    words = ["--pre-include=/a.h,/b.h", "--system-include", "/in", "--include-path=/in", "--define-macro", "X=1"]
    assert for_host_compiler([*words, "-std=c++20", "-O3", "-lineinfo", "-g", "-I/one,/two"]) == [
        *("-include", "/a.h", "-include", "/b.h", "-isystem", "/in", "-I", "/in", "-D", "X=1"),
        *("-std=c++20", "-O3", "-g", "-I/one", "-I/two"),
    ]


SEARCHING = ("headers", "prefix", "suffix", "libraries", "options", "list", "passed on")


def test_bundles_know_how_flags_begin_that_may_add_folders() -> None:
    names = [name for each in OPTIONS.values() for name, option in each.items() if option.meaning in SEARCHING]
    assert "-I" in names and "--compiler-options" in names
    assert [name for name in names if not name.startswith(bundle._MAY_NAME_FOLDERS)] == []
    assert [name for name in names if name.startswith(bundle._OF_NVCC)] == []


@pytest.mark.parametrize("dialect", ["c++", "nvcc"])
@pytest.mark.parametrize(
    "words",
    [
        ("-O3", "-DNDEBUG", "-DX=1,2", "-U_FORTIFY_SOURCE", "-std=c++17", "-fopenmp", "-mavx2"),
        ("-isystem", "/torch/include", "-I/usr/include/python3.12", "-O2"),
        ("-Wl,-z,undefs", "-L/torch/lib", "-lc10", "-Wl,-rpath,/lib"),
        ("--expt-relaxed-constexpr", "--use_fast_math", "-use_fast_math", "-lineinfo", "-D", "X", "a.o"),
        ("-Xcompiler=-I/inc", "-Wp,-I/inc", "-iprefix", "/a", "-iwithprefix", "b"),
    ],
)
def test_what_bundles_read_by_themselves_is_read_so(words: tuple[str, ...], dialect: Dialect) -> None:
    assert bundle._flags(words, dialect) == without_folders(words, dialect)
