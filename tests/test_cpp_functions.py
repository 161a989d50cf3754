"""kjit.cpp_functions and kjit.cpp_text: the functions of a C++ or CUDA file, read without a compiler."""

from __future__ import annotations

import pytest

from kjit.cpp_functions import Parameter, read_source
from kjit.cpp_text import blanked


def names(text: str) -> list[str]:
    return [str(function) for function in read_source(text).functions]


def test_comments_strings_and_the_preprocessor_keep_their_place() -> None:
    text = 'int a; // {\n/* } \n */ char b = \'"\';\n#define F(x) \\\n  { x\nauto c = R"x(})x" "\\"{";'
    plain = blanked(text)
    assert len(plain) == len(text)
    assert [line.rstrip() for line in plain.splitlines()] == [
        "int a;",
        "",
        "    char b =    ;",
        "",
        "",
        f"auto c ={' ' * 15};",
    ]


def test_quotes_in_numbers_begin_no_literal_and_lines_of_the_preprocessor_may_stay() -> None:
    text = "#define N 1'000 // {\nint a = 1'000'000; char b = '{'; // {\n{"
    assert " ".join(blanked(text, directives=False).split()) == "#define N 1'000 int a = 1'000'000; char b = ; {"
    assert " ".join(blanked(text).split()) == "int a = 1'000'000; char b = ; {"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void f(float* x, int n) {}", ["__global__ f(float* x, int n)"]),
        ("__global__ void f(float* x, int n);", []),
        ("// __global__ void f(int n) {}", []),
        ('extern "C" __global__ void f(float x[], const int n) {}', ["__global__ f(float* x, const int n)"]),
        ('extern "C" { void f(void) { g(); } }', ["f()"]),
        ("namespace a::b { namespace { void f(int n) { if (n) { } } } }", ["a::b::f(int n)"]),
        ("__device__ int f(int n) { return n; } __host__ __device__ int g() { return 1; }", []),
        ("int main(int argc, char** argv) { return 0; }", []),
        ("struct S : Base { int a = 3; S(int b) : a(b) {} static void run(T* const x) {} };", ["S::run(T* x)"]),
        ("enum class E { A, B }; int table[] = {1, 2}; auto f = [](int n) { return n; };", []),
        ("void __launch_bounds__(256, 2) __global__ f(int n) {}", ["__global__ f(int n)"]),
        ("__global__ __attribute__((used)) void f(int n) {}", ["__global__ f(int n)"]),
        ("KJIT_EXPORT(f, f)\nvoid f(const float *__restrict__ x, float &y) {}", ["f(const float* x, float& y)"]),
        ("void f(std::pair<int, int> p = {1, 2}, int (*g)(int) = nullptr) noexcept {}", None),
        ("#ifdef A\nvoid f(int n) { }\n#else\nvoid f(int n) { n; }\n#endif", ["f(int n)"]),
        ("auto f(int n) -> int { return n; } void g() {}", ["f(int n)", "g()"]),
        (
            '__global__ void f(int n) { /* } */ auto s = "}"; }\n__global__ void g() {}',
            ["__global__ f(int n)", "__global__ g()"],
        ),
        ("void f() { {", ["f()"]),
    ],
)
def test_the_functions_that_a_host_can_call(text: str, expected: list[str] | None) -> None:
    found = names(text)
    assert expected is None or found == expected


def test_templates_lines_bounds_and_bodies() -> None:
    text = """
template <typename T, int kBlock = sizeof(int)>
__global__ void __launch_bounds__(128) f(const T* x) { x[0]; }
template <class U> struct S { template <bool kFast> static cudaError_t run(U* y) { return cudaSuccess; } };
"""
    f, run = read_source(text).functions
    assert (f.line, f.bounds, f.body.strip()) == (2, 128, "x[0];")
    assert f.template[0] == Parameter("typename", "T")
    assert (run.qualified, run.returns, run.line) == ("S::run", "cudaError_t", 4)
    assert run.class_template == (Parameter("class", "U"),)
    assert run.template == (Parameter("bool", "kFast"),)


def test_types_without_qualifiers() -> None:
    assert Parameter("const unsigned char*", "x").base == "unsigned char"
    assert Parameter("const float*", "x").is_const
    assert not Parameter("float*", "x").is_const
