"""kjit's short headers of the C++ library in device halves: the same values as GCC's, which replace them where a unit
needs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile import short_headers
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError, ToolchainError
from kjit.spec import Spec, Target, Variant

TARGET = Target.cuda("9.0a")
TYPES = """
enum Plain : short {};
enum class Scoped : unsigned long long {};
struct Empty {};
struct Point { float x, y; };
struct Base { virtual ~Base(); virtual void f() = 0; };
struct Derived final : Base { Derived(const Derived&); void f() override; int x; };
struct NoCopy { NoCopy(int); NoCopy(const NoCopy&) = delete; NoCopy(NoCopy&&) noexcept; operator float() const; };
struct Call { int operator()(int) const; void operator()(int, float&); };
union Either { int i; float f; };
"""
EACH = (
    *("void", "bool", "char", "signed char", "unsigned char", "wchar_t", "char8_t", "char16_t", "char32_t", "short"),
    *("unsigned short", "int", "unsigned", "long", "unsigned long", "long long", "unsigned long long", "float"),
    *("double", "long double", "decltype(nullptr)", "const int", "volatile float", "const volatile bool", "int*"),
    *("const char* const", "int&", "const float&", "Point&&", "int[]", "int[3]", "float[2][3]", "int(*)[3]"),
    *("int (&)[4]", "void(int)", "int(*)(float)", "void() const", "int Point::*", "void (Base::*)()"),
    *("int (Derived::* const)(int) const", "Plain", "const Scoped", "Empty", "Point", "Base", "Derived", "NoCopy"),
    *("Call", "Either", "const Point", "__int128"),
)
OF_ONE = (
    *("void", "null_pointer", "integral", "floating_point", "array", "pointer", "lvalue_reference", "rvalue_reference"),
    *("member_object_pointer", "member_function_pointer", "enum", "union", "class", "function", "reference"),
    *("arithmetic", "fundamental", "object", "scalar", "compound", "member_pointer", "const", "signed", "unsigned"),
    *("trivial", "trivially_copyable", "standard_layout", "empty", "aggregate", "default_constructible"),
    *("copy_constructible", "move_constructible", "destructible", "trivially_destructible"),
)
TRANSFORMED = (
    *("remove_const", "remove_cv", "add_const", "remove_reference", "remove_cvref", "remove_pointer", "remove_extent"),
    *("remove_all_extents", "add_lvalue_reference", "add_rvalue_reference", "add_pointer", "decay", "type_identity"),
)
NUMBERS = EACH[1:20]
CONCEPTS = (
    *("integral", "signed_integral", "unsigned_integral", "floating_point", "destructible", "default_initializable"),
    *("move_constructible", "copy_constructible"),
)
LIMITS = (
    *("is_specialized", "digits", "digits10", "max_digits10", "is_signed", "is_integer", "is_exact", "radix"),
    *("min_exponent", "min_exponent10", "max_exponent", "max_exponent10", "has_infinity", "has_quiet_NaN"),
    *("has_signaling_NaN", "has_denorm", "has_denorm_loss", "is_iec559", "is_bounded", "is_modulo", "traps"),
    *("tinyness_before", "round_style"),
)
VALUES = ("min", "max", "lowest", "epsilon", "round_error", "infinity", "quiet_NaN", "signaling_NaN", "denorm_min")
PAIRS = (
    *("int, long", "float, int", "int, void", "Base*, Derived*", "Derived*, Base*", "int&, const int&", "Empty, Empty"),
    *("NoCopy, float", "float, NoCopy", "int[3], int*", "void, void", "Point, int", "char, unsigned", "Plain, int"),
    *(
        "Scoped, int",
        "Derived&, Base&",
        "const int&, int&&",
        "void(), void(*)()",
        "unsigned, int",
        "decltype(nullptr), int*",
    ),
)
CALLS = (
    *("Call", "Call, int", "const Call&, int", "Call&, int, float&", "const Call, int, float&", "int(*)(float), int"),
    *("int, int", "float Point::*, Point&", "float Point::*, const Point*", "void (Base::*)(), Derived*"),
    *("void (Base::*)(), Base&, int", "void(int), float"),
)
COMMON = (
    "int",
    "int, long",
    "float, int, double",
    "Base*, Derived*",
    "unsigned, int",
    "const int&, char",
    "Plain, int",
)


@pytest.fixture(autouse=True)
def by_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
    try:
        Toolchain.for_target(TARGET)
    except ToolchainError as error:
        pytest.skip(f"needs NVRTC: {error.message}")


def build(source: str, folder: Path, flags: tuple[str, ...] = ()) -> str:
    """The device half of a unit, preprocessed."""
    path = folder / "op.cuh"
    path.write_text(source)
    (folder / "staging").mkdir()
    spec = Spec("op", cuda_files=[path], cuda_wrappers=[("launch", "launch")], extra_cuda_cflags=flags)
    built = compile_variant(Variant(spec, TARGET), Toolchain.for_target(TARGET), folder / "staging")
    assert built.compiler.startswith("NVRTC ")  # nvcc compiles units whose halves do not fit each other
    return (folder / "staging" / "cuda0.sm_90a.ii").read_text()


def unit_with(values: list[str]) -> str:
    """A unit that launches kernels with these values as template arguments.

    The C++ compiler names the kernels in the host half, with its own headers, and NVRTC in the device half: the link
    fails if one of the values differs.
    """
    kernels = "".join(f"  values<{i}, {each}><<<1, 1>>>();\n" for i, each in enumerate(values))
    return f"""#include <bit>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>
#include <cstdint>
{TYPES}
template <int kNumber, auto... kValues>
__global__ void values() {{}}
template <int kNumber, typename... Ts>
__global__ void types() {{}}
template <typename T>
constexpr T bits(T x) {{ return x; }}
constexpr std::uint32_t bits(float x) {{ return std::bit_cast<std::uint32_t>(x); }}
constexpr std::uint64_t bits(double x) {{ return std::bit_cast<std::uint64_t>(x); }}
void launch() {{
{kernels}}}
"""


def test_traits_and_limits_have_the_values_of_gccs(tmp_path: Path) -> None:
    values = []
    for one in EACH:
        traits = [f"std::is_{name}_v<{one}>" for name in OF_ONE]
        traits += [f"std::is_{name}<{one}>::value" for name in ("integral", "pointer", "signed", "const", "class")]
        traits += [f"std::is_same_v<std::{name}_t<{one}>, typename std::{name}<{one}>::type>" for name in TRANSFORMED]
        traits += [f"std::{name}<{one}>" for name in CONCEPTS]
        values.append(", ".join(traits))
    for one in NUMBERS:
        values.append(", ".join(f"std::numeric_limits<{one}>::{name}" for name in LIMITS))
        if one != "long double":  # NVRTC's is a double
            values.append(", ".join(f"bits(std::numeric_limits<{one}>::{name}())" for name in VALUES))
    values.append(", ".join(f"std::is_{name}_v<{two}>" for two in PAIRS for name in ("same", "convertible")))
    two_of = ("constructible", "assignable", "nothrow_constructible")
    values.append(", ".join(f"std::is_{name}_v<{two}>" for two in PAIRS for name in two_of))
    values.append(", ".join(f"std::convertible_to<{two}>, std::derived_from<{two}>" for two in PAIRS))
    values.append(", ".join(f"std::is_invocable_v<{each}>" for each in CALLS))
    assert short_headers.are_read(build(unit_with(values), tmp_path))


def test_transformations_have_the_types_of_gccs(tmp_path: Path) -> None:
    lines = []
    for i, one in enumerate(EACH):
        types = ", ".join(f"std::{name}_t<{one}>" for name in TRANSFORMED)
        lines.append(f"  types<{i}, {types}><<<1, 1>>>();\n")
    integers = [one for one in NUMBERS if one not in ("bool", "float", "double", "long double")]
    signs = [
        f"std::make_{sign}_t<{one}>" for one in [*integers, "Plain", "const Scoped"] for sign in ("signed", "unsigned")
    ]
    others = [f"std::common_type_t<{each}>" for each in COMMON]
    others += [
        f"std::invoke_result_t<{each}>" for each in ("Call, int", "Call&, int, float&", "float Point::*, Point&")
    ]
    others += [
        "std::underlying_type_t<Plain>",
        "std::underlying_type_t<Scoped>",
        "std::conditional_t<true, int, float>",
    ]
    others += ["std::make_index_sequence<5>", "std::index_sequence_for<int, float>", "std::true_type"]
    for i, several in enumerate((signs, others)):
        lines.append(f"  types<{i + 1000}, {', '.join(several)}><<<1, 1>>>();\n")
    source = unit_with([]).replace("void launch() {\n", "void launch() {\n" + "".join(lines))
    assert short_headers.are_read(build(source, tmp_path))


BITS = """#include <bit>
#include <utility>
#include <cstdint>
template <auto... kValues>
__global__ void values() {}
template <typename T, T... x>
void of() {
  values<std::popcount(x)...><<<1, 1>>>();
  values<std::countl_zero(x)..., std::countr_zero(x)...><<<1, 1>>>();
  values<std::has_single_bit(x)..., std::bit_floor(x)..., std::bit_ceil(T(x / 2))...><<<1, 1>>>();
}
constexpr int swapped() {
  int a[] = {1, 2}, b[] = {3, 4};
  std::swap(a, b);
  std::swap(a[0], b[0]);
  return std::exchange(a[0], 5) + 10 * a[0] + 100 * std::as_const(a[1]) + 1000 * std::move(b[1]);
}
void launch() {
  values<swapped()><<<1, 1>>>();
  of<std::uint8_t, 0, 1, 2, 77, 255>();
  of<std::uint16_t, 0, 1, 256, 40000, 65535>();
  of<std::uint32_t, 0, 1, 7, 1u << 31, 0xffffffff>();
  of<std::uint64_t, 0, 1, 1ull << 40, 12345678901234567ull, ~0ull>();
}
"""


def test_bits_are_counted_as_by_gccs(tmp_path: Path) -> None:
    assert short_headers.are_read(build(BITS, tmp_path))


@pytest.mark.parametrize(
    "code",
    [
        "#include <utility>\nusing Value = std::pair<int, float>;",
        "#include <tuple>\nusing Value = std::tuple<int, float>;",
        "#include <utility>\nusing namespace std;\nusing Value = pair<int, float>;",
        "#include <utility>\nstruct Value { int x; auto operator<=>(const Value&) const = default; };",
        "#include <type_traits>\nusing Value = std::unwrap_ref_decay_t<const int&>;",
        "#include <concepts>\n#include <array>\ntemplate <std::copyable T> struct Of {};\nusing Value = Of<int>;",
        "#include <cuda/std/tuple>\nusing Value = cuda::std::tuple<int, float>;",
    ],
)
def test_a_unit_that_needs_more_is_compiled_with_gccs(code: str, tmp_path: Path) -> None:
    source = (
        f"{code}\n__global__ void fill(Value* x) {{ *x = Value(); }}\nvoid launch() {{ fill<<<1, 1>>>(nullptr); }}\n"
    )
    assert not short_headers.are_read(build(source, tmp_path))


def test_messages_are_about_gccs_headers(tmp_path: Path) -> None:
    source = """#include <type_traits>
__global__ void fill(int* x) { *x = std::enable_if_t<false, int>(); }
void launch() { fill<<<1, 1>>>(nullptr); }
"""
    with pytest.raises(CompileError) as caught:
        build(source, tmp_path)
    assert "/type_traits:" in caught.value.message
    assert "kjit_rtc" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "suffices"),
    [
        ("std::size_t n;", True),
        ("std :: pair<int, int> p;", False),
        ("bool operator<=>(X) const = default;", False),
        ('# 1 "/usr/include/c++/12/cstddef" 1 3\n', True),
        ('# 1 "/usr/include/c++/12/tuple" 1 3\n', False),
        ('# 1 "/usr/include/x86_64-linux-gnu/c++/12/bits/c++config.h" 1 3\n', True),
    ],
)
def test_what_a_unit_mentions_decides(text: str, suffices: bool) -> None:
    short = '# 1 "/kjit_rtc/std/type_traits" 1 3\nnamespace std { using ::size_t; }\n# 2 "op.cu" 2\n'
    unit = f'# 1 "op.cu"\n{short}{text}\n'
    assert short_headers.are_read(unit)
    assert short_headers.suffice(unit) == suffices


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("#include <kjit/tensor.h>\n#include <cstdint>\n #  include <cuda_bf16.h>\n#include <limits>\n", True),
        ("#include <cmath>\n#include <tvm/ffi/c_api.h>\n", True),
        ("#include <cstdint>\n#include <vector>\n", False),
        ("#include <tvm/ffi/function.h>\n", False),
    ],
)
def test_a_source_that_includes_more_is_preprocessed_only_once(text: str, may: bool, tmp_path: Path) -> None:
    (tmp_path / "op.cuh").write_text(text)
    assert short_headers.may_suffice(str(tmp_path / "op.cuh")) == may


def test_type_traits_of_other_libraries_are_not_gccs() -> None:
    unit = (
        '# 1 "/kjit_rtc/std/type_traits" 1 3\n# 1 "/nvidia/cccl/cuda/std/type_traits" 1 3\n# 1 "/own/type_traits" 1\n'
    )
    assert short_headers.are_read(unit)


def test_gccs_header_after_the_short_one_is_noticed() -> None:
    unit = '# 1 "/kjit_rtc/std/type_traits" 1 3\n# 1 "/usr/include/c++/12/type_traits" 1 3\n'
    assert not short_headers.are_read(unit)
