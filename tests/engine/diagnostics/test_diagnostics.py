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
    says_why,
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


class TestGcc:
    def test_an_error_is_its_place_its_excerpt_and_its_caret(self, view: Path) -> None:
        log = (
            "{project}/scale.cuh: In function 'int f()':\n"
            "{project}/scale.cuh:2:10: error: 'oops' was not declared in this scope\n"
            "    2 |   return oops;\n      |          ^~~~\n"
        )
        assert show(log, view).text == (
            "scale.cuh:2:10: error: 'oops' was not declared in this scope\n  2 |   return oops;\n    |          ^~~~"
        )

    def test_a_warning_is_not_an_error(self, view: Path) -> None:
        log = "{project}/scale.cuh:1:1: warning: unused variable 'x'\n{project}/scale.cuh:2:1: error: bad\n"
        assert show(log, view).text == "scale.cuh:2:1: error: bad"

    def test_an_instantiation_is_one_line_that_ends_at_the_wrapper(self, view: Path) -> None:
        lines = show(GCC_TEMPLATE, view).text.splitlines()
        assert lines[-1] == "  in Scale<float, 4>::run, from the wrapper of export 'scale'"

    def test_an_error_in_somebody_elses_header_is_shown_at_the_own_line_that_led_there(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text(
            "\n\ntemplate <typename T> T outer(T v) { return Inner<T>::get(v); }\n"
        )
        lines = show(GCC_TEMPLATE, view).text.splitlines()
        assert lines[:4] == [
            "scale.cuh:3:58: error: static assertion failed: T must be an integer",
            "  3 | template <typename T> T outer(T v) { return Inner<T>::get(v); }",
            "    |                                                          ^",
            "  at <tensor.h>:4 in Inner<float>",
        ]

    def test_what_follows_from_it_in_that_header_is_counted(self, view: Path) -> None:
        log = GCC_TEMPLATE + "{library}/tensor.h:5:1: error: and so on\n"
        assert show(log, view).text.endswith("\n\n1 more error")

    def test_a_note_that_explains_stays(self, view: Path) -> None:
        assert "  note: 'std::is_integral_v<float>' evaluates to false" in show(GCC_TEMPLATE, view).text

    def test_candidates_and_their_own_errors_are_left_out(self, view: Path) -> None:
        log = (
            "{project}/scale.cuh:5:8: error: no matching function for call to 'find(int)'\n"
            "{library}/map.h:9:9: note: candidate: 'template<class K> find(const K&)'\n"
            "{library}/map.h:9:9: note:   template argument deduction/substitution failed:\n"
            "{library}/map.h: In substitution of 'template<class K> find(const K&) [with K = int]':\n"
            "{project}/scale.cuh:5:8:   required from here\n"
            "{library}/map.h:9:57: error: no type named 'type'\n"
        )
        assert show(log, view).text == "scale.cuh:5:8: error: no matching function for call to 'find(int)'"

    def test_the_ops_own_files_come_before_headers_of_others(self, view: Path) -> None:
        log = "{library}/tensor.h:1:1: error: theirs\n{project}/scale.cuh:2:2: error: mine\n"
        assert [part.split(": error: ")[1] for part in show(log, view).text.split("\n\n")] == ["mine", "theirs"]

    def test_what_is_not_shown_is_counted(self, view: Path) -> None:
        log = "".join(f"{{project}}/scale.cuh:{line}:1: error: number {line}\n" for line in range(1, 9))
        parts = show(log, view).text.split("\n\n")
        assert (len(parts), parts[-1]) == (4, "5 more errors")

    def test_one_that_is_left_is_counted_in_the_singular(self, view: Path) -> None:
        log = "".join(f"{{project}}/scale.cuh:{line}:1: error: number {line}\n" for line in range(1, 5))
        assert show(log, view).text.endswith("\n\n1 more error")

    def test_the_same_error_twice_is_one(self, view: Path) -> None:
        log = "{project}/scale.cuh:1:1: error: bad\n" * 2
        assert show(log, view).text == "scale.cuh:1:1: error: bad"

    def test_colours_and_curly_quotes_are_taken_off(self, view: Path) -> None:
        log = (
            "\x1b[01m\x1b[K{project}/scale.cuh:1:1:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K\u2018x\u2019 bad\n"
        )
        assert show(log, view).text == "scale.cuh:1:1: error: 'x' bad"

    def test_a_missing_header_hints_at_include_paths(self, view: Path) -> None:
        report = show("{project}/scale.cuh:1:10: fatal error: nope.h: No such file or directory\n", view)
        assert "extra_include_paths" in str(report.hint)

    def test_a_path_outside_of_this_folder_is_absolute(self, view: Path) -> None:
        report = show("{library}/tensor.h:1:1: error: theirs\n", view)
        assert report.text == f"{view}/library/tensor.h:1:1: error: theirs"

    def test_an_assembler_error_has_its_line(self, view: Path) -> None:
        log = "{project}/scale.cuh: Assembler messages:\n{project}/scale.cuh:1: Error: no such instruction: `bogus'\n"
        assert show(log, view).text == "scale.cuh:1: error: no such instruction: `bogus'"


class TestPlaces:
    """The place of a message that names another place than the one to change, or none."""

    def test_a_missing_semicolon_is_shown_at_the_end_of_the_line_that_lacks_it(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("int f() {\n  int x = 1  // one\n\n  return x;\n}\n")
        log = (
            "{project}/scale.cuh:4:3: error: expected ',' or ';' before 'return'\n"
            "    4 |   return x;\n      |   ^~~~~~\n"
        )
        assert show(log, view).text.splitlines() == [
            "scale.cuh:2:12: error: expected ',' or ';' before 'return'",
            "  2 |   int x = 1",
            "    |            ^ missing here",
        ]

    def test_of_several_errors_on_a_line_the_first_is_shown(self, view: Path) -> None:
        log = "{project}/scale.cuh:2:1: error: bad\n{project}/scale.cuh:2:9: error: and so on\n"
        assert show(log, view).text == "scale.cuh:2:1: error: bad\n\n1 more error"

    def test_a_missing_brace_is_shown_where_it_was_opened_and_not_in_generated_code(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("struct Scale {\n  void run() {\n};\n")
        log = "scale.cpp:3:1: error: expected unqualified-id before 'namespace'\n"
        lines = show(log, view).text.splitlines()
        assert lines == ["scale.cuh:2:14: error: this '{' has no '}'", "  2 |   void run() {", "    |              ^"]

    def test_an_undefined_symbol_is_shown_where_a_source_uses_it(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("int other();\nint f() { return other(); }\n")
        report = show("scale.cpp:(.text+0x12): undefined reference to `other()'\n", view)
        assert report.text.splitlines()[:2] == [
            "scale.cuh:2:18: error: undefined symbol: other()",
            "  2 | int f() { return other(); }",
        ]

    def test_an_instruction_that_ptxas_refuses_is_shown_where_a_source_writes_it(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text('// mull\nasm("mull.f32 %0;");\n')
        log = "ptxas /tmp/x.ptx, line 3; error   : Not a name of any known instruction: 'mull'\n"
        assert show(log, view).text.splitlines()[1:] == ['  2 | asm("mull.f32 %0;");', "    |      ^"]

    def test_an_export_that_is_defined_twice_is_named_with_both_sources(self, view: Path) -> None:
        log = (
            "b.cpp:(.text+0x10): multiple definition of `__tvm_ffi_shift'; "
            "cuda0.o:tmpxft_00000b_00000000-6_a.cudafe1.cpp:(.text+0x1): first defined here\n"
        )
        assert show(log, view).text == "error: export 'shift' is defined twice, in a.cu and in b.cpp"

    def test_one_that_wrappers_of_both_sides_export_is_said_to_be_in_python(self, view: Path) -> None:
        log = (
            "scale.cpp:(.text+0x10): multiple definition of `__tvm_ffi_scale'; "
            "cuda0.o:tmpxft_00000b_00000000-6_scale.cudafe1.cpp:(.text+0x1): first defined here\n"
        )
        said = "error: export 'scale' is defined twice, by cpp_wrappers in Python and by cuda_wrappers in Python"
        assert show(log, view).text == said


class TestWarnings:
    def warnings(self, log: str, view: Path) -> str:
        text = log.replace("{project}", str(view / "project"))
        return explain_warnings(text, files_of(view))

    def test_each_is_shown_once_and_as_an_error_is(self, view: Path) -> None:
        place = "{project}/scale.cuh:2:7"
        one = f"{place}: warning: unused variable 'x' [-Wunused-variable]\n    2 |   int x;\n      |       ^\n"
        assert self.warnings(one * 2, view) == (
            "scale.cuh:2:7: warning: unused variable 'x' [-Wunused-variable]\n  2 |   int x;\n    |       ^"
        )

    def test_in_which_variant_it_was_is_left_out(self, view: Path) -> None:
        log = (
            '{project}/scale.cuh(2): warning #177-D: variable "x" was declared but never referenced\n'
            '          detected during instantiation of "void f<T>() [with T=float]" at line 9\n\n'
        )
        assert self.warnings(log, view) == 'scale.cuh:2: warning: variable "x" was declared but never referenced'

    def test_a_note_of_a_warning_is_no_note_of_an_error(self, view: Path) -> None:
        log = (
            "{project}/scale.cuh:1:1: error: bad\n{project}/scale.cuh:2:1: warning: odd\n"
            "{project}/scale.cuh:3:1: note: declared here\n"
        )
        assert show(log, view).text == "scale.cuh:1:1: error: bad"

    def test_those_of_ptxas_and_the_linker_are_shown(self, view: Path) -> None:
        log = (
            "ptxas warning : Value of threads per SM for entry k is out of range\n"
            "/usr/bin/ld: warning: x.o: missing .note.GNU-stack section\n"
        )
        assert self.warnings(log, view) == (
            "warning: ptxas: Value of threads per SM for entry k is out of range\n\n"
            "warning: linker: x.o: missing .note.GNU-stack section"
        )

    def test_what_is_no_warning_of_a_known_tool_is_shown_as_it_is(self, view: Path) -> None:
        assert self.warnings("beware\n", view) == "beware"

    def test_nothing_is_nothing(self, view: Path) -> None:
        assert self.warnings("ptxas info    : 0 bytes gmem\n", view) == ""


_LIBRARY = "/c/scale.so"


class TestLoading:
    def test_a_library_that_is_not_found_is_named(self) -> None:
        log = "RuntimeError: liba.so.1: cannot open shared object file: No such file or directory\n"
        assert explain_load(log, _LIBRARY).text == "it needs liba.so.1, which the loader does not find"

    def test_a_symbol_that_no_library_has_is_demangled(self) -> None:
        assert (
            explain_load("/c/scale.so: undefined symbol: _ZN1a5otherEi\n", _LIBRARY).text
            == "undefined symbol: a::other"
        )

    def test_anything_else_is_shown_as_it_is(self) -> None:
        assert explain_load("one\n/c/scale.so: file too short\n", _LIBRARY).text == "/c/scale.so: file too short"

    def test_a_disk_that_is_mounted_noexec_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diagnostics, "is_noexec", lambda folder: folder == "/c")
        report = explain_load(f"Check failed: false: {_LIBRARY}: failed to map segment from shared object\n", _LIBRARY)
        assert report.text == "'/c' is on a disk that is mounted noexec"
        assert str(report.hint).startswith("set KJIT_CACHE_DIR to a folder on another disk")

    def test_what_cannot_be_mapped_for_another_reason_is_shown_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diagnostics, "is_noexec", lambda _: False)
        said = f"{_LIBRARY}: failed to map segment from shared object"
        assert explain_load(f"{said}\n", _LIBRARY).text == said


class TestClang:
    def test_an_instantiation_is_read_from_the_notes_after_the_error(self, view: Path) -> None:
        lines = show(CLANG_TEMPLATE, view).text.splitlines()
        assert lines == [
            "scale.cuh:3:37: error: static assertion failed due to requirement 'std::is_integral_v<float>': no integer",
            "  at <tensor.h>:4 in Inner<float>",
            "  in outer<float>, from the wrapper of export 'scale'",
        ]

    def test_an_excerpt_without_line_numbers_is_read_too(self, view: Path) -> None:
        log = "{project}/scale.cuh:2:10: error: use of undeclared identifier 'oops'\n  return oops;\n         ^~~~\n"
        assert show(log, view).text.splitlines()[1:] == ["  2 |   return oops;", "    |          ^~~~"]


class TestNvcc:
    def test_the_line_is_shown_as_it_was_written_and_not_as_expanded(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("__global__ void k(float* p) { p[threadIdx.x] = nope; }\n")
        log = (
            '{project}/scale.cuh(1): error: identifier "nope" is undefined\n'
            "  __attribute__((global)) void k(float* p) { p[threadIdx.x] = nope; }\n"
            "                                                              ^\n\n"
        )
        assert show(log, view).text == (
            'scale.cuh:1: error: identifier "nope" is undefined\n'
            "  1 | __global__ void k(float* p) { p[threadIdx.x] = nope; }\n"
            "    |                                                ^"
        )

    def test_a_file_that_is_gone_leaves_the_expanded_line(self, view: Path) -> None:
        log = '{project}/scale.cuh(9): error: identifier "nope" is undefined\n  x = nope;\n      ^\n\n'
        assert show(log, view).text.splitlines()[1:] == ["  9 |  x = nope;", "    |      ^"]

    def test_an_instantiation_is_one_line_that_ends_at_the_wrapper(self, view: Path) -> None:
        lines = show(NVCC_TEMPLATE, view).text.splitlines()
        assert lines[-1] == "  in Scale<float, 4>::run, from the wrapper of export 'scale'"

    def test_instantiations_may_follow_a_note(self, view: Path) -> None:
        note = (
            "{library}/tensor.h(4): note #3453-D: the final comparison was 8 <= 4\n"
            '    static_assert(std::is_integral_v<T>, "T must be an integer");\n    ^\n'
        )
        said = show(NVCC_TEMPLATE.replace("          detected", f"{note}          detected"), view).text.splitlines()
        without = show(NVCC_TEMPLATE, view).text.splitlines()
        assert said == [*without[:-1], "  note: the final comparison was 8 <= 4", without[-1]]

    def test_a_name_that_is_nearly_one_of_the_file_is_suggested(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("float f(float alpha) {\n  return alhpa;\n}\n")
        log = '{project}/scale.cuh(2): error: identifier "alhpa" is undefined\n  return alhpa;\n         ^\n\n'
        assert show(log, view).text.startswith(
            "scale.cuh:2: error: identifier \"alhpa\" is undefined; did you mean 'alpha'?"
        )

    def test_a_caret_that_nvcc_does_not_print_is_put_under_the_name(self, view: Path) -> None:
        (view / "project" / "scale.cuh").write_text("x = host_only(1);\n")
        log = '{project}/scale.cuh(1): error: calling a __host__ function("host_only(int)") is not allowed\n\n'
        assert show(log, view).text.splitlines()[1:3] == ["  1 | x = host_only(1);", "    |     ^"]

    def test_what_continues_a_message_is_kept(self, view: Path) -> None:
        log = (
            "{project}/scale.cuh(5): error: no instance of overloaded function matches the argument list\n"
            "            argument types are: (int)\n  m.find(3);\n    ^\n\n"
        )
        assert "  argument types are: (int)" in show(log, view).text

    def test_a_numbered_warning_is_not_an_error(self, view: Path) -> None:
        log = '{project}/scale.cuh(2): warning #550-D: variable "s" was set\n\n{project}/scale.cuh(3): error: bad\n'
        assert show(log, view).text == "scale.cuh:3: error: bad"

    def test_a_host_function_in_a_kernel_hints_at_the_device_mark(self, view: Path) -> None:
        log = (
            '{project}/scale.cuh(2): error: calling a __host__ function("f(int)") from a __global__ function("k") is '
            "not allowed\n\n"
        )
        assert "KJIT_DEVICE" in str(show(log, view).hint)

    def test_a_wrong_option_is_its_message(self, view: Path) -> None:
        assert show("nvcc fatal   : Unknown option '--bogus'\n", view).text == "error: Unknown option '--bogus'"


class TestNamesOfCuda:
    """A name that CUDA declares in a header of its own."""

    @staticmethod
    def hint(log: str, view: Path, target: str = "cuda:sm_80") -> str | None:
        return explain(log, files_of(view), target).hint

    @pytest.mark.parametrize(
        ("name", "header"),
        [
            ("__nv_bfloat16", "<cuda_bf16.h>"),
            ("nv_bfloat162", "<cuda_bf16.h>"),
            ("__float2bfloat16_rn", "<cuda_bf16.h>"),
            ("__halves2bfloat162", "<cuda_bf16.h>"),
            ("__half", "<cuda_fp16.h>"),
            ("half2", "<cuda_fp16.h>"),
            ("__half22float2", "<cuda_fp16.h>"),
            ("__nv_fp8_e4m3", "<cuda_fp8.h>"),
            ("__nv_cvt_bfloat16raw_to_fp8", "<cuda_fp8.h>"),
            ("__nv_fp6x4_e2m3", "<cuda_fp6.h>"),
            ("__nv_fp4_e2m1", "<cuda_fp4.h>"),
            ("__hfma2", "<cuda_fp16.h> (for bfloat16 <cuda_bf16.h>)"),
            ("__hbgeu2", "<cuda_fp16.h> (for bfloat16 <cuda_bf16.h>)"),
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

    @pytest.mark.parametrize("name", ["__reduce_add_sync", "__halt", "__hash_of"])
    def test_any_other_that_looks_like_one_may_be_for_newer_gpus(self, view: Path, name: str) -> None:
        hint = self.hint(f'scale.cuh(2): error: identifier "{name}" is undefined\n', view)
        assert str(hint).startswith("CUDA has no such function for ")

    def test_code_for_the_cpu_is_not_sent_to_cudas_headers(self, view: Path) -> None:
        log = "scale.cpp:2:1: error: 'half2' was not declared in this scope\n"
        assert "cuda_fp16" not in str(self.hint(log, view, "cpu"))


class TestOtherTools:
    def test_a_name_with_other_letters_than_asciis_has_a_hint(self, view: Path) -> None:
        by_nvcc = 'scale.cuh(2): error: Universal character is not allowed in device entity name ("gr\\u00f6")\n'
        by_linker = "/usr/bin/ld: scale.o: in function `f':\nscale.cuh:2: undefined reference to `gr\u00f6(int*)'\n"
        for log in (by_nvcc, by_linker):
            assert "a name in ASCII letters" in str(show(log, view).hint)

    @pytest.mark.parametrize("quote", ["'", ""])
    def test_a_kernel_in_an_unnamed_namespace_that_nvcc_confuses_with_another_has_a_hint(
        self, view: Path, quote: str
    ) -> None:
        log = f"scale.cudafe1.stub.c:1:28: error: reference to {quote}_GLOBAL__N__6_a_cu_9_1{quote} is ambiguous\n"
        assert "into a namespace with a name" in str(show(log, view).hint)

    def test_ptxas_names_the_kernel_and_not_the_temporary_file(self, view: Path) -> None:
        log = "ptxas error   : Entry function '_Z3bigPf' uses too much shared data (0x61a80 bytes, 0xc000 max)\n"
        report = show(log, view)
        assert report.text == "error: ptxas: Entry function 'big' uses too much shared data (400000 bytes, 49152 max)"
        assert report.hint is not None

    def test_what_ptxas_says_last_is_only_a_consequence(self, view: Path) -> None:
        log = (
            "ptxas /tmp/tmpxft_1.ptx, line 27; error   : Unknown modifier '.instr'\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n"
        )
        assert show(log, view).text == (
            "error: ptxas: Unknown modifier '.instr' (line 27 of the PTX that the compiler made)"
        )

    def test_an_undefined_symbol_is_named_with_its_user(self, view: Path) -> None:
        log = (
            "/usr/bin/ld: cpp0.o: in function `f(int)':\n"
            "scale.cpp:(.text+0x12): undefined reference to `a::other(int)'\n"
            "collect2: error: ld returned 1 exit status\n"
        )
        report = show(log, view)
        assert report.text == "error: undefined symbol: a::other(int)\n  used in f"
        assert "extra_ldflags" in str(report.hint)

    def test_lld_is_understood(self, view: Path) -> None:
        log = "ld.lld: error: undefined symbol: other\n>>> referenced by scale.cpp\n"
        assert show(log, view).text == "error: undefined symbol: other"

    def test_a_missing_library_is_named(self, view: Path) -> None:
        log = (
            "/usr/bin/ld: cannot find -lbogus: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
        )
        report = show(log, view)
        assert report.text == "error: linker: cannot find -lbogus: No such file or directory"
        assert report.hint == "correct its name, or add the folder that it is in to extra_ldflags (`-L/folder`)"

    @pytest.mark.parametrize(
        "line",
        [
            "/usr/bin/ld: cannot find /x/libbogus.a: No such file or directory",
            "/usr/bin/x86_64-linux-gnu-ld.bfd: cannot find /x/libbogus.a: No such file or directory",
            "/usr/bin/ld: cannot open linker script file /x/bogus.map: No such file or directory",
            "/usr/bin/ld.gold: error: cannot open /x/libbogus.a: No such file or directory",
            "ld.lld: error: cannot open /x/libbogus.a: No such file or directory",
            "mold: fatal: cannot open /x/libbogus.a: No such file or directory",
            "clang++: error: no such file or directory: '/x/libbogus.a'",
        ],
    )
    def test_a_file_that_the_linker_misses_is_no_missing_header(self, view: Path, line: str) -> None:
        assert show(f"{line}\n", view).hint == "correct the path in extra_ldflags"

    @pytest.mark.parametrize(
        "line",
        [
            "scale.cuh:1:10: fatal error: bogus.h: No such file or directory",
            "cc1plus: fatal error: bogus.h: No such file or directory",
            "scale.cuh:1:10: fatal error: 'bogus.h' file not found",
            'scale.cuh(1): catastrophic error: cannot open source file "bogus.h"',
        ],
    )
    def test_a_missing_header_is_looked_for_in_include_folders(self, view: Path, line: str) -> None:
        assert "to extra_include_paths" in str(show(f"{line}\n", view).hint)

    @pytest.mark.parametrize(
        "log",
        [
            "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
            "clang++: error: unable to execute command: Killed\n",
        ],
    )
    def test_a_killed_compiler_is_one_sentence(self, view: Path, log: str) -> None:
        assert show(log, view).text.startswith("The compiler was killed by the system (signal 9)")

    def test_silence_is_explained(self, view: Path) -> None:
        assert "without a message" in show("", view).text

    def test_what_is_not_understood_is_shown_as_it_is(self, view: Path) -> None:
        assert show("something new happened\n", view).text == "something new happened"

    @pytest.mark.parametrize(
        "log",
        [
            "cc1plus: fatal error: error writing to x.s: No space left on device\n",
            "cc1plus: fatal error: error writing to x.s: Disk quota exceeded\n",
        ],
    )
    def test_a_full_disk_is_recognised(self, log: str) -> None:
        assert is_disk_full(log)

    @pytest.mark.parametrize(
        "log",
        [
            "scale.cuh:1:10: fatal error: x.h: No such file or directory\n",
            "g++: error: unrecognized command-line option '-fno-such'\n",
            'scale.cuh(1): error: identifier "x" is undefined\n\n',
            "something new happened\n",
        ],
    )
    def test_what_nvcc_adds_to_a_reason_is_none_and_no_full_disk(self, log: str) -> None:
        added = log + "fatal   : Could not open input file /tmp/tmpxft_0000499a_00000000-7_add.cpp1.ii\n"
        assert not is_disk_full(added)
        assert says_why(log)

    @pytest.mark.parametrize(
        "log",
        [
            "",
            "collect2: error: ld returned 1 exit status\n",
            "fatal   : Could not open input file /tmp/tmpxft_0000499a_00000000-7_add.cpp1.ii\n",
            "nvcc warning : incompatible redefinition for option 'std', the last value of this option was used\n",
            "ptxas info    : Used 10 registers, used 0 barriers, 368 bytes cmem[0]\n",
        ],
    )
    def test_a_tool_that_only_failed_did_not_say_why(self, log: str) -> None:
        assert not says_why(log)

    def test_what_follows_from_a_missing_header_is_left_out(self, view: Path) -> None:
        log = (
            "{project}/scale.cuh:1:10: fatal error: x.h: No such file or directory\ncompilation terminated.\n"
            "fatal   : Could not open input file /tmp/tmpxft_0000499a_00000000-7_add.cpp1.ii\n"
        )
        assert show(log, view).text == "scale.cuh:1:10: error: x.h: No such file or directory"

    def test_a_host_compiler_that_is_not_there_is_named(self, view: Path) -> None:
        log = "/opt/g++: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.\n"
        assert show(log, view).text == "error: nvcc's host compiler '/opt/g++' does not exist"

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("fatbinary fatal   : Unknown option '-nope'", "fatbinary: Unknown option '-nope'"),
            ("nvlink error   : Undefined reference to 'f' in 'a.o'", "nvlink: Undefined reference to 'f' in 'a.o'"),
            ("Command-line error: invalid option: --nope", "invalid option: --nope"),
            ("<command-line>: fatal error: x.h: No such file or directory", "x.h: No such file or directory"),
        ],
    )
    def test_each_part_of_nvcc_is_understood(self, line: str, text: str, view: Path) -> None:
        assert show(f"{line}\n", view).text == f"error: {text}"

    def test_an_option_is_said_to_stand_where_it_stands(self, view: Path) -> None:
        given = {"extra_cuda_cflags": ("-O3",), "NVCC_APPEND_FLAGS": ("--bogus=1",)}
        report = explain("nvcc fatal   : Unknown option '--bogus'\n", files_of(view), "cuda:sm_80", given)
        assert report.hint == "it is in NVCC_APPEND_FLAGS: correct it there, or remove it"

    @pytest.mark.parametrize(
        ("said", "given"),
        [
            ("g++: error: 3: linker input file not found: No such file or directory", {"extra_cflags": ["-O2", "3"]}),
            ("clang++: error: no such file or directory: '3'", {"extra_cflags": ["-I", "/a", "3"]}),
            (
                "nvcc fatal   : A single input file is required for a non-link phase when an outputfile is specified",
                {"NVCC_APPEND_FLAGS": ["-maxrregcount", "32", "3"]},
            ),
        ],
    )
    def test_a_word_that_is_no_option_is_named(self, said: str, given: dict[str, list[str]], view: Path) -> None:
        report = explain(f"{said}\n", files_of(view), "cuda:sm_80", given)
        assert (
            report.hint
            == f"'3' in {next(iter(given))} is not an option, so the compiler takes it for a source: remove it"
        )

    def test_an_older_language_is_one_sentence_about_the_flag(self, view: Path) -> None:
        log = (
            '{library}/kjit/language.h:7:2: error: #error "kjit\'s headers need C++20"\n'
            "{library}/kjit/utils.h:99:1: error: 'requires' does not name a type\n"
        )
        for flags in (["-O3", "-std=c++17"], ["-std", "c++17"], ["-Xcompiler=-O3,-std=c++17"], ["--std=c++17"]):
            report = explain(log, files_of(view), "cpu", {"extra_cflags": flags})
            assert report.text == "kjit's headers need C++20, and extra_cflags asks for c++17."
            assert str(report.hint).startswith("remove -std=c++17 from extra_cflags")
