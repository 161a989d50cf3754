"""kjit.engine.diagnostics.diagnostics: from the output of compilers to messages for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.diagnostics import diagnostics
from kjit.engine.diagnostics.diagnostics import (
    Report,
    explain,
    explain_load,
    explain_warnings,
    is_disk_full,
)
from kjit.engine.diagnostics.files import Files

GCC_TEMPLATE = """\
In file included from {project}/scale.cuh:1:
{library}/tensor.h: In instantiation of 'struct Inner<float>':
{project}/scale.cuh:3:58:   required from 'static void Scale<T, N>::run(View) [with T = float; int N = 4]'
scale.cpp:4:1:   required from here
{library}/tensor.h:4:22: error: static assertion failed: T must be an integer
    4 |   static_assert(std::is_integral_v<T>, "T must be an integer");
      |                 ~~~~~^~~~~~~~~~~~~~~~
{library}/tensor.h:4:22: note: 'std::is_integral_v<float>' evaluates to false
"""
CLANG_TEMPLATE = """\
In file included from {project}/scale.cuh:1:
{library}/tensor.h:4:17: error: static assertion failed due to requirement 'std::is_integral_v<float>': no integer
    4 |   static_assert(std::is_integral_v<T>, "no integer");
      |                 ^~~~~~~~~~~~~~~~~~~~~
{project}/scale.cuh:3:37: note: in instantiation of template class 'Inner<float>' requested here
    3 | template <typename T> T outer(T v) {{ return Inner<T>::get(v); }}
      |                                             ^
scale.cpp:4:22: note: in instantiation of function template specialization 'outer<float>' requested here
1 error generated.
"""
NVCC_TEMPLATE = """\
{library}/tensor.h(4): error: static assertion failed with "T must be an integer"
    static_assert(std::is_integral_v<T>, "T must be an integer");
    ^
          detected during:
            instantiation of class "Inner<T> [with T=float]" at line 3 of {project}/scale.cuh
            instantiation of "void Scale<T, N>::run(View) [with T=float, N=4]" at line 4 of scale.cu

1 error detected in the compilation of "scale.cu".
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def view(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place from which the project's paths look short."""
    for name in ("staging", "library"):
        (tmp_path / name).mkdir()
    (tmp_path / "staging" / "scale.cpp").write_text("#include\n\n\nKJIT_EXPORT(scale, (Scale<float, 4>::run))\n")
    (tmp_path / "staging" / "scale.cu").write_text("#include\n\n\nKJIT_EXPORT(scale, (Scale<float, 4>::run))\n")
    monkeypatch.chdir(project)
    return tmp_path


def files_of(view: Path, source: str = "scale.cuh") -> Files:
    generated = frozenset(("scale.cpp", "scale.cu"))
    return Files((str(view / "project" / source),), generated, view / "staging", (view / "library",))


def show(log: str, view: Path, source: str = "scale.cuh") -> Report:
    text = log.replace("{project}", str(view / "project")).replace("{library}", str(view / "library"))
    return explain(text, files_of(view, source), "cpu")


LINE = "{file}:1:1: error: bad\n"
SHOWN = "scale.cuh:1:1: error: bad"

# What a log is shown as, and the text of {file}, if it is there.
CASES: dict[str, tuple[str, str] | tuple[str, str, str]] = {
    # GCC
    "place, excerpt and caret": (
        (
            "{file}: In function 'int f()':\n{file}:2:10: error: 'oops' was not declared in this scope\n"
            "    2 |   return oops;\n      |          ^~~~\n"
        ),
        "scale.cuh:2:10: error: 'oops' was not declared in this scope\n  2 |   return oops;\n    |          ^~~~",
    ),
    "a warning is no error, nor its note a note of one": (
        "{file}:2:1: warning: unused variable 'x'\n" + LINE + "{file}:2:1: warning: odd\n{file}:3:1: note: declared\n",
        SHOWN,
    ),
    "candidates and their own errors are left out": (
        (
            "{file}:5:8: error: no matching function for call to 'find(int)'\n"
            "{library}/map.h:9:9: note: candidate: 'template<class K> find(const K&)'\n"
            "{library}/map.h:9:9: note:   template argument deduction/substitution failed:\n"
            "{library}/map.h: In substitution of 'template<class K> find(const K&) [with K = int]':\n"
            "{file}:5:8:   required from here\n"
            "{library}/map.h:9:57: error: no type named 'type'\n"
        ),
        "scale.cuh:5:8: error: no matching function for call to 'find(int)'",
    ),
    "own files come before headers of others": (
        "{library}/tensor.h:1:1: error: theirs\n{file}:1:1: error: bad\n",
        SHOWN + "\n\n{view}/library/tensor.h:1:1: error: theirs",
    ),
    "what is not shown is counted": (
        "".join(f"{{file}}:{line}:1: error: bad\n" for line in range(1, 9)),
        "\n\n".join(f"scale.cuh:{line}:1: error: bad" for line in range(1, 4)) + "\n\n5 more errors",
    ),
    "the same twice": (LINE * 2, SHOWN),
    "several on a line": (LINE + "{file}:1:9: error: and so on\n", SHOWN + "\n\n1 more error"),
    "colours and curly quotes": (
        "\x1b[01m\x1b[K{file}:1:1:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K\u2018x\u2019 bad\n",
        "scale.cuh:1:1: error: 'x' bad",
    ),
    "an assembler": (
        "{file}: Assembler messages:\n{file}:1: Error: no such instruction: `bogus'\n",
        "scale.cuh:1: error: no such instruction: `bogus'",
    ),
    # Clang
    "an excerpt without numbers": (
        "{file}:2:10: error: use of undeclared identifier 'oops'\n  return oops;\n         ^~~~\n",
        "scale.cuh:2:10: error: use of undeclared identifier 'oops'\n  2 |   return oops;\n    |          ^~~~",
    ),
    "notes of an instantiation": (
        CLANG_TEMPLATE,
        (
            "scale.cuh:3:37: error: static assertion failed due to requirement 'std::is_integral_v<float>': "
            "no integer\n  at <tensor.h>:4 in Inner<float>\n  in outer<float>, from the wrapper of export 'scale'"
        ),
    ),
    # nvcc
    "a file that is gone leaves the expanded line": (
        '{file}(9): error: identifier "nope" is undefined\n  x = nope;\n      ^\n\n',
        'scale.cuh:9: error: identifier "nope" is undefined\n  9 |   x = nope;\n    |       ^',
    ),
    "a wrong option": ("nvcc fatal   : Unknown option '--bogus'\n", "error: Unknown option '--bogus'"),
    # Linkers
    "lld": ("ld.lld: error: undefined symbol: other\n>>> referenced by scale.cpp\n", "error: undefined symbol: other"),
    "what is not understood": ("something new happened\n", "something new happened"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_tool_says_is_shown_as(case: str, view: Path) -> None:
    log, text, *source = CASES[case]
    file = view / "project" / "scale.cuh"
    places = {"file": file, "view": view, "project": file.parent, "library": view / "library"}
    for content in source:
        file.write_text(content.format(**places))
    assert explain(log.format(**places), files_of(view), "cpu").text == text.format(**places)


@pytest.mark.parametrize("log", [GCC_TEMPLATE, NVCC_TEMPLATE], ids=["gcc", "nvcc"])
def test_an_instantiation_is_one_line_that_ends_at_the_wrapper(log: str, view: Path) -> None:
    lines = show(log, view).text.splitlines()
    assert lines[-1] == "  in Scale<float, 4>::run, from the wrapper of export 'scale'"


def test_an_error_in_somebody_elses_header_is_shown_at_the_own_line_that_led_there(view: Path) -> None:
    (view / "project" / "scale.cuh").write_text("\n\ntemplate <typename T> T outer(T v) { return Inner<T>::get(v); }\n")
    report = show(GCC_TEMPLATE, view)
    assert report.text.splitlines()[:4] == [
        "scale.cuh:3:58: error: static assertion failed: T must be an integer",
        "  3 | template <typename T> T outer(T v) { return Inner<T>::get(v); }",
        "    |                                                          ^",
        "  at <tensor.h>:4 in Inner<float>",
    ]
    assert "  note: 'std::is_integral_v<float>' evaluates to false" in report.text


def test_instantiations_may_follow_a_note(view: Path) -> None:
    note = (
        "{library}/tensor.h(4): note #3453-D: the final comparison was 8 <= 4\n"
        '    static_assert(std::is_integral_v<T>, "T must be an integer");\n    ^\n'
    )
    said = show(NVCC_TEMPLATE.replace("          detected", f"{note}          detected"), view).text.splitlines()
    without = show(NVCC_TEMPLATE, view).text.splitlines()
    assert said == [*without[:-1], "  note: the final comparison was 8 <= 4", without[-1]]


PLACE = "{project}/scale.cuh:2:7"
UNUSED = f"{PLACE}: warning: unused variable 'x' [-Wunused-variable]\n    2 |   int x;\n      |       ^\n"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (UNUSED * 2, "scale.cuh:2:7: warning: unused variable 'x' [-Wunused-variable]\n  2 |   int x;\n    |       ^"),
        (
            (
                '{project}/scale.cuh(2): warning #177-D: variable "x" was declared but never referenced\n'
                '          detected during instantiation of "void f<T>() [with T=float]" at line 9\n\n'
            ),
            'scale.cuh:2: warning: variable "x" was declared but never referenced',
        ),
        (
            (
                "ptxas warning : Value of threads per SM for entry k is out of range\n"
                "/usr/bin/ld: warning: x.o: missing .note.GNU-stack section\n"
            ),
            (
                "warning: ptxas: Value of threads per SM for entry k is out of range\n\n"
                "warning: linker: x.o: missing .note.GNU-stack section"
            ),
        ),
        ("beware\n", "beware"),
        ("ptxas info    : 0 bytes gmem\n", ""),
    ],
    ids=["once", "without its variant", "of other tools", "of an unknown tool", "none"],
)
def test_warnings_are_shown_as_errors_are(log: str, shown: str, view: Path) -> None:
    assert explain_warnings(log.replace("{project}", str(view / "project")), files_of(view)) == shown


_LIBRARY = "/c/scale.so"


class TestLoading:
    def test_anything_else_is_shown_as_it_is(self) -> None:
        assert explain_load("one\n/c/scale.so: file too short\n", _LIBRARY).text == "/c/scale.so: file too short"

    def test_a_disk_that_is_mounted_noexec_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diagnostics, "is_noexec", lambda folder: folder == "/c")
        report = explain_load(f"Check failed: false: {_LIBRARY}: failed to map segment from shared object\n", _LIBRARY)
        assert report.text == "'/c' is on a disk that is mounted noexec"
        assert str(report.hint).startswith("set KJIT_CACHE_DIR to a folder on another disk")


class TestNamesOfCuda:
    """A name that CUDA declares in a header of its own."""

    @staticmethod
    def hint(log: str, view: Path, target: str = "cuda:sm_80") -> str | None:
        return explain(log, files_of(view), target).hint

    @pytest.mark.parametrize(
        ("name", "header"),
        [
            ("__nv_bfloat16", "<cuda_bf16.h>"),
            ("__float2bfloat16_rn", "<cuda_bf16.h>"),
            ("half2", "<cuda_fp16.h>"),
            ("__nv_fp8_e4m3", "<cuda_fp8.h>"),
            ("printf", "<cstdio>"),
            ("uint32_t", "<cstdint>"),
        ],
    )
    def test_the_header_that_declares_it_is_named(self, view: Path, name: str, header: str) -> None:
        said = f"include {header}, which declares {name}"
        assert self.hint(f'scale.cuh(2): error: identifier "{name}" is undefined\n', view) == said
        assert self.hint(f"scale.cuh:2:1: error: '{name}' was not declared in this scope\n", view) == said
        assert self.hint(f"scale.cuh:2:1: error: unknown type name '{name}'\n", view) == said

    @pytest.mark.parametrize(
        "error",
        [
            '(206): error: exception specification is incompatible with that of previous function "rsqrt" (declared at',
            ":206:1: error: declaration of 'double rsqrt(double) noexcept (true)' has a different exception specifier",
            ":206:1: error: exception specification in declaration does not match previous declaration of 'rsqrt'",
        ],
    )
    def test_a_c_library_that_is_too_new_for_cuda_is_named(self, view: Path, error: str) -> None:
        hint = self.hint(f"/usr/include/bits/mathcalls.h{error}\n", view)
        assert hint is not None
        assert "from CUDA 13.2 on" in hint

    @pytest.mark.parametrize("header", ["cuda/std/array", "cub/cub.cuh", "nv/target", "crt/mma.h"])
    def test_where_a_package_of_its_headers_is_missing_it_is_named(self, view: Path, header: str) -> None:
        hint = self.hint(f"scale.cuh:1:10: fatal error: {header}: No such file or directory\n", view)
        assert hint is not None
        assert "pip install 'kjit[nvrtc]'" in hint
        own = self.hint("scale.cuh:1:10: fatal error: own_nv/target: No such file or directory\n", view)
        assert own is not None
        assert "extra_include_paths" in own

    def test_code_for_the_cpu_is_not_sent_to_cudas_headers(self, view: Path) -> None:
        log = "scale.cpp:2:1: error: 'half2' was not declared in this scope\n"
        assert "cuda_fp16" not in str(self.hint(log, view, "cpu"))


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        ("scale.cuh:1:10: fatal error: bogus.h: No such file or directory", "to extra_include_paths"),
        ("scale.cuh:1:10: fatal error: 'bogus.h' file not found", "to extra_include_paths"),
        ('scale.cuh(1): catastrophic error: cannot open source file "bogus.h"', "to extra_include_paths"),
        ("/usr/bin/ld: cannot find /x/libbogus.a: No such file or directory", "correct the path in extra_ldflags"),
        ("clang++: error: no such file or directory: '/x/libbogus.a'", "correct the path in extra_ldflags"),
        (
            "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes, 0xc000 max)",
            "smaller tile",
        ),
        ("scale.cpp:(.text+0x12): undefined reference to `a::other(int)'", "extra_ldflags"),
    ],
)
def test_a_hint_is_about_the_tool_that_says_it(log: str, hint: str, view: Path) -> None:
    assert hint in str(show(f"{log}\n", view).hint)


@pytest.mark.parametrize(
    "log",
    [
        "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
        "clang++: error: unable to execute command: Killed\n",
    ],
)
def test_a_killed_compiler_is_one_sentence(view: Path, log: str) -> None:
    assert show(log, view).text.startswith("The compiler was killed by the system (signal 9)")
    assert "without a message" in show("", view).text


@pytest.mark.parametrize("reason", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_recognised(reason: str) -> None:
    assert is_disk_full(f"cc1plus: fatal error: error writing to x.s: {reason}\n")
