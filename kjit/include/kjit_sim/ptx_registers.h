// Registers of inline PTX: variables whose bits an instruction reinterprets as its type.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#define KJIT_SIM_INLINE __attribute__((always_inline)) inline

namespace kjit_sim::ptx {

/// `_`: an ignored result.
struct Nowhere {};
template <typename T>
KJIT_SIM_INLINE void put(Nowhere, T) {}
/// Writes a value to a register: its bits if the sizes match, otherwise as an integer.
template <typename Out, typename T>
KJIT_SIM_INLINE void put(Out& out, T value) {
  if constexpr (std::is_same_v<Out, Nowhere>) {
    return;
  } else if constexpr (sizeof(Out) == sizeof(T)) {
    __builtin_memcpy(static_cast<void*>(&out), &value, sizeof(T));
  } else {
    static_assert(std::is_integral_v<Out> && std::is_integral_v<T>, "a register is as large as the instruction's type");
    out = static_cast<Out>(value);
  }
}
/// The value of a register in an instruction's type.
template <typename T, typename In>
KJIT_SIM_INLINE T get(const In& in) {
  if constexpr (sizeof(T) == sizeof(In)) {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), &in, sizeof(T));
    return value;
  } else {
    return static_cast<T>(in);
  }
}

template <std::size_t kSize>
using Word = std::conditional_t<
    kSize == 1, std::uint8_t,
    std::conditional_t<kSize == 2, std::uint16_t, std::conditional_t<kSize == 4, std::uint32_t, std::uint64_t>>>;
template <typename T>
using Bits = Word<sizeof(T)>;
/// The integer type of twice the size.
template <typename T>
using Double = std::conditional_t<std::is_signed_v<T>, std::make_signed_t<Word<2 * sizeof(T)>>, Word<2 * sizeof(T)>>;

/// Integers wrap around; floating-point values are unchanged.
template <typename T>
KJIT_SIM_INLINE auto wrap(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::uint64_t>(value);
  } else {
    return value;
  }
}
template <typename T>
KJIT_SIM_INLINE auto wide(T value) {
  return static_cast<std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>(value);
}
/// If one is NaN, the other.
template <typename T>
KJIT_SIM_INLINE T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(a, b);
  } else {
    return b < a ? b : a;
  }
}
template <typename T>
KJIT_SIM_INLINE T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(a, b);
  } else {
    return a < b ? b : a;
  }
}

template <typename Out, typename In>
KJIT_SIM_INLINE void mov(Out& out, In value) {
  if constexpr (sizeof(Out) == sizeof(In)) {
    put(out, value);
  } else {
    out = static_cast<Out>(value);
  }
}
/// `mov.b32 %0, {low, high}`.
template <typename Out, typename... In>
KJIT_SIM_INLINE void pack(Out& out, const In&... parts) {
  constexpr std::size_t kSize = sizeof(Out) / sizeof...(In);
  std::uint64_t bits = 0;
  unsigned place = 0;
  ((bits |= std::uint64_t{get<Word<kSize>>(parts)} << place, place += 8 * kSize), ...);
  put(out, static_cast<Bits<Out>>(bits));
}
/// `mov.b32 {low, high}, %0`.
template <typename In, typename... Out>
KJIT_SIM_INLINE void unpack(const In& in, Out&&... parts) {
  constexpr std::size_t kSize = sizeof(In) / sizeof...(Out);
  const auto bits = get<Bits<In>>(in);
  unsigned place = 0;
  ((put(parts, static_cast<Word<kSize>>(bits >> place)), place += 8 * kSize), ...);
}

}  // namespace kjit_sim::ptx

#undef KJIT_SIM_INLINE
