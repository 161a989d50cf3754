"""kjit_rtc/device.h: GCC's traits and builtins that NVRTC lacks mean what the C++ library's do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kjit.engine.compile import device_compiler
from kjit.engine.toolchain.build_flags import device_half_flags, nvrtc_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import CudaArch, Spec, Target

TYPES = """
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
struct S { int f(int) noexcept; int g() const; int m; };
struct D : S {};
struct V : virtual S {};
struct Abstract { virtual void f() = 0; };
struct Explicit { explicit Explicit(int); };
struct From { From(int) noexcept; From(long); operator int&(); };
struct NoMove { NoMove(); NoMove(NoMove&&) = delete; };
struct Function { void operator()(int) noexcept; void operator()(long, int) const; NoMove operator()(); };
struct ToValue { operator S(); };
struct ToReference { operator S&(); };
struct Incomplete;
enum E { e0 };
enum class C : char { c0 };
enum B : bool { b0 };
using F = int(int);
using FConst = int(int) const;
using FNoexcept = void() noexcept;
"""

_ALL = """
int | const int | volatile int | const volatile int | void | const void | int& | const int& | int&& | int*
int*const | int[] | int[3] | const int[3][4] | int[][2] | int(&)[2] | S | const D | E | const C | B | F | FConst
FNoexcept | F* | F& | int S::* | int S::*const | decltype(&S::f) | decltype(&S::g) | FConst S::*volatile
decltype(nullptr) | Abstract | NoMove | From | From& | std::string | const char* | Explicit | Function
const Function& | std::reference_wrapper<Function>
"""
_ARGUMENTS = """
, int | , S | , S& | , const S* | , S&, int | , D&&, int | , V&, int | , S*, int | , std::reference_wrapper<D>
, long, int | , int* | , const std::reference_wrapper<const S>&, int | , std::unique_ptr<D>, int
, S, std::string
"""
ALL = [each.strip() for line in _ALL.split("\n") for each in line.split(" | ") if each]
ARGUMENTS = ["", *(each for line in _ARGUMENTS.split("\n") for each in line.split(" | ") if each)]
_SAME = "array const volatile reference pointer member_pointer member_object_pointer member_function_pointer object"

OTHERS = """
static_assert(__is_scoped_enum(C) && __is_scoped_enum(const C));
static_assert(!__is_scoped_enum(E) && !__is_scoped_enum(B) && !__is_scoped_enum(int) && !__is_scoped_enum(S));
static_assert(__is_bounded_array(int[3]) && !__is_bounded_array(int[]) && !__is_bounded_array(int*));
static_assert(__is_unbounded_array(int[][2]) && !__is_unbounded_array(int[2]));
static_assert(__is_nothrow_convertible(int, From) && !__is_nothrow_convertible(long, From));
static_assert(__is_nothrow_convertible(void, const void) && !__is_nothrow_convertible(int, void));
static_assert(__is_invocable(Incomplete(*)(int), int) && !__is_invocable(Incomplete(*)(int), S));
template <unsigned long kIndex, typename... Types>
using At = __type_pack_element<kIndex, Types...>;
static_assert(std::is_same<At<0, int&>, int&>::value && std::is_same<At<2, int, char, void, S>, void>::value);

static_assert(__reference_converts_from_temporary(const int&, int) && __reference_converts_from_temporary(int&&, long));
static_assert(__reference_converts_from_temporary(const S&, D) && __reference_converts_from_temporary(S&&, ToValue&));
static_assert(__reference_converts_from_temporary(const std::string&, const char*));
static_assert(!__reference_converts_from_temporary(const S&, D&) && !__reference_converts_from_temporary(int&, int&));
static_assert(!__reference_converts_from_temporary(const S&, ToReference));
static_assert(!__reference_converts_from_temporary(const int* const&, int*&));
static_assert(!__reference_converts_from_temporary(const S&, int) && !__reference_converts_from_temporary(int, int));
static_assert(__reference_constructs_from_temporary(const S&, D) && !__reference_constructs_from_temporary(S&, S&));

template <typename T>
constexpr bool counts_bits() {
  const int bits = 8 * sizeof(T);
  for (int i = 0; i < bits; ++i) {
    const T x = T(T(1) << i);
    if (__builtin_clzg(x) != bits - 1 - i || __builtin_ctzg(x) != i || __builtin_popcountg(T(x - 1)) != i) return false;
  }
  return __builtin_clzg(T(0), 77) == 77 && __builtin_ctzg(T(0), 78) == 78 && __builtin_popcountg(T(~T(0))) == bits;
}
static_assert(counts_bits<unsigned char>() && counts_bits<unsigned short>() && counts_bits<unsigned>());
static_assert(counts_bits<unsigned long>() && counts_bits<unsigned long long>() && counts_bits<unsigned __int128>());
"""


def unit() -> str:
    checks = [
        f"static_assert(__is_{name}({each}) == std::is_{name}<{each}>::value);"
        for name in _SAME.split()
        for each in ALL
    ]
    checks += [f"static_assert(__array_rank({each}) == std::rank<{each}>::value);" for each in ALL]
    checks += [
        f"static_assert(__is_convertible({source}, {to}) == std::is_convertible<{source}, {to}>::value);"
        for source in ALL
        for to in ALL[::3]
    ]
    checks += [
        f"static_assert(__is_{kind}({each}{more}) == std::is_{kind}<{each}{more}>::value);"
        for kind in ("invocable", "nothrow_invocable")
        for each in ALL
        for more in ARGUMENTS
    ]
    return "\n".join([TYPES, *checks, OTHERS])


def test_traits_mean_what_the_library_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvrtc")
    try:
        toolchain = Toolchain.for_target(Target.cuda("9.0"))
    except ToolchainError as error:
        pytest.skip(str(error))
    source, plain = tmp_path / "op.cu", tmp_path / "op.ii"
    nvrtc, arch, spec = toolchain.nvrtc, CudaArch.parse("9.0"), Spec("op", cuda_files=[source])
    if nvrtc is None:
        pytest.skip("NVRTC is not here")
    source.write_text(unit())
    flags = device_half_flags(toolchain, spec, arch)
    subprocess.run([toolchain.cxx.path, *flags, "-x", "c++", "-E", source, "-o", plain], check=True)
    words = (str(nvrtc.library), str(nvrtc.builtins), str(plain), str(tmp_path / "op.cubin"))
    done, said = device_compiler.compile_half(*words, nvrtc_flags(toolchain, spec, arch))
    assert done, said
