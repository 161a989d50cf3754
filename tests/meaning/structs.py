"""Random types: members of every kind, bit-fields, bases, alignment, packing."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass


def split(text: str) -> tuple[str, ...]:
    """What stands in the lines of a text, three spaces apart."""
    return tuple(filter(None, re.split(r"\s{3,}|\n", text)))


INCLUDES = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
"""

DEFINITIONS = """namespace types {
struct Empty {};
struct Other {};
struct Third : Empty {};
enum class Small : unsigned char { kOne = 1, kLast = 255 };
enum Plain { kPlain, kLater = 70000 };
enum class Wide : long long { kBig = 1ll << 40 };
union Mixed { char c; double d; int words[3]; };
struct Base { int base; char tail; };
struct Virtual { virtual int f() { return 1; } int held; };
template <typename T, int kCount> struct Many { T items[kCount]; bool is_last; };
template <typename A, typename B> struct Both { [[no_unique_address]] A a; [[no_unique_address]] B b; };
}
"""

SCALARS = split(r"""
    bool   char   signed char   unsigned char   short   unsigned short   int   unsigned   long   unsigned long
    long long   unsigned long long   float   double   wchar_t   char8_t   char16_t   char32_t   __int128
    unsigned __int128   void*   const int*   std::nullptr_t   std::size_t   std::int8_t   std::uint_fast16_t
    std::intmax_t   std::ptrdiff_t   std::byte
""")
CUDAS = (
    *(
        f"{kind}{count}"
        for kind in ("char", "uchar", "short", "int", "float", "longlong", "double")
        for count in "1234"
    ),
    *split(r"""
    dim3   uint3   __half   __half2   __nv_bfloat16   __nv_bfloat162   __nv_fp8_e4m3   __nv_fp8x4_e5m2
    cudaStream_t   cudaError_t   cudaExtent   cudaPos
"""),
)
NAMED = split(r"""
    types::Empty   types::Third   types::Small   types::Plain   types::Wide   types::Mixed   types::Base
    types::Many<char, 3>   types::Many<double, 2>   types::Many<types::Empty, 2>
    types::Both<types::Empty, int>   types::Both<types::Empty, types::Empty>
    types::Both<types::Empty, types::Other>   types::Both<types::Base, char>
    types::Many<types::Both<types::Third, short>, 5>   int types::Base::*   int (types::Base::*)(int)
    void (*)(int)
""")
STANDARD = split(r"""
    std::pair<int, char>   std::pair<char, double>   std::pair<types::Empty, int>   std::tuple<>
    std::tuple<int>   std::tuple<char, double, short>   std::tuple<types::Empty, int, types::Other>
    std::tuple<types::Empty, types::Empty>   std::optional<int>   std::optional<char>   std::optional<double>
    std::array<float, 5>   std::array<types::Empty, 3>   std::array<int, 0>   std::complex<float>
    std::complex<double>   std::optional<std::pair<int, char>>   std::tuple<std::array<char, 3>, float4>
""")
TYPES = (*SCALARS, *CUDAS, *NAMED, *STANDARD)
"""Types that a kernel's parameter can have and that a member can have."""


@dataclass(frozen=True)
class Struct:
    """A random struct: its definition, and its members that have an offset."""

    name: str
    definition: str
    members: tuple[str, ...]


def draw(rng: random.Random, name: str, known: list[Struct]) -> Struct:
    """A random struct, which may contain or derive from those that are known."""
    kind = rng.choice(["struct"] * 7 + ["union"])
    is_packed = rng.random() < 0.15
    bases = [] if kind == "union" or rng.random() < 0.5 else _bases(rng, known)
    lines, members = [], []
    for number in range(rng.randint(0 if bases else 1, 6)):
        member = f"m{number}"
        line, has_offset = _member(rng, member, known, is_packed, kind == "union")
        lines.append(f"  {line};")
        if has_offset:
            members.append(member)
    # Never less than a member's: compilers disagree on whether that is an error.
    least = [16, 32, 64] if not bases and not any("alignas" in line or " S" in line for line in lines) else []
    aligned = f"alignas({rng.choice([*least, 128])}) " if rng.random() < 0.2 and not is_packed else ""
    packed = "__attribute__((packed)) " if is_packed else ""
    head = f"{kind} {aligned}{packed}{name}{' : ' if bases else ''}{', '.join(bases)} {{"
    return Struct(name, "\n".join([head, *lines, "};"]), tuple(members))


def _bases(rng: random.Random, known: list[Struct]) -> list[str]:
    choices = ["types::Empty", "types::Other", "types::Third", "types::Base", "types::Many<char, 3>"]
    choices += [each.name for each in known if each.definition.startswith("struct")]
    picked = rng.sample(choices, rng.randint(1, 2))
    if "types::Empty" in picked and "types::Third" in picked:
        picked.remove("types::Empty")  # else it cannot be named
    return picked


def _member(rng: random.Random, name: str, known: list[Struct], is_packed: bool, is_of_union: bool) -> tuple[str, bool]:
    """A member's declaration, and whether it has an offset."""
    kind = rng.random()
    if kind < 0.2:
        holder, bits = rng.choice([("int", 31), ("unsigned", 32), ("unsigned char", 8), ("long long", 63), ("bool", 1)])
        if rng.random() < 0.15 and not is_of_union:
            return f"{holder} : 0", False
        return f"{holder} {name} : {rng.randint(1, bits)}", False
    if kind < 0.3 and not is_of_union:
        return f"[[no_unique_address]] {rng.choice(['types::Empty', 'types::Other', 'types::Third'])} {name}", True
    plain = (*SCALARS[:18], *CUDAS[:28], *NAMED[:10])
    choices = plain if is_packed or is_of_union else (*TYPES, *(each.name for each in known))
    of = rng.choice(choices)
    if "(" in of or "::*" in of:
        return f"std::decay_t<{of}> {name}", True
    if kind < 0.4:
        return f"alignas({rng.choice([8, 16, 32])}) {rng.choice(SCALARS[:14])} {name}", True
    if kind < 0.5:
        return f"{of} {name}[{rng.randint(1, 5)}]", True
    return f"{of} {name}", True


def draw_many(seed: int, count: int) -> list[Struct]:
    """Random structs, each of which may contain earlier ones."""
    rng = random.Random(seed)
    drawn: list[Struct] = []
    for number in range(count):
        drawn.append(draw(rng, f"S{number}", drawn[-6:]))
    return drawn


def definitions(structs: list[Struct]) -> str:
    """The text that defines them."""
    return "\n".join([DEFINITIONS, *(each.definition for each in structs)])
