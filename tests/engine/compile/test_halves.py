"""kjit.engine.compile.halves: the two halves of a preprocessed CUDA unit."""

from __future__ import annotations

import re

import pytest

from kjit.engine.compile.halves import NotUnderstoodError, device_half, host_half

GLOBAL, DEVICE, HOST = ("__attribute__((global))", "__attribute__((device))", "__attribute__((host))")
_BODY = re.compile(
    r"\{ __attribute__\(\(used\)\) static ::kjit_rtc::Kernel<(?P<types>.*?)> kjit_kernel; "
    r"::kjit_rtc::launch\(&kjit_kernel(?P<passed>[^)]*)\); \}"
)
_LAUNCH = re.compile(r"\(::__cudaPushCallConfiguration\((?P<grid>.*?)\)\) \? \(void\)0 : ")


def spelled(code: str) -> str:
    """`code` with the annotations that G, D and H stand for."""
    for letter, word in (("G", GLOBAL), ("D", DEVICE), ("H", HOST)):
        code = re.sub(rf"\b{letter} ", f"{word} ", code)
    return code


def parameters(code: str) -> tuple[str, list[str], list[str]]:
    """The parameters of the only kernel in `code`, their types in its table, and what it passes on."""
    half = host_half(spelled(code))
    body = _BODY.search(half)
    assert body is not None, half
    head = half[: body.start()].rstrip()
    passed = [each for each in body["passed"].split(", ") if each]
    types = [each for each in body["types"].split(", ") if each]
    return head[head.rindex("k(") + 1 :], types, passed


class TestKernels:
    @pytest.mark.parametrize(
        ("code", "names"),
        [
            ("G void k() { }", []),
            ("G void k(void) { }", []),
            ("G void k(const float* __restrict__ x, unsigned n) { }", ["x", "n"]),
            ("G void k(int n = f(1, 2), std::pair<int, int> p = {1, 2}, char c = ',') { }", ["n", "p", "c"]),
            ("G void k(int x = a > b, int y = n >> 2, int z = (a < b)) { }", ["x", "y", "z"]),
            ("G void k(int x = sizeof(A<int, 3>), A<(1 >> 2)> y = A<1>(), B<C<int>> z) { }", ["x", "y", "z"]),
            ("G void k(std::conditional_t<(N > 2), int, float> x, A<B<C<int>>> y) { }", ["x", "y"]),
            ("G void k(std::function<int (*)(int)> f, F<int(int), 3> g) { }", ["f", "g"]),
            ("G void k(const int a[], int n[4], int P::*m) { }", ["a", "n", "m"]),
            ("G void k(decltype(f(1)) x, struct P p, typename T::type v, enum E e) { }", ["x", "p", "v", "e"]),
            (
                "G void k(__attribute__((unused)) int x, [[maybe_unused]] int y, int z [[maybe_unused]]) { }",
                list("xyz"),
            ),
            ("G void k(const __attribute__((grid_constant)) P p, alignas(16) int a) noexcept { }", ["p", "a"]),
            ("G void k(auto x, unsigned long long n, unsigned __int128 w) { }", ["x", "n", "w"]),
            ("template <int N> requires (N > 2) G void k(int x) { }", ["x"]),
            ("template <int N> G void k(int x) requires (N > 2) { }", ["x"]),
            ("G auto k(int x) -> void { }", ["x"]),
        ],
    )
    def test_a_kernel_passes_on_its_parameters(self, code: str, names: list[str]) -> None:
        head, types, passed = parameters(code)
        assert passed == names
        assert types == [f"decltype({name})" for name in names]
        assert spelled(code).removesuffix("{ }").rstrip().endswith(head)

    @pytest.mark.parametrize(
        ("given", "types", "passed"),
        [
            ("T... xs", "decltype(xs)...", "xs..."),
            ("const T&... xs", "decltype(xs)...", "xs..."),
        ],
    )
    def test_packs_are_passed_on_as_packs(self, given: str, types: str, passed: str) -> None:
        assert parameters(f"template <typename... T> G void k({given}, int n) {{ }}")[1:] == (
            [types, "decltype(n)"],
            [passed, "n"],
        )

    @pytest.mark.parametrize(
        "given",
        [
            *("int", "ns::T", "struct P", "A<B<int>, 3>", "T const", "auto", "T&&...", "int = 3", "[[maybe_unused]] P"),
            *("void (*f)(int)", "float (&)[3]", "int[]", "int*[4]", "int (P::*f)(int)", "int (x)"),
            "int x, int y = a < b, int z = 2",
        ],
    )
    def test_parameters_without_names_or_of_other_forms_are_left_to_nvcc(self, given: str) -> None:
        with pytest.raises(NotUnderstoodError, match="only nvcc understands a kernel's parameter without") as caught:
            host_half(spelled(f'# 1 "/op/a.cu"\nint x;\n\nG void k({given}) {{ }}\n'))
        assert (caught.value.file, caught.value.line) == ("/op/a.cu", 3)

    def test_a_name_in_parentheses_is_left_to_nvcc(self) -> None:
        with pytest.raises(NotUnderstoodError):
            host_half(spelled("G void (k)(int x) { }"))

    @pytest.mark.parametrize(
        ("code", "head"),
        [
            ("G void __attribute__((launch_bounds(2 * (kWide + 1), 4))) k(int x) { }", f"{GLOBAL} void  k(int x)"),
            ("static __attribute__((launch_bounds(128))) G void k(int x) { }", f"static  {GLOBAL} void k(int x)"),
            ("G __attribute__((cluster_dims(2, 1, 1))) void k(int x) { }", f"{GLOBAL}  void k(int x)"),
            ("G __attribute__((maxnreg(64))) void k(int x);", f"{GLOBAL}  void k(int x);"),
            ('extern "C" G void k(int x) { }', f'extern "C" {GLOBAL} void k(int x)'),
            ("template <> G void k<int>(int x) { }", f"template <> {GLOBAL} void k<int>(int x)"),
        ],
    )
    def test_what_is_about_device_code_goes_and_all_else_of_its_head_stays(self, code: str, head: str) -> None:
        assert _BODY.sub("", host_half(spelled(code))).strip() == head

    @pytest.mark.parametrize(
        "code", ["G void k(int);", "template G void k<int>(int*); int x;", "struct S { friend G void k(int x); };"]
    )
    def test_a_declaration_stays(self, code: str) -> None:
        assert host_half(spelled(code)) == spelled(code)

    def test_lines_and_line_markers_stay(self) -> None:
        unit = f'{GLOBAL} void k(int x,\n# 7 "a.h" 1\n int y\n# 3 "b.cu" 2\n) {{\n f();\n}}\nint after;\n'
        half = host_half(unit)
        assert half.count("\n") == unit.count("\n")
        assert _BODY.sub("", half).endswith('# 3 "b.cu" 2\n) \n\n\nint after;\n')
        unit = f'{GLOBAL} void k() {{\n# 7 "a.h" 1\n  f();\n# 3 "b.cu" 2\n}}\n'
        assert _BODY.sub("", host_half(unit)) == f'{GLOBAL} void k() \n# 7 "a.h" 1\n\n# 3 "b.cu" 2\n\n'

    def test_a_kernel_that_launches_one_has_no_launch_left(self) -> None:
        assert "cudaPush" not in host_half(spelled("G void k() { inner<<<1, 1>>>(); }"))


class TestDeviceFunctions:
    @pytest.mark.parametrize(
        ("code", "left"),
        [
            ("D float f(float x) { return __expf(x); } int y;", "D float f(float x) ; int y;"),
            ("D auto f() -> decltype(g(1)) { return g(1); }", "D auto f() -> decltype(g(1)) ;"),
            ("D float f(float x);", "D float f(float x);"),
            ("struct S { D S(int a) : a(a), b{a} { g(); } int a, b; };", "struct S { D S(int a) ; int a, b; };"),
            (
                "struct S { D S() = default; D operator int() { g(); } };",
                "struct S { D S() = default; D operator int() ; };",
            ),
            ("struct S { D bool operator()(int) const { g(); } };", "struct S { D bool operator()(int) const ; };"),
            ('D void f() { g("}"); } int x;', "D void f() ; int x;"),
            ("int x; template <typename T> D T S<T>::f() const { return g(); } int y;", "int x;; int y;"),
            ("int x; template D void f<int>(int*); int y;", "int x;; int y;"),
            ("int x; template D float f<2>(A<(1 > 2)>); int y;", "int x;; int y;"),
        ],
    )
    def test_device_code_is_only_declared(self, code: str, left: str) -> None:
        assert host_half(spelled(code)) == spelled(left)

    @pytest.mark.parametrize(
        "code",
        [
            "D float table[] = {1, 2};",
            "D int count; void f() { g(); }",
            "D int count{1}; void f() { g(); }",
            "D H int f() { return 1; }",
            "H D int f() { return 1; }",
            "D constexpr int f() { return 1; }",
            "D auto f() { return 1; }",
            "template H D void f<int>(int*);",
            "extern template D void f<int>();",
        ],
    )
    def test_variables_and_what_host_code_may_use_stay(self, code: str) -> None:
        assert host_half(spelled(code)) == spelled(code)

    def test_an_explicit_instantiation_keeps_its_lines(self) -> None:
        unit = f'int x;\ntemplate\n# 7 "a.cu" 3 4\n{DEVICE}\n# 7 "a.cu"\nvoid f<int>(int*);\n'
        assert host_half(unit) == 'int x;\n\n# 7 "a.cu" 3 4\n\n# 7 "a.cu"\n;\n'

    def test_a_deduction_guide_has_no_annotations(self) -> None:
        code = "H D S(T) -> S<T>; H D explicit S(int) -> S<int>;"
        assert host_half(spelled(code)) == "S(T) -> S<T>; explicit S(int) -> S<int>;"

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            ("__attribute__((managed)) int n;", "only nvcc registers __managed__ variables"),
            ("auto f = [] D (int i) { return i; };", "only nvcc compiles __device__ lambdas"),
            (
                'auto f = []\n# 4 "a.cu" 3 4\nD \n# 4 "a.cu"\n(int i) { return i; };',
                "only nvcc compiles __device__ lambdas",
            ),
        ],
    )
    def test_what_only_nvcc_compiles_is_refused(self, code: str, reason: str) -> None:
        with pytest.raises(NotUnderstoodError, match=reason):
            host_half(spelled(code))


class TestLaunches:
    @pytest.mark.parametrize(
        ("launch", "call"),
        [
            ("k<<<1, 2>>>(x);", "@1, 2@k(x);"),
            ("if (a) k<<<1, 2>>>(x); else k<<<2, 2>>>(y);", "if (a) @1, 2@k(x); else @2, 2@k(y);"),
            ("if (a(b)) ns::k<A<B>><<<1, 2>>>(x);", "if (a(b)) @1, 2@ns::k<A<B>>(x);"),
            ("for (auto i : m) k<i><<<1, 2>>>(x);", "for (auto i : m) @1, 2@k<i>(x);"),
            (
                "while (n > 3) k<1 + 2><<<dim3(n >> 2), f(a, b), 0>>>(x);",
                "while (n > 3) @dim3(n >> 2), f(a, b), 0@k<1 + 2>(x);",
            ),
            ("do k<<<1, 2>>>(x); while (0);", "do @1, 2@k(x); while (0);"),
            (
                "case 1: k<1><<<1, 2>>>(x); default: k<2><<<1, 2>>>(x);",
                "case 1: @1, 2@k<1>(x); default: @1, 2@k<2>(x);",
            ),
            ("label: k<<<1, 2>>>(x);", "label: @1, 2@k(x);"),
            ("return ::k<<<1, 2>>>(x);", "return @1, 2@::k(x);"),
            ("if (a) [[likely]] k<<<1, 2>>>(x);", "if (a) [[likely]] @1, 2@k(x);"),
            ("k<1><<<1, 2>>>(x), k<2><<<3, 4>>>(x);", "@1, 2@k<1>(x), @3, 4@k<2>(x);"),
            ("a > 1 ? k<1><<<1, 2>>>(x) : k<2><<<3, 4>>>(x);", "a > 1 ? @1, 2@k<1>(x) : @3, 4@k<2>(x);"),
            ("a && (k<<<1, 2>>>(x), true);", "a && (@1, 2@k(x), true);"),
            ("(void)k<1><<<1, 2>>>(x); if (a) (void)k<<<3, 4>>>(x);", "@1, 2@(void)k<1>(x); if (a) @3, 4@(void)k(x);"),
            ("CHECK(k<<<1, 2>>>(y));", "CHECK(@1, 2@k(y));"),
            ("auto kernel = k<int>; kernel<<<1, 2>>>(x);", "auto kernel = k<int>; @1, 2@kernel(x);"),
            ("S<T>::k<<<3, 4>>>(x); a::B<C<T>>::k<1><<<1, 2>>>(x);", "@3, 4@S<T>::k(x); @1, 2@a::B<C<T>>::k<1>(x);"),
            ("k<(a > b)><<<1, 2>>>(x); k<'a', -1, &b><<<3, 4>>>(x);", "@1, 2@k<(a > b)>(x); @3, 4@k<'a', -1, &b>(x);"),
            (
                "k<sizeof(int) * 2, A<1, 2>><<<(n + 1) / 2, 2, 0, s>>>(x, y);",
                "@(n + 1) / 2, 2, 0, s@k<sizeof(int) * 2, A<1, 2>>(x, y);",
            ),
            (
                "k<<<n >> 1, A{1, 2}>>>(x); k<<<[] { return 3; }(), 2>>>(x);",
                "@n >> 1, A{1, 2}@k(x); @[] { return 3; }(), 2@k(x);",
            ),
            ("auto g = [&] { k<<<1, 2>>>(x); };", "auto g = [&] { @1, 2@k(x); };"),
            ("g(a < b, k<1>, 2); k<1><<<1, 2>>>(x);", "g(a < b, k<1>, 2); @1, 2@k<1>(x);"),
        ],
    )
    def test_a_launch_is_a_call_of_the_kernel(self, launch: str, call: str) -> None:
        half = host_half(f"template <typename T> void f() {{ {launch} }}")
        assert _LAUNCH.sub(r"@\g<grid>@", half) == f"template <typename T> void f() {{ {call} }}"

    def test_a_launch_over_several_lines_keeps_them(self) -> None:
        half = host_half("void f() {\n  k<<<1,\n      2>>>(\n      y);\n}\n")
        assert half == "void f() {\n  (::__cudaPushCallConfiguration(1,\n      2)) ? (void)0 : k(\n      y);\n}\n"

    @pytest.mark.parametrize(
        "launch",
        [
            "k<<<1, 2;",
            "k<<<1, 2>>>;",
            "3<<<1, 2>>>(x);",
            "T{}.k<<<1, 2>>>(x);",
            *("(*kernel)<<<1, 2>>>(x);", "table[i]<<<1, 2>>>(x);", "s.k<<<3, 4>>>(x);", "get<int>(1)<<<1, 2>>>(x);"),
            *("s->k<<<1, 2>>>(x);", "this->template k<1><<<3, 4>>>(x);", "T::template k<int><<<1, 2>>>(x);"),
            "k<a < b><<<1, 2>>>(x);",
            "k<A<B>::value < 3><<<1, 2>>>(x);",
        ],
    )
    def test_a_launch_of_another_form_is_left_to_nvcc(self, launch: str) -> None:
        unit = f'# 1 "/op/a.cu"\n\n# 1 "/lib/b.h" 1 3\nint b;\n# 3 "/op/\\"a\\\\.cu" 2\nvoid f() {{\n{launch}\n}}\n'
        with pytest.raises(NotUnderstoodError, match="only nvcc understands this launch") as caught:
            host_half(unit)
        assert (caught.value.file, caught.value.line) == ('/op/"a\\.cu', 4)

    @pytest.mark.parametrize(
        "code",
        [
            """auto a = "<<<"; auto b = R"(<<<1, 2>>>)"; c = u8R"x(\n__attribute__((global)) void k() {} )" <<< )x";""",
            "auto a = '<'; auto b = L'{'; auto c = \"__attribute__((device)) int f() { }\"; auto d = '\\'';",
            "auto a = 1'000'000 + 0x1'F + 1.5e+3'0f; int b = a << 2;",
            "template <typename T> auto& operator<<<T>(S& s, T x); bool operator<(A, B);",
            '#pragma GCC diagnostic ignored "<<<"',
        ],
    )
    def test_other_text_stays(self, code: str) -> None:
        assert host_half(f"{code}\nint after;\n") == f"{code}\nint after;\n"

    def test_separators_of_digits_begin_no_character(self) -> None:
        half = host_half("void f() { k<<<1'0, 2>>>('<', ';', 1'000); g('x'); }")
        assert _LAUNCH.sub(r"@\g<grid>@", half) == "void f() { @1'0, 2@k('<', ';', 1'000); g('x'); }"


class TestDeviceHalf:
    @pytest.mark.parametrize(
        ("file", "code", "left"),
        [
            (
                "/cuda/include/vector_types.h",
                "struct float2 { float x, y;\n };\nstruct dim3 { int x; };",
                "\n\nstruct dim3 { int x; };",
            ),
            (
                "/usr/include/c++/12/bits/utility.h",
                "using T = I<_Tp, __integer_pack(_Num)...>;",
                "using T = ::kjit_rtc::typed_sequence<I, _Tp, _Num>;",
            ),
            (
                "/usr/include/c++/12/utility",
                "using T = I<__integer_pack(_Num)...>;",
                "using T = ::kjit_rtc::sequence<I, _Num>;",
            ),
            ("/usr/include/c++/12/complex", "typedef __complex__ float C;", "typedef ::kjit_rtc::complex_float C;"),
            ("/cuda/include/cccl/thrust/a.h", "friend class thrust::b;", "friend thrust::b;"),
            ("/usr/include/dirent.h", "struct s {\n    char name[];\n};", "struct s {\n    char name[1];\n};"),
        ],
    )
    def test_headers_are_without_what_nvrtc_has_itself(self, file: str, code: str, left: str | None) -> None:
        unit = f'# 1 "/op/a.cu"\nint a;\n# 1 "{file}" 3\n{{}}\n# 2 "/op/a.cu"\nint b;\n'
        assert device_half(unit.format(code)) == unit.format(code if left is None else left)

    def test_the_expansion_of_a_systems_macro_in_an_own_file_is_the_files(self) -> None:
        """Or NVRTC would report no error about a declaration that begins with one of CUDA's annotations."""
        unit = """# 1 "/op/a.cu"
# 1 "/cuda/include/b.h" 3 4
int a;
# 2 "/cuda/include/b.h" 3 4
int b;
# 2 "/op/a.cu"
# 2 "/op/a.cu"{flags}
__attribute__((global))
# 2 "/op/a.cu"
int k() {{ return 0; }}
"""
        assert device_half(unit.format(flags=" 3 4")) == unit.format(flags="")

    def test_line_markers_do_not_tell_which_file_includes_which(self) -> None:
        unit = '# 1 "/op/a.cu"\n# 1 "/a/b.h"{enters} 3 4\nint a;\n# 2 "/op/a.cu"{leaves}\nint b;\n'
        assert device_half(unit.format(enters=" 1", leaves=" 2")) == unit.format(enters="", leaves="")

    @pytest.mark.parametrize(
        "code",
        [
            "inline constexpr float abs(float x) {}",
            "using std::abs;",
            "struct float2 { float x, y; };",
            "using T = I<__integer_pack(_Num)...>;",
            "friend class thrust::b;",
            "struct s {\n    char name[];\n};",
            '#pragma GCC diagnostic push\n__asm__("x");',
        ],
    )
    def test_an_ops_own_files_stay_as_they_are(self, code: str) -> None:
        unit = f'# 1 "/op/cmath.cu"\n{code}\n# 1 "/op/math.cuh"\n{code}\n'
        assert device_half(unit) == unit


def test_code_of_headers_that_looks_like_a_flexible_array_stays() -> None:
    unit = '# 1 "/opt/kjit/include/kjit/totals.h" 3\nint f(int* totals) {\n    return totals[0];\n}\n'
    assert device_half(unit) == unit
    unit = '# 1 "/usr/include/x86_64-linux-gnu/bits/socket.h" 1 3\nstruct S {\n    unsigned char data[0];\n};\n'
    assert "unsigned char data[1];" in device_half(unit)
