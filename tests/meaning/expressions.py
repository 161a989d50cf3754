"""Expressions of many kinds whose values both compilers have to agree on; the same ones in each run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structs
from structs import split

HEADERS = "".join(
    f"#include <{name}>\n"
    for name in (
        *("algorithm", "array", "bit", "cassert", "cctype", "cerrno", "cfloat", "charconv", "chrono", "cinttypes"),
        *("climits", "cmath", "complex", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "ctime", "functional"),
        *("limits", "map", "memory", "numbers", "numeric", "optional", "ratio", "span", "string", "string_view"),
        *("tuple", "type_traits", "utility", "variant", "vector", "endian.h", "limits.h", "math.h", "stdint.h"),
        *("cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h"),
    )
)

BITS = """struct Bits { unsigned a : 3; int b : 5; long long c : 40; };
constexpr Bits bits{5, -3, 1ll << 33};
"""

BEFORE = """
namespace mine {
constexpr int operator""_km(unsigned long long n) { return (int)n * 1000; }
constexpr double operator""_half(long double x) { return (double)x / 2; }
constexpr unsigned long operator""_len(const char*, unsigned long n) { return n; }
constexpr int operator""_char(char c) { return c + 1; }
constexpr const char* of(int) { return "int"; }
constexpr const char* of(long) { return "long"; }
constexpr const char* of(unsigned) { return "unsigned"; }
constexpr const char* of(float) { return "float"; }
constexpr const char* of(double) { return "double"; }
constexpr const char* of(long double) { return "long double"; }
constexpr const char* of(const void*) { return "pointer"; }
constexpr const char* pick(int) { return "int"; }
constexpr const char* pick(long) { return "long"; }
constexpr const char* pick(int*) { return "pointer"; }
constexpr const char* pick(bool) { return "bool"; }
constexpr const char* pick(...) { return "any"; }
template <typename T> constexpr const char* kind(T) { return sizeof(T) == 4 ? "four" : "other"; }
template <typename T> constexpr const char* kind(T*) { return "pointer"; }
template <auto kValue> struct Held { static constexpr auto value = kValue; char of[(kValue) ? 3 : 5]; };
template <typename T, typename = void> constexpr bool has_size = false;
template <typename T> constexpr bool has_size<T, decltype(void(T{}.size()))> = true;
struct Counted { int n; constexpr Counted(int n) : n(n) {} constexpr operator int() const { return n; } };
template <typename... T> std::string chars_of(T... values) {
  char text[40];
  return std::string(text, std::to_chars(text, text + 40, values...).ptr);
}
template <typename... T> std::string printed_as(const char* form, T... values) {
  char text[99];
  return std::string(text, snprintf(text, 99, form, values...));
}
template <typename... T> constexpr int count_of(T...) { return sizeof...(T); }
}
using namespace mine;
using namespace std::literals;
"""

TRAITS = split(r"""
    is_void   is_integral   is_floating_point   is_array   is_pointer   is_enum   is_class   is_union
    is_arithmetic   is_fundamental   is_scalar   is_object   is_compound   is_const   is_trivial   is_pod
    is_trivially_copyable   is_standard_layout   is_empty   is_polymorphic   is_abstract   is_final
    is_aggregate   is_signed   is_unsigned   is_default_constructible   is_copy_constructible
    is_trivially_default_constructible   is_trivially_copy_constructible   is_nothrow_move_constructible
    is_copy_assignable   is_trivially_copy_assignable   is_trivially_destructible   is_nothrow_destructible
    has_virtual_destructor   has_unique_object_representations   is_swappable   is_nothrow_swappable
    is_nothrow_default_constructible   is_move_assignable   is_null_pointer   is_member_pointer
""")
PAIR_TRAITS = ("is_same", "is_convertible", "is_constructible", "is_assignable", "is_base_of", "is_nothrow_convertible")
LIMITS = split(r"""
    is_specialized   is_signed   is_integer   is_exact   has_infinity   has_quiet_NaN   has_denorm   round_style
    is_iec559   is_bounded   is_modulo   digits   digits10   max_digits10   radix   min_exponent
    min_exponent10   max_exponent   max_exponent10   traps   tinyness_before   min()   max()   lowest()
    epsilon()   round_error()   infinity()   quiet_NaN()   denorm_min()
""")
LIMIT_TYPES = (*structs.SCALARS[:20], "long double", "const int", "volatile double", "__half", "types::Small", "int*")

UNARY = split(r"""
    sqrt   cbrt   exp   exp2   expm1   log   log2   log10   log1p   sin   cos   tan   asin   acos   atan   sinh
    cosh   tanh   asinh   acosh   atanh   erf   erfc   tgamma   lgamma   ceil   floor   trunc   round   lround
    llround   rint   lrint   llrint   nearbyint   fabs   abs   logb   ilogb   isnan   isinf   isfinite   signbit
    isnormal   fpclassify
""")
BINARY = split(r"""
    pow   fmax   fmin   fmod   remainder   atan2   hypot   copysign   fdim   nextafter   isgreater   isless
    isunordered
""")
OF_C = split(r"""
    sqrtf   expf   fabsf   floorf   rsqrtf   sinpif   cospi   exp10   exp10f
""")
OF_C += ("erfinv", "normcdf", "rcbrt", "j0", "y1f", "sqrtl", "labs", "llabs")
NUMBERS = split(r"""
    0   1   2   -3   7u   2l   5ull   (short)4   'a'   true   0.0f   -0.0f   0.5f   2.5f   -1.5f   1e30f   0.0
    -0.0   0.5   2.5   -1.5   1e-310   1e300   NAN   -NAN   (double)NAN   INFINITY   -(double)INFINITY   2.5L
    HUGE_VAL   M_PI   FLT_MAX   DBL_MIN   INT_MIN   UINT_MAX
""")

OF_GNU = (
    *(
        f"__builtin_constant_p({each})"
        for each in (
            *("1", "1 + 2", '"text"', "NULL", "nullptr", "bits.a", "sizeof(int)", "1.5", 'getenv("HOME")'),
            *("(int)getpid_like", "&getpid_like", '__builtin_strlen("abc")', "1 / 2.0", "(long)&getpid_like"),
        )
    ),
    *split(r"""
    __real__ 1.0   ({ int x = 3; x * 2; })   1 ?: 2   __builtin_object_size("abc", 0)
    __builtin_object_size(&bits, 0)
"""),
    *(f"__builtin_classify_type({each})" for each in ("1.0", "1", "&bits")),
    *split(r"""
    [] { struct { char of[__builtin_constant_p(1) ? 3 : 5]; } s; return sizeof(s); }()   sizeof(_Float32)
    [] { switch (4) { case 1 ... 5: return 7; } return 6; }()   (_Float64)1.5
    __builtin_constant_p(NULL) + sizeof(NULL)
"""),
)
"""What NVRTC lacks: where kjit refuses such an expression, it is not compared."""

BUILTINS = (
    *(
        f"__builtin_{name}({value})"
        for name, values in {
            **dict.fromkeys(("clz", "ctz", "popcount", "parity", "ffs", "clrsb"), ("1u", "40000u", "0x80000000u")),
            **dict.fromkeys(("clzl", "ctzl", "popcountl", "clzll", "ctzll", "ffsll", "parityll"), ("1", "1ull << 40")),
            "bswap16": ("0x1234",),
            "bswap32": ("0x12345678",),
            "bswap64": ("0x123456789abcdef0ull",),
            "bswap128": ("(unsigned __int128)1",),
            "strlen": ('"four"', '""', '"a\\0b"', 'R"(a\\n)"'),
            "abs": ("-3", "2"),
            "labs": ("-3l",),
            **dict.fromkeys(("fabsf", "sqrtf", "floorf", "isnan", "isinf_sign", "signbit"), ("-2.5f", "2.5", "-0.0")),
            **dict.fromkeys(("huge_val", "huge_valf", "inf", "inff"), ("",)),
            **dict.fromkeys(("nan", "nanf", "nansf"), ('""', '"0x7"')),
            "expect": ("3, 4",),
            "memcmp": ('"abc", "abd", 3',),
            "strcmp": ('"abc", "abc"',),
            "strchr": ("\"abc\", 'b'",),
            "fpclassify": ("1, 2, 3, 4, 5, 0.0", "1, 2, 3, 4, 5, 1e-310", "FP_NAN, 2, 3, 4, 5, NAN"),
            "isgreater": ("1.0, 2.0f", "NAN, 1.0"),
            "pow": ("2.0, 0.5",),
            "copysign": ("1.0, -0.0",),
            "nextafter": ("1.0, 2.0",),
            "offsetof": ("types::Base, tail", "types::Mixed, words[1]"),
            "add_overflow_p": ("1, 2, 0", "2147483647, 1, 0"),
            "mul_overflow_p": ("100000, 100000, 0", "100000ll, 100000, 0ll"),
            "is_constant_evaluated": ("",),
            "LINE": ("",),
        }.items()
        for value in values
    ),
    *split(r"""
    __is_trivially_copyable(types::Base)   __is_empty(types::Empty)   __is_pod(int)   __has_trivial_copy(int)
    __is_same(int, signed)   __underlying_type(types::Small)(3)   __alignof__(long double)   __extension__ 3
    __func__   __FUNCTION__   __PRETTY_FUNCTION__   (__typeof__(1.0f))3   sizeof(__func__)
    __builtin_LINE() > 0   __LINE__   __builtin_FILE()   __FILE__   __builtin_FUNCTION()
    (int)alignof(max_align_t)   __INCLUDE_LEVEL__   __BASE_FILE__   sizeof(__DATE__)
"""),
)

_DIGITS = ("1'024", "0x1'0000'0000", "0b1010'0101", "0'17", "1'0.2'5", "1'000'000'007", "0xdead'beefu", "1'0e1'0")
_SUFFIXES = ("", "u", "l", "ul", "ll", "ull", "LLU", "uL")
_CODE = split(r"""
    <<<1, 2>>>   some_kernel<<<1, 2>>>(x);   __global__   __device__ void f() {}   // no comment   /* none */
    it's   __global__ void k(int* x) { *x = 1; }   #define X 1   extern __shared__ int s[];
    __launch_bounds__(1)   __NVCC__   __CUDA_ARCH__   }   {   )   __host__ __device__ int f();   1'024   %%s
    template <typename T> __global__ void g(T);   asm volatile(x)   namespace {   __shared__ float tile[32];
    NULL   __builtin_constant_p(1)   # 1 x.h   __noinline__
""")
REFUSED_WORDS = ("cudaMemcpyToSymbol(a, b)", "__managed__ int m;", "__constant__ int c;", "cudaGetSymbolAddress", "<<<")
"""In code, each of them is, or once was, a reason to leave a unit to nvcc."""

LITERALS = (
    *_DIGITS,
    *(
        f"{digits}{suffix}"
        for digits in ("42", "0x7fffffff", "4'294'967'296", "0x8000'0000", "0b1", "017")
        for suffix in _SUFFIXES
    ),
    *split(r"""
    1.5   1.5f   1.5L   0x1.8p3   0x1.8p-3f   1e-400   3.4028236e38f   .5   5.   1e1000   0x.8p1L   'a'   '\''
    '"'   '\x41'   '\101'   'ab'   '\n'   u8'a'   u'\u00e9'   U'\U0001F600'   L'x'
"""),
    *(f'"{text}"' for text in _CODE),
    *(f'R"({text})"' for text in _CODE if ")" not in text),
    *(f'R"x({text})x"' for text in _CODE),
    *(f'sizeof("{text}")' for text in _CODE),
    *(f'u8"{text}"' for text in _CODE[:9]),
    *(f'sizeof(L"{text}")' for text in _CODE[:9]),
    *(f'"{one}" "{two}"' for one, two in itertools.pairwise(_CODE)),
    *(f"'{text}' + 1'0 + '{text}'" for text in ("(", "{", "<", "/", "a", "\\\\", '\\"')),
    *(f'"a" /* "{text}" */ "b"' for text in _CODE if "*/" not in text),
    *split(r"""
    "a\"b"   "\\"   "a" "b"   "tab\there"   "\x41" "1"   "nul\0in"   sizeof("nul\0in")   ""   R"()"
    R"delim(a)" b)delim"   sizeof(u"abc")   sizeof(U"abc")   u8R"(a\b)"   "\u00e9"   "\U0001F600"   12_km
    1'2_km   1.5_half   "text"_len   "<<<>>>"_len   'c'_char   ("ab"s + "cd").c_str()   "abc"sv.size()
    (150ms).count()   (2h + 30min).count()   (1'500us).count()   std::chrono::seconds(1min).count()
    true and false   true or false   not true   5 bitand 4   5 bitor 2   5 xor 1   compl 5   1 not_eq 2
    nullptr   (const void*)NULL   sizeof(NULL)   sizeof(nullptr)   noexcept(some_kernel)   sizeof('a')
"""),
)

_OVERLOADED = split(r"""
    0   1   1l   1ul   1u   NULL   nullptr   'a'   u8'a'   L'a'   true   1.0f   1.0   1.0L   0.0f   (short)1
    M_PI   INFINITY   NAN   HUGE_VAL   FLT_MAX   DBL_MAX   sizeof(int)   INT_MAX   UINT_MAX   LONG_MAX
    CHAR_MAX   EOF   RAND_MAX   1'000   types::kPlain   types::Small::kOne   warpSize_like   sqrt(2.0f)
    sqrt(2)   std::sqrt(2.0f)   exp(1.0f)   pow(2.0f, 3)   pow(2.0f, 3.0f)   std::pow(2.0f, 3)   abs(-1.0f)
    abs(-1)   abs(-1l)   std::abs(-1.5)   max(1, 2u)   max(1.0f, 2.0)   min(1l, 2l)   fabs(1.0f)   floor(1.5f)
    fmax(1.0f, 2.0f)   fmod(5.0f, 2)   std::max(1, 2)   __builtin_sqrtf(2)   true ? 1 : 2.0f   +'a'   1 + 1u
    1 + 1ul   1.0f * 2   1.0f * 2.0   1 << 3l   ~0u   !0   -true   (float)1   0x80000000
""")
OVERLOADS = (
    *(f"of({value})" for value in _OVERLOADED if value != "types::Small::kOne"),
    *(f"kind({value})" for value in _OVERLOADED),
    *(f"pick({value})" for value in (*_OVERLOADED[:3], *_OVERLOADED[4:11], "(short)1", "1'000", "types::kPlain")),
    *(f"count_of({a}, {b})" for a, b in itertools.pairwise(_OVERLOADED)),
    *(f"sizeof({value})" for value in _OVERLOADED),
)

STD = (
    *split(r"""
    std::optional<int>(3).value()   std::optional<int>().has_value()   std::make_tuple(1, 'a', 2.5)
    std::get<2>(std::make_tuple(1, 'a', 2.5))   std::tuple_size_v<std::tuple<int, char>>
    std::variant<int, double>(2.5).index()   std::variant_size_v<std::variant<int, char>>
    std::pair(1, 2.5).second   std::make_pair(1, 'c') < std::make_pair(1, 'd')   std::array{1, 2, 3}.size()
    std::ratio<6, 4>::num   std::ratio_add<std::milli, std::ratio<1, 3>>::den   std::giga::num
    std::chrono::seconds::period::den
    std::chrono::duration_cast<std::chrono::minutes>(std::chrono::hours(3)).count()
    std::chrono::milliseconds::max().count()
"""),
    *(
        f"std::hash<{kind}>()({value})"
        for kind, value in (
            ("int", "42"),
            ("long", "-1l"),
            ("unsigned", "7"),
            ("char", "'a'"),
            ("bool", "true"),
            ("double", "2.5"),
            ("double", "-0.0"),
            ("std::string", '"text"'),
            ("std::string_view", '"text"'),
            ("float", "1.5f"),
        )
    ),
    *(f"std::to_string({value}).c_str()" for value in ("1", "-2l", "2.5", "2.5f", "1'000'000ull", "1e10")),
    *split(r"""
    std::string(3, 'x').append("yz").c_str()   std::string("abc").substr(1).c_str()
    std::stoi("0x1f", nullptr, 16)   std::stod("2.5e3")   chars_of(12345, 16).c_str()   chars_of(-7).c_str()
    chars_of(0.1).c_str()   chars_of(1e300f * 2).c_str()
    [] { int x = 0; std::from_chars("123", "123" + 3, x); return x; }()
    printed_as("%5.2f|%x|%s", 2.345, 255, "<<<").c_str()   std::numbers::pi   std::numbers::e_v<float>
    std::gcd(12, 18)   std::lcm(4, 6)   std::midpoint(1, 4)   std::lerp(1.0f, 2.0f, 0.5f)
    std::bit_cast<unsigned>(1.5f)   std::popcount(255u)   std::countl_zero(1u)   std::rotl(1u, 31)
    std::bit_width(1000u)   std::has_single_bit(64u)   std::endian::native == std::endian::little
    (int)std::endian::native   std::byte{3} | std::byte{4}   std::clamp(5, 1, 3)
    std::abs(std::complex<float>(3, 4))   std::norm(std::complex<double>(1, 2))
    std::real(std::polar(2.0, 0.5))   std::exp(std::complex<double>(0, 1)).real()
    std::accumulate("abc", "abc" + 3, 0)   std::span<const int>(std::array<int, 4>{}).size()
    std::vector<int>{1, 2, 3}.size()   std::vector<bool>(3).size()   std::map<int, int>{{1, 2}}.at(1)
    std::is_same_v<std::size_t, unsigned long>   std::is_same_v<std::int64_t, long>
    std::is_same_v<std::common_type_t<int, float>, float>
    std::is_same_v<std::make_unsigned_t<char>, unsigned char>   std::fpclassify(0.0f)   std::isnan(NAN)
    std::signbit(-0.0)   std::fmax(NAN, 1.0)   std::max(NAN, 1.0f)   std::min(1.0, (double)NAN)
    std::hypot(1.0, 2.0, 3.0)   std::div(7, 2).rem   div(7l, 2l).quot   std::ldexp(1.5f, 3)
    std::scalbn(1.0, 4)   std::fma(2.0f, 3.0f, 1.0f)   std::tolower('A')   std::isalpha('a') != 0
    std::strlen("abc")   std::plus<>()(1, 2.5f)   std::greater<int>()(1, 2)
    std::invoke([](auto x) { return x * 2; }, 2.5f)
    std::apply([](int a, char b) { return a + b; }, std::make_tuple(1, 'a'))   has_size<std::string>
    has_size<int>   [](auto... x) { return (x + ...); }(1, 2u, 3.0f)
    []<typename T>(T) { return sizeof(T); }('a')   std::is_constant_evaluated()
    std::is_invocable_v<decltype(&abs_like), int>   std::is_invocable_v<decltype(some_kernel), int*>
    std::is_same_v<decltype(some_kernel), void(int*)>   std::is_function_v<decltype(some_kernel)>
    __half2float(__float2half(0.1f))   __half_as_ushort(__float2half(65519.0f))
    __bfloat16_as_ushort(__float2bfloat16(0.1f))   float(__nv_fp8_e4m3(0.3f))   (float)__half(1.5)
    make_float4(1, 2, 3, 4).z   make_int2(1, 2).y   dim3(2, 3).z   sizeof(dim3)   uint3{1, 2, 3}.y
    (int)cudaErrorMemoryAllocation   cudaGetErrorName(cudaSuccess)   CUDART_VERSION   bits.a   bits.b   bits.c
    sizeof(bits)   Counted(3) + 1   Held<3>::value   sizeof(Held<0>)   Held<'a'>::value   sizeof(Held<1'024>)
    Held<nullptr>::value   Held<&bits>::value->a
"""),
)

CONDITIONS = split(r"""
    __BYTE_ORDER == __BIG_ENDIAN   __BYTE_ORDER == __LITTLE_ENDIAN   BYTE_ORDER == BIG_ENDIAN
    ULONG_MAX > 0xffffffffUL   __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__   LONG_MAX > INT_MAX   __WORDSIZE == 64
    SIZE_MAX > 0xffffffff   CHAR_MIN < 0   defined(__NVCC__)   defined(__CUDACC__)   defined(__CUDACC_RTC__)
    defined(__CUDA_ARCH__)   __CUDA_ARCH__ >= 900   __CUDACC_VER_MAJOR__ >= 13   __CUDACC_VER_BUILD__ == 0
    __CUDACC_VER_BUILD__ > 80   CUDART_VERSION >= 13000   defined(CUDA_VERSION)   defined(__GNUC__)
    __GNUC__ >= 12   defined(__clang__)   defined(__EDG__)   defined(_MSC_VER)   defined(__INTEL_COMPILER)
    defined(__linux__)   defined(__unix__)   defined(__x86_64__)   defined(__aarch64__)   defined(__LP64__)
    defined(_LP64)   defined(__GLIBC__)   defined(_GNU_SOURCE)   defined(__USE_GNU)   defined(__GLIBCXX__)
    defined(_LIBCPP_VERSION)   defined(__EXCEPTIONS)   defined(__GXX_RTTI)   defined(__cpp_rtti)
    __cplusplus >= 202002L   __cplusplus > 202002L   defined(__STRICT_ANSI__)   defined(__OPTIMIZE__)
    defined(__SIZEOF_INT128__)   defined(__FLT16_MAX__)   defined(__SIZEOF_FLOAT128__)   defined(NDEBUG)
    defined(_OPENMP)   defined(__AVX2__)   defined(__SSE2__)   defined(M_PI)   defined(INFINITY)   defined(NAN)
    defined(NULL)   defined(EOF)   defined(RAND_MAX)   defined(EXIT_FAILURE)   defined(PATH_MAX)
    defined(assert)   defined(__CUDA_ARCH_LIST__)   defined(__CUDA_ARCH_FEAT_SM90_ALL)
    defined(__CUDA_ARCH_SPECIFIC__)   defined(__CUDACC_RELAXED_CONSTEXPR__)
    defined(__CUDACC_EXTENDED_LAMBDA__)   defined(__CUDACC_DEBUG__)   defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
    defined(__CUDACC_DEVICE_ATOMIC_BUILTINS__)   defined(__global__)   defined(__device__)   defined(__host__)
    defined(__shared__)   defined(__launch_bounds__)   defined(__forceinline__)   defined(__align__)
    defined(__PIC__)   defined(__pic__)   defined(__FAST_MATH__)   defined(CUDA_DOUBLE_MATH_FUNCTIONS)
    defined(__USE_FAST_MATH__)   __GNUC_MINOR__ == 2   __has_include(<cuda_fp16.h>)   __has_include(<none.h>)
    __has_include(<nvrtc.h>)   __has_include(<bits/c++config.h>)   __has_include(<sys/mman.h>)
    __has_builtin(__builtin_expect)   __has_builtin(__builtin_bit_cast)   __has_builtin(__builtin_assume)
    __has_builtin(__nvvm_get_smem_pointer)   defined(__has_feature)   __has_attribute(aligned)
    __has_cpp_attribute(nodiscard)   __has_cpp_attribute(no_unique_address)   __has_cpp_attribute(assume)
    __cpp_concepts >= 201907L   __cpp_lib_span >= 202002L   __cpp_lib_bit_cast >= 201806L
    __cpp_constexpr >= 201907L   defined(__cpp_exceptions)   defined(__cpp_lib_format)   1'000 == 1000
    'a' == 97   '\377' < 0   -1 > 0u   0x7fffffffffffffff + 1u > 0   __LINE__ > 0
    defined __cplusplus && !defined __OBJC__   true   (2 || 1 / 0)
""")

_ATOMS = split(r"""
    1   -1   0   7u   1'000   0x80000000   1ull << 40   'a'   true   sizeof(long double)   INT_MAX   UINT_MAX
    LONG_MIN   CHAR_BIT   alignof(double)   sizeof(NULL)   __WORDSIZE   __BYTE_ORDER   (short)-1
    (unsigned char)300   __builtin_popcount(77u)   sizeof(types::Base)   (int)types::Small::kLast   RAND_MAX
    EOF   bits.b   Held<5>::value   12_km   std::numeric_limits<int>::digits   (int)sizeof(dim3)
    count_of(1, 2)   L'x'   std::is_signed_v<char>   std::is_same_v<long, std::int64_t>   FLT_DIG   __GNUC__
    CUDART_VERSION   EXIT_FAILURE
""")
_OPERATORS = split(r"""
    +   -   *   &   |   ^   <   >   <=   ==   !=   &&   ||
""")


def integers(seed: int, count: int) -> Iterable[str]:
    """Random integral constant expressions."""
    rng = random.Random(seed)

    def drawn(depth: int) -> str:
        if depth == 0:
            return rng.choice(_ATOMS)
        kind = rng.random()
        if kind < 0.15:
            return f"({drawn(depth - 1)} ? {drawn(depth - 1)} : {drawn(depth - 1)})"
        if kind < 0.3:
            return f"({rng.choice(['int', 'unsigned', 'short', 'long long', 'char', 'bool'])})({drawn(depth - 1)})"
        if kind < 0.4:
            return f"({rng.choice(['~', '!', '+'])}({drawn(depth - 1)}))"
        if kind < 0.5:
            return f"(({drawn(depth - 1)}) {rng.choice(['>>', '/', '%'])} {rng.randint(1, 30)})"
        if kind < 0.6:
            return f"sizeof(char[(({drawn(depth - 1)}) ? 3 : 7)])"
        # Unsigned and wide, so that none overflows.
        return f"((unsigned long long)({drawn(depth - 1)}) {rng.choice(_OPERATORS)} (unsigned long long)({drawn(depth - 1)}))"

    return [drawn(rng.randint(1, 3)) for _ in range(count)]


def in_contexts(expressions: Sequence[str]) -> list[str]:
    """Integral constant expressions where a compiler has to fold them."""
    forms = (
        "sizeof(char[({0}) ? 3 : 7])",
        "sizeof(Held<(({0}) != 0)>)",
        "Held<(({0}))>::value",
        "[] {{ enum {{ kValue = (int)({0}) }}; return (int)kValue; }}()",
        "[] {{ constexpr auto value = ({0}); return value; }}()",
        "[] {{ if constexpr (({0}) != 0) return 'y'; else return 1; }}()",
        "[] {{ switch (1) {{ case (int)(({0}) != 0): return 5; }} return 6; }}()",
        "[] {{ static const auto value = ({0}); return value; }}()",
        "[] {{ struct {{ int a : (({0}) ? 3 : 9); }} s{{-1}}; return s.a; }}()",
    )
    return [forms[number % len(forms)].format(each) for number, each in enumerate(expressions)]


def sizes(drawn: Sequence[structs.Struct]) -> list[str]:
    """Sizes, alignments and places of members, of types that are always the same and of random ones."""
    found = [f"{what}({each})" for each in structs.TYPES for what in ("sizeof", "alignof")]
    for each in drawn:
        found += [f"sizeof({each.name})", f"alignof({each.name})"]
        found += [f"__builtin_offsetof({each.name}, {member})" for member in each.members]
        found += [f"sizeof({each.name}::{member})" for member in each.members]
    return found


def traits(drawn: Sequence[structs.Struct]) -> list[str]:
    """Traits of types and of pairs of them."""
    types = [*structs.TYPES, "void", "int&", "int&&", "const int", "int[3]", *(each.name for each in drawn)]
    types += ["types::Virtual", "decltype([] { return 1; })", "std::string", "std::unique_ptr<int>", "cudaError_t"]
    one = [f"std::{trait}_v<{each}>" for each in types if each != "void" for trait in TRAITS]
    rng = random.Random(7)
    pairs = [
        f"std::{rng.choice(PAIR_TRAITS)}_v<{rng.choice(types)}, {rng.choice(types)}>" for _ in range(len(types) * 5)
    ]
    return one + pairs


def limits() -> list[str]:
    """`std::numeric_limits`, and the macros of the C headers."""
    found = [f"std::numeric_limits<{each}>::{member}" for each in LIMIT_TYPES for member in LIMITS]
    kinds = ("CHAR", "SCHAR", "SHRT", "INT", "LONG", "LLONG", "INT8", "INT16", "INT32", "INT64", "INTPTR", "INTMAX")
    found += [f"{kind}_{which}" for kind in (*kinds, "PTRDIFF", "WCHAR", "WINT") for which in ("MIN", "MAX")]
    found += [f"U{kind}_MAX" for kind in kinds if kind != "SCHAR"] + ["SIZE_MAX", "CHAR_BIT", "MB_LEN_MAX", "PATH_MAX"]
    places = ("MAX", "MIN", "EPSILON", "DIG", "MANT_DIG", "MAX_EXP", "MIN_10_EXP", "TRUE_MIN", "DECIMAL_DIG")
    return found + [f"{kind}_{place}" for kind in ("FLT", "DBL", "LDBL") for place in places]


def math() -> list[str]:
    """Functions of numbers: values and types, for each kind of argument."""
    one = [f"{prefix}{name}({x})" for name in UNARY for x in NUMBERS for prefix in ("", "std::")]
    one = [
        each
        for each in one
        if not (each.removeprefix("std::").startswith("abs(") and ("u" in each[-4:] or "UINT" in each))
    ]
    rng = random.Random(11)
    two = [
        f"{rng.choice(['', '', 'std::'])}{name}({x}, {y})"
        for name in BINARY
        for x, y in itertools.product(NUMBERS, NUMBERS)
    ]
    # CUDA's own, for two whole numbers or two others.
    kinds = (("0", "1", "2", "-3", "7u", "2l", "5ull", "UINT_MAX"), [each for each in NUMBERS if _is_of_cuda(each)])
    two += [f"{name}({x}, {y})" for name in ("max", "min") for kind in kinds for x, y in itertools.product(kind, kind)]
    whole = ("fabsf", "sqrtf", "expf", "floorf", "rsqrtf", "sinpif", "exp10f", "y1f", "sqrtl", "labs", "llabs")
    of_c = [f"{name}({x})" for name in OF_C for x in NUMBERS if name in whole or _is_of_cuda(x)]
    constants = ["M_PI", "M_E", "M_SQRT2", "M_LN2", "M_PI_2", "M_1_PI", "INFINITY", "NAN", "HUGE_VAL", "HUGE_VALF"]
    constants += [
        "FP_NAN",
        "FP_ILOGB0",
        "MATH_ERRNO",
        "math_errhandling",
        "M_PIf",
        "M_PIl",
        "MAXFLOAT",
        "-NAN",
        "NAN + 1",
    ]
    return constants + one + rng.sample(two, len(two) // 4) + of_c


def _is_of_cuda(number: str) -> bool:
    """Whether a number is a float or a double, for which CUDA has functions of its own."""
    return (
        any(mark in number for mark in (".", "e3", "NAN", "INF", "HUGE", "FLT", "DBL", "PI")) and "L" not in number[-1:]
    )


def conditions() -> tuple[str, list[str]]:
    """The text that sets a constant by each condition of the preprocessor, and the constants; with text beside them
    that only one side has."""
    text = [
        f"#if {each}\nconstexpr int condition_{number} = 1; struct Chosen{number} {{ int a, b; }};\n#else\n"
        f"constexpr int condition_{number} = 0; struct Chosen{number} {{ char c; }};\n#endif"
        for number, each in enumerate(CONDITIONS)
    ]
    names = [f"condition_{number} /* {each} */" for number, each in enumerate(CONDITIONS)]
    return "\n".join(text), names + [f"sizeof(Chosen{number})" for number in range(len(CONDITIONS))]


@dataclass(frozen=True)
class Category:
    """Expressions of one kind.

    Attributes:
        is_constant: whether they are also evaluated for the device, in constant expressions.
    """

    name: str
    expressions: tuple[str, ...]
    is_constant: bool = False

    def sample(self, count: int) -> tuple[str, ...]:
        """Some of them, the same ones in each run."""
        return tuple(random.Random(self.name).sample(self.expressions, min(count, len(self.expressions))))


_DRAWN = structs.draw_many(seed=1, count=30)
_CONDITIONS, _CHOSEN = conditions()

PREPARED = "\n".join(
    [
        HEADERS,
        structs.INCLUDES,
        structs.definitions(_DRAWN),
        "static int getpid_like = 3;\nstatic int abs_like(int x) { return x; }\nconstexpr int warpSize_like = 32;",
        BITS,
        BEFORE,
        _CONDITIONS,
    ]
)
"""The text before the expressions of all categories."""

CATEGORIES = (
    Category("sizes", tuple(sizes(_DRAWN)), is_constant=True),
    Category("traits", tuple(traits(_DRAWN)), is_constant=True),
    Category("limits", tuple(limits()), is_constant=True),
    Category("builtins", BUILTINS, is_constant=True),
    Category("literals", LITERALS, is_constant=True),
    Category("math", tuple(math())),
    Category("overloads", OVERLOADS),
    Category("std", STD),
    Category("conditions", tuple(_CHOSEN), is_constant=True),
    Category("integers", tuple(integers(3, 1500)), is_constant=True),
    Category(
        "contexts",
        tuple(in_contexts([*integers(4, 600), *(f"condition_{n}" for n in range(len(CONDITIONS)))])),
        is_constant=True,
    ),
)
