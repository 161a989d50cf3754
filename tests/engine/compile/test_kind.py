"""kjit.engine.compile.kind: which compiler gets a CUDA unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.kind import HEADERS, foreign, foreign_in, lacking, name_of, refusal

FOLDERS = ["/kjit/include/", "/cuda/include/"]


def unit(*included: str, own: str = "int own;") -> str:
    """A preprocessed unit whose source includes files; each is a line marker's file and flags."""
    lines = ['# 0 "/op/a.cu"', '# 0 "<built-in>"', '# 0 "<command-line>"', '# 1 "/cuda/include/cuda_runtime.h" 1 3']
    lines += ['# 1 "/usr/include/c++/12/fstream" 1 3', "int fstream;", '# 9 "/cuda/include/cuda_runtime.h" 2 3']
    lines += ['# 0 "<command-line>" 2', '# 1 "/op/a.cu"']
    for number, file in enumerate(included):
        path, _, inner = file.partition(" > ")
        flags = "" if path.startswith("/op/") else " 3"
        lines.append(f'# 1 "{path}" 1{flags}')
        if inner:
            lines += [f'# 1 "{inner}" 1 3', "int inner;", f'# 2 "{path}" 2{flags}']
        lines += ["int x;", f'# {number + 2} "/op/a.cu" 2']
    return "\n".join([*lines, own, ""])


class TestForeign:
    @pytest.mark.parametrize(
        "included",
        [
            (),
            ("/usr/include/c++/12/span > /usr/include/c++/12/vector",),
            (
                "/usr/include/c++/12/cstdint",
                "/usr/include/stdint.h",
                "/usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h",
            ),
            ("/usr/include/x86_64-linux-gnu/assert.h", "/usr/include/c++/v1/algorithm"),
            ("/cuda/include/cub/cub.cuh > /usr/include/c++/12/iostream", "/kjit/include/kjit/runtime.cuh"),
            ("/op/own.cuh > /usr/include/c++/12/tuple",),
        ],
    )
    def test_a_unit_of_kjits_own_kind(self, included: tuple[str, ...]) -> None:
        assert foreign(unit(*included), FOLDERS) == ""

    @pytest.mark.parametrize(
        ("included", "name"),
        [
            (("/usr/include/c++/12/array", "/usr/include/c++/12/fstream"), "fstream"),
            (("/op/own.cuh > /usr/include/c++/12/ranges",), "ranges"),
            (("/usr/include/x86_64-linux-gnu/sys/stat.h",), "sys/stat.h"),
            (("/usr/include/c++/12/x86_64-linux-gnu/bits/c++config.h",), "x86_64-linux-gnu/bits/c++config.h"),
            (("/tvm/include/tvm/ffi/function.h",), "tvm/ffi/function.h"),
            (("/opt/torch/torch.h",), "/opt/torch/torch.h"),
        ],
    )
    def test_a_header_of_others_makes_a_unit_nvccs(self, included: tuple[str, ...], name: str) -> None:
        assert foreign(unit(*included), FOLDERS) == name

    def test_the_reason_names_the_header(self) -> None:
        text = unit("/usr/include/c++/12/fstream")
        assert refusal(text, ":".join(FOLDERS)).startswith("it includes <fstream>, which is neither kjit's nor CUDA's")

    def test_where_there_is_no_choice_any_header_is_taken(self) -> None:
        assert refusal(unit("/usr/include/c++/12/fstream"), "") == ""
        assert refusal(unit(own="x = __builtin_constant_p(3);"), "") == "NVRTC does not know __builtin_constant_p"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/usr/include/c++/12/vector", "vector"),
        ("/usr/include/c++/12.2.0/bits/stl_vector.h", "bits/stl_vector.h"),
        ("/usr/lib/llvm/include/c++/v1/vector", "vector"),
        ("/usr/include/stdio.h", "stdio.h"),
        ("/usr/include/x86_64-linux-gnu/bits/stdio.h", "bits/stdio.h"),
        ("/usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h", "stddef.h"),
        ("/usr/lib/gcc/x86_64-linux-gnu/12/include-fixed/limits.h", "limits.h"),
    ],
)
def test_the_name_of_a_librarys_header(file: str, name: str) -> None:
    assert name_of(file) == name


class TestLacking:
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            ("cudaMemcpyToSymbol(n, &x, 4);", "only nvcc registers the symbols that cudaMemcpyToSymbol takes"),
            ("cudaGetSymbolAddress<int>(&p, n);", "only nvcc registers the symbols that cudaGetSymbolAddress takes"),
            ("x = __builtin_constant_p(y);", "NVRTC does not know __builtin_constant_p"),
            ("typedef float v4 __attribute__((vector_size(16)));", "NVRTC does not know vector_size"),
            ("_Float16 x;", "NVRTC does not know _Float16"),
            ("static_assert(__builtin_strlen(s) == 3);", "NVRTC does not evaluate __builtin_strlen at compile time"),
            (
                "static_assert(__builtin_memcmp(a, b, 3) == 0);",
                "NVRTC does not evaluate __builtin_memcmp at compile time",
            ),
            ("constexpr double x = __builtin_fabs(-2.0);", "NVRTC does not evaluate __builtin_fabs at compile time"),
            ("[[gnu::noinline]] void f();", "NVRTC does not know attributes of GCC's in brackets"),
            ("int x = ({ int y = 1; y; });", "NVRTC does not know GCC's statements in expressions"),
            ("return ({ if (a) { b(); } 3; });", "NVRTC does not know GCC's statements in expressions"),
            ("f(a, ({ g(); }));", "NVRTC does not know GCC's statements in expressions"),
            ("int x = y ?: 3;", "NVRTC does not know GCC's ?: without a middle"),
            ("case 1 ... 3:", "NVRTC does not know GCC's ranges of cases"),
        ],
    )
    def test_what_nvrtc_does_not_have(self, code: str, reason: str) -> None:
        assert lacking(unit(own=code)) == reason

    @pytest.mark.parametrize(
        "code",
        [
            "k<<<1, 2>>>(x);",
            "my_cudaMemcpyToSymbol(n, &x, 4);",
            "f({1, 2}); f<int>({1}); S{}({1}); f()({.x = 1}); f({[] { g(); }});",
            "int x = a ? b : c; int y = a ? ::b : ::c;",
            "case A::kOne: f(xs...);",
            "__builtin_expect(x, 1); __builtin_memcpy(a, b, 4); __builtin_popcount(3);",
            "[[nodiscard]] int f(); x[y[0]];",
            "auto s = \"__builtin_constant_p(y)\"; auto r = R\"x(case 1 ... 2:)x\"; char c = '?'; char d = ':';",
            "auto f = [] { return 1; }; __attribute__((device)) int g();",
        ],
    )
    def test_what_nvrtc_has(self, code: str) -> None:
        assert lacking(unit(own=code)) == ""

    def test_a_library_may_use_it(self) -> None:
        code = "x = __builtin_constant_p(y);"
        assert lacking(unit("/usr/include/c++/12/vector").replace("int x;", code)) == ""
        # What a macro of a header expands to is marked as the header's.
        assert lacking(unit(own=f'int y =\n# 5 "/op/a.cu" 3\n{code}\n# 5 "/op/a.cu"\n3;')) == ""
        assert lacking(unit("/op/own.cuh").replace("int x;", code)) == "NVRTC does not know __builtin_constant_p"


def test_headers_known_to_mean_the_same_are_named_as_they_are_included() -> None:
    assert {"array", "cstdint", "stdint.h"} <= HEADERS
    assert not {"iostream", "ranges", "fstream", "thread", "atomic", "vector"} & HEADERS


class TestForeignIn:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        for name in ("op", "own/lib", "cuda/cub"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "cuda" / "cub" / "cub.cuh").write_text("#include <fstream>\n")
        (tmp_path / "own" / "lib" / "b.h").write_text("#include <array>\n")
        (tmp_path / "op" / "a.h").write_text('#pragma once\n#include "a.h"\n#include <lib/b.h>\n')
        return tmp_path

    def found(self, project: Path, text: str) -> str:
        source = project / "op" / "op.cu"
        source.write_text(text)
        return foreign_in([str(source)], [f"{project}/cuda/"], [f"{project}/own"])

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("#include <array>\n#include <cub/cub.cuh>\n", ""),
            ('#include "a.h"\n', ""),
            ("  #  include   <fstream>  // files\n", "fstream"),
            ("#if 0\n#include <fstream>\n#endif\n", "fstream"),
            ('#include "missing.h"\n', "missing.h"),
            ("// #include <fstream>\n#include MACRO\n", ""),
        ],
    )
    def test_a_source_names_it(self, project: Path, text: str, name: str) -> None:
        assert self.found(project, text) == name

    def test_a_header_of_the_project_names_it(self, project: Path) -> None:
        (project / "own" / "lib" / "b.h").write_text("#include <map>\n")
        assert self.found(project, '#include "a.h"\n') == "map"

    def test_a_source_that_is_not_there_is_left_to_the_preprocessor(self, project: Path) -> None:
        assert foreign_in([str(project / "none.cu")], [], []) == ""
