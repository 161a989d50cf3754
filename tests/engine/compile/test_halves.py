"""kjit.engine.compile.halves: the two halves of a preprocessed CUDA unit."""

from __future__ import annotations

import pytest

from kjit.engine.compile.halves import device_half, device_lines, for_nvcc, host_half

GLOBAL, DEVICE, HOST = ("__attribute__((global))", "__attribute__((device))", "__attribute__((host))")


class TestHostHalf:
    def test_a_kernel_has_no_body_and_keeps_its_lines(self) -> None:
        unit = f"template <typename T>\n{GLOBAL} void fill(T* x) {{\n  x[0] = 1;\n}}\nint after;\n"
        assert host_half(unit).split("\n") == ["template <typename T>", " void fill(T* x) ;", "", "", "int after;", ""]

    def test_line_markers_stay(self) -> None:
        unit = f'{GLOBAL} void fill() {{\n# 7 "a.h" 1\n  f();\n# 3 "b.cu" 2\n}}\n'
        assert host_half(unit) == ' void fill() ;\n# 7 "a.h" 1\n\n# 3 "b.cu" 2\n\n'

    def test_launch_bounds_are_no_parameters(self) -> None:
        unit = f"{GLOBAL} void __attribute__((launch_bounds(2 * (kWide + 1), 4))) fill(int) {{ }}\n"
        assert host_half(unit).split() == ["void", "fill(int)", ";"]

    @pytest.mark.parametrize(
        ("code", "left"),
        [
            ("D float f(float x) { return __expf(x); }", "float f(float x) ;"),
            ("D auto f() -> decltype(g(1)) { return g(1); }", "auto f() -> decltype(g(1)) ;"),
            ("D float f(float x);", "float f(float x);"),
            ("struct S { D S(int a) : a(a), b{a} { g(); } int a, b; };", "struct S { S(int a) ; int a, b; };"),
            ("struct S { D S() = default; };", "struct S { S() = default; };"),
            (
                "struct S { D bool operator()(int) const { return g(); } };",
                "struct S { bool operator()(int) const ; };",
            ),
            ("D float table[] = {1, 2};", "float table[] = {1, 2};"),
            ("D int count; void f() { g(); }", "int count; void f() { g(); }"),
            ("D int count{1}; void f() { g(); }", "int count{1}; void f() { g(); }"),
            ('D void f() { g("}"); } int x;', "void f() ; int x;"),
            ("D H int f() { return 1; }", "int f() { return 1; }"),
            ("H D int f() { return 1; }", "int f() { return 1; }"),
            ("D constexpr int f() { return 1; }", "constexpr int f() { return 1; }"),
            ("int x; template D void f<int>(int*); int y;", "int x;; int y;"),
            ("int x; extern template D H int f<int>(); int y;", "int x;; int y;"),
            ("int x; template <typename T> D T S<T>::f() const { return g(); } int y;", "int x;; int y;"),
        ],
    )
    def test_device_code_is_declared_and_host_code_stays(self, code: str, left: str) -> None:
        unit = code.replace("D ", f"{DEVICE} ").replace("H ", f"{HOST} ")
        assert host_half(unit).split() == left.split()

    def test_an_explicit_instantiation_keeps_its_lines(self) -> None:
        unit = f'int x;\ntemplate\n# 7 "a.cu" 3 4\n{GLOBAL}\n# 7 "a.cu"\nvoid f<int>(int*);\n'
        assert host_half(unit) == 'int x;\n\n# 7 "a.cu" 3 4\n\n# 7 "a.cu"\n;\n'

    def test_launches_become_calls(self) -> None:
        unit = "void f() { fill<T><<<dim3(n >> 2), size(a, b), 0>>>(x, 1); }"
        left = "void f() { fill<T> ->*::kjit_rtc::grid(dim3(n >> 2), size(a, b), 0)(x, 1); }"
        assert host_half(unit) == left

    def test_for_clang_anonymous_namespaces_have_a_name(self) -> None:
        unit = 'namespace a { namespace\n{ auto b = "namespace {"; } }'
        named = 'namespace a { inline namespace _GLOBAL__N_1\n{ auto b = "namespace {"; } }'
        assert host_half(unit, is_for_clang=True) == named
        assert host_half(unit) == unit

    def test_noinline_is_an_attribute(self) -> None:
        of_library = "[[__gnu__::__noinline__]] int f(); __attribute__((__noinline__, __noclone__)) int g();"
        unit = f"{of_library} __noinline__ int h(); static {DEVICE} __noinline__ int i() {{ return 1; }}"
        noinline = "__attribute__((noinline))"
        assert host_half(unit).split() == f"{of_library} {noinline} int h(); static {noinline} int i() ;".split()

    def test_text_in_quotes_is_no_launch(self) -> None:
        unit = 'auto a = "<<<"; auto b = R"(<<<1, 2>>>)";'
        assert host_half(unit) == unit


class TestForNvcc:
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            ("__attribute__((managed)) int n;", "only nvcc registers __managed__ variables"),
            ("cudaMemcpyToSymbol(n, &x, 4);", "only nvcc registers the symbols that cudaMemcpyToSymbol takes"),
            (
                f'[]\n# 4 "a.cu" 3 4\n{DEVICE}\n# 4 "a.cu"\n(int i) {{ return i; }}',
                "only nvcc compiles __device__ lambdas",
            ),
            ("fill<<<1, 2>>>(x);", ""),
            ("my_cudaMemcpyToSymbol(n, &x, 4);", ""),
        ],
    )
    def test_what_only_nvcc_compiles(self, code: str, reason: str) -> None:
        assert for_nvcc(f'# 1 "a.cu"\nint f() {{\n{code}\n}}\n') == reason

    def test_a_library_may_declare_it(self) -> None:
        assert for_nvcc('# 1 "a.h" 1 3\nint cudaMemcpyToSymbol(const void*);\n# 2 "a.cu" 2\nint n;\n') == ""


def test_the_lines_of_code_for_the_device() -> None:
    unit = (
        '# 1 "a.cu"\nint f();\n__device__ int g() {\n  return\n# 7 "b.h" 1\n3\n# 5 "a.cu" 2\n;\n}\n'
        '# 1 "c.h" 1\n__device__ void h() {}\n'
    )
    assert list(device_lines(unit, lambda name: name == "a.cu")) == [
        ("a.cu", 2, "{"),
        ("a.cu", 3, "  return"),
        ("b.h", 7, "3"),
        ("a.cu", 5, ";"),
        ("a.cu", 6, "}"),
    ]


class TestDeviceHalf:
    def test_all_of_it_is_marked_as_a_system_headers(self) -> None:
        unit = '# 1 "a.cu"\nint f();\n# 3 "b.h" 1 3 4\nint g();\n'
        assert device_half(unit) == '# 1 "a.cu" 3\nint f();\n# 3 "b.h" 3\nint g();\n'

    def test_pragmas_for_gcc_are_left_out(self) -> None:
        unit = "int f();\n#pragma GCC diagnostic push\n#pragma unroll\n#pragma GCC unroll 4\n"
        assert device_half(unit) == "int f();\n\n#pragma unroll\n#pragma GCC unroll 4\n"

    def test_the_bodies_of_own_device_code_are_the_ops(self) -> None:
        unit = '# 1 "a.cu"\n__global__ void f(int) {\n  g();\n}\nvoid h() {}\n# 9 "b.h" 1 3\n__device__ void k() {}\n'
        assert device_half(unit) == (
            '# 1 "a.cu" 3\n__global__ void f(int) \n# 1 "a.cu"\n{\n  g();\n}\n# 3 "a.cu" 3\n\nvoid h() {}\n'
            '# 9 "b.h" 3\n__device__ void k() {}\n'
        )

    @pytest.mark.parametrize(
        ("code", "head"),
        [
            ("{ each([&](const auto& x, int i) { g(x[i]); }); }", "[&](const auto& x, int i) "),
            ("{ each([]<typename T>(T x) { g(x); }); }", "[]<typename T>(T x) "),
            ("{ x[i] = g((int)y); each([=](int i) { g(i); }); }", None),
            ('{ print("[](auto) {"); }', None),
        ],
    )
    def test_heads_of_lambdas_that_are_templates_stay_a_system_headers(self, code: str, head: str | None) -> None:
        """In other files, NVRTC takes what such a lambda does for host code."""
        left = device_half(f'# 1 "a.cu"\n__device__ void f() {code}\n')
        body = code if head is None else code.replace(head, f'\n# 1 "a.cu" 3\n{head}\n# 1 "a.cu"\n')
        assert left == f'# 1 "a.cu" 3\n__device__ void f() \n# 1 "a.cu"\n{body}\n# 1 "a.cu" 3\n\n'

    @pytest.mark.parametrize(
        "code",
        [
            "constexpr int f(int x) { return x; }",
            "template <typename T> constexpr auto f(T) noexcept(sizeof(T) > 4) -> int;",
            "constexpr explicit(true) Pair(const A& a) : a(a) {}",
            "constexpr std::pair<int, decltype(f(1))> f();",
            "constexpr bool operator==(const A&) const = default;",
            "constexpr operator float() const { return 1; }",
            "constexpr Order Order::of(int x) { return x; }",
            "[[nodiscard]] consteval int f();",
        ],
    )
    def test_functions_that_are_constant_expressions_are_for_both_sides(self, code: str) -> None:
        marked = code.replace("const", "__host__ __device__ const", 1)
        assert device_half(code) == marked

    @pytest.mark.parametrize(
        "code",
        [
            "constexpr int kWide = f(1);",
            "constexpr int kWide{4};",
            "constexpr Wide kWide(4);",
            "constexpr int kAll[] = {f(1)};",
            "constexpr int (*kCall)(int) = f;",
            "constexpr Order Order::less(Kind::less);",
            "void f() { if constexpr (sizeof(int) == 4) g(); }",
            "auto f = [](int x) constexpr { return x; };",
        ],
    )
    def test_other_constants_stay_as_they_are(self, code: str) -> None:
        assert device_half(code) == code

    def test_what_is_for_the_assembler_goes(self) -> None:
        assert device_half('int f() __asm__ ("" "g"); __asm (".globl _ZSt3xyz");') == "int f() ; ;"

    def test_values_of_the_library_are_not_marked_as_unused(self) -> None:
        unit = "enum E { _S_noreplace __attribute__((__unused__)) = 1, };\nint x __attribute__((__unused__)) = 1;"
        assert device_half(unit) == "enum E { _S_noreplace = 1, };\nint x __attribute__((__unused__)) = 1;"
