// Inline PTX for the simulator: the build replaces each instruction by a call of a function here
// (kjit/engine/compile/ptx.py has the list).
//
//   asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(out) : "r"(a), "r"(b));   // PTX
//   ::kjit_sim::ptx::prmt((out), (a), (b), 0x7632);                      // its replacement
//
// Results come first, as in PTX. Semantics are those of the PTX ISA, "Instruction Set".

#pragma once

#include <kjit_sim/atomics.h>
#include <kjit_sim/cluster.h>
#include <kjit_sim/intrinsics.h>
#include <kjit_sim/mbarrier.h>
#include <kjit_sim/ptx_reals.h>
#include <kjit_sim/ptx_registers.h>
#include <kjit_sim/threads.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define KJIT_SIM_INLINE __attribute__((always_inline)) inline

namespace kjit_sim {

/// The memory at a shared-memory offset in PTX's sense (`shared_offset`).
void* shared_at(std::uint32_t offset);

namespace ptx {

// Memory.

template <typename A>
KJIT_SIM_INLINE char* global(A address, std::ptrdiff_t offset) {
  return reinterpret_cast<char*>(get<std::uintptr_t>(address)) + offset;
}
KJIT_SIM_INLINE char* shared(std::uint64_t place) {
  return static_cast<char*>(shared_at(static_cast<std::uint32_t>(place)));
}
template <typename Out>
KJIT_SIM_INLINE void to_shared(Out& out, const auto& address) {
  put(out, std::uint64_t{shared_offset(get<const void*>(address))});
}
template <typename Out>
KJIT_SIM_INLINE void from_shared(Out& out, std::uint64_t place) {
  put(out, reinterpret_cast<std::uint64_t>(shared(place)));
}

template <typename T, std::size_t kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

/// `ld` of a scalar or a vector.
template <typename T, typename A, typename... Out>
KJIT_SIM_INLINE void load(A address, std::ptrdiff_t offset, Out&&... out) {
  const auto from = *reinterpret_cast<const Vector<T, sizeof...(Out)>*>(global(address, offset));
  std::size_t i = 0;
  (put(out, from.values[i++]), ...);
}
/// `st` of a scalar or a vector.
template <typename T, typename A, typename... In>
KJIT_SIM_INLINE void store(A address, std::ptrdiff_t offset, const In&... in) {
  *reinterpret_cast<Vector<T, sizeof...(In)>*>(global(address, offset)) = {{get<T>(in)...}};
}
/// `ld.acquire`, `ld.relaxed`, `ld.volatile`. Polling loops yield to other threads.
template <typename T, typename A, typename Out>
KJIT_SIM_INLINE void load_ordered(A address, std::ptrdiff_t offset, Out& out) {
  looked();
  put(out, get<T>(__atomic_load_n(reinterpret_cast<const Bits<T>*>(global(address, offset)), __ATOMIC_ACQUIRE)));
}
template <typename T, typename A, typename In>
KJIT_SIM_INLINE void store_ordered(A address, std::ptrdiff_t offset, const In& in) {
  __atomic_store_n(reinterpret_cast<Bits<T>*>(global(address, offset)), get<Bits<T>>(get<T>(in)), __ATOMIC_RELEASE);
}
/// `atom` in terms of CUDA's atomic functions, and `red`, without a result.
template <typename T, typename Op, typename A, typename... In>
KJIT_SIM_INLINE T reduce(Op op, A address, std::ptrdiff_t offset, const In&... in) {
  return op(reinterpret_cast<T*>(global(address, offset)), get<T>(in)...);
}
template <typename T, typename Op, typename A, typename Out, typename... In>
KJIT_SIM_INLINE void atomic(Op op, A address, std::ptrdiff_t offset, Out&& out, const In&... in) {
  put(out, reduce<T>(op, address, offset, in...));
}

/// `cp.async`: copies immediately. Only the first `source_size` of `size` bytes are read, the rest is zero-filled.
template <typename A>
KJIT_SIM_INLINE void copy_async(std::uint32_t to, std::ptrdiff_t to_offset, A from, std::ptrdiff_t from_offset,
                                std::size_t size, std::size_t source_size) {
  char* const target = static_cast<char*>(shared_at(to)) + to_offset;
  memcpy(target, global(from, from_offset), source_size);
  if (source_size < size) memset(target + source_size, 0, size - source_size);
}
template <typename A>
KJIT_SIM_INLINE void copy_async(std::uint32_t to, std::ptrdiff_t to_offset, A from, std::ptrdiff_t from_offset,
                                std::size_t size) {
  copy_async(to, to_offset, from, from_offset, size, size);
}

// Integers and bits.

#define KJIT_SIM_BINARY(name, expression)                                      \
  template <typename T, typename Out>                                          \
  KJIT_SIM_INLINE void name(Out& out, const auto& first, const auto& second) { \
    const T a = get<T>(first), b = get<T>(second);                             \
    put(out, static_cast<T>(expression));                                      \
  }
KJIT_SIM_BINARY(add, wrap(a) + wrap(b))
KJIT_SIM_BINARY(sub, wrap(a) - wrap(b))
KJIT_SIM_BINARY(mul, a* b)
KJIT_SIM_BINARY(div, a / b)
KJIT_SIM_BINARY(rem, a % b)
KJIT_SIM_BINARY(min, smaller(a, b))
KJIT_SIM_BINARY(max, larger(a, b))
KJIT_SIM_BINARY(bit_and, a& b)
KJIT_SIM_BINARY(bit_or, a | b)
KJIT_SIM_BINARY(bit_xor, a ^ b)
KJIT_SIM_BINARY(mul_lo, wide(a) * wide(b))
KJIT_SIM_BINARY(mul_hi, (wide(a) * wide(b)) >> (8 * sizeof(T)))
#undef KJIT_SIM_BINARY
template <typename T, typename Out>
KJIT_SIM_INLINE void mul_wide(Out& out, const auto& a, const auto& b) {
  put(out, static_cast<Double<T>>(Double<T>{get<T>(a)} * Double<T>{get<T>(b)}));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void mad_lo(Out& out, const auto& a, const auto& b, const auto& c) {
  put(out, static_cast<T>(wide(get<T>(a)) * wide(get<T>(b)) + wide(get<T>(c))));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void mad_hi(Out& out, const auto& a, const auto& b, const auto& c) {
  put(out, static_cast<T>((wide(get<T>(a)) * wide(get<T>(b)) >> (8 * sizeof(T))) + wide(get<T>(c))));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void mad_wide(Out& out, const auto& a, const auto& b, const auto& c) {
  put(out, static_cast<Double<T>>(wide(get<T>(a)) * wide(get<T>(b)) + wide(get<Double<T>>(c))));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void abs(Out& out, const auto& a) {
  if constexpr (std::is_floating_point_v<T>) {
    put(out, std::fabs(get<T>(a)));
  } else {
    put(out, static_cast<T>(get<T>(a) < 0 ? T{0} - wrap(get<T>(a)) : wrap(get<T>(a))));
  }
}
template <typename T, typename Out>
KJIT_SIM_INLINE void neg(Out& out, const auto& a) {
  if constexpr (std::is_floating_point_v<T>) {
    put(out, -get<T>(a));
  } else {
    put(out, static_cast<T>(T{0} - wrap(get<T>(a))));
  }
}
template <typename T, typename Out>
KJIT_SIM_INLINE void bit_not(Out& out, const auto& a) {
  if constexpr (std::is_same_v<T, bool>) {
    put(out, !get<T>(a));
  } else {
    put(out, static_cast<T>(~get<T>(a)));
  }
}
/// Shift amounts of the width and more leave only the sign.
template <typename T, typename Out>
KJIT_SIM_INLINE void shl(Out& out, const auto& a, std::uint32_t by) {
  put(out, by < 8 * sizeof(T) ? static_cast<T>(wrap(get<T>(a)) << by) : T{0});
}
template <typename T, typename Out>
KJIT_SIM_INLINE void shr(Out& out, const auto& a, std::uint32_t by) {
  constexpr std::uint32_t kMost = 8 * sizeof(T) - 1;
  const T value = get<T>(a);
  put(out, by <= kMost ? static_cast<T>(value >> by) : static_cast<T>(std::is_signed_v<T> ? value >> kMost : 0));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void popc(Out& out, const auto& a) {
  put(out, static_cast<std::uint32_t>(__builtin_popcountll(get<T>(a))));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void clz(Out& out, const auto& a) {
  const T value = get<T>(a);
  const int unused = 64 - 8 * static_cast<int>(sizeof(T));
  put(out, static_cast<std::uint32_t>(value == 0 ? 8 * sizeof(T) : __builtin_clzll(value) - unused));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void brev(Out& out, const auto& a) {
  put(out, static_cast<T>(__brevll(get<T>(a)) >> (64 - 8 * sizeof(T))));
}
/// A bit field of `length` bits at `place`; bits beyond the value are its sign, or 0.
template <typename T, typename Out>
KJIT_SIM_INLINE void bfe(Out& out, const auto& a, std::uint32_t place, std::uint32_t length) {
  constexpr std::uint32_t kMost = 8 * sizeof(T) - 1;
  place &= 0xff, length &= 0xff;
  const T value = get<T>(a);
  const bool sign = std::is_signed_v<T> && length > 0 && (value >> std::min(place + length - 1, kMost) & 1) != 0;
  T result = 0;
  for (std::uint32_t i = 0; i <= kMost; ++i) {
    const bool bit = i < length && place + i <= kMost ? (value >> (place + i) & 1) != 0 : sign;
    result = static_cast<T>(result | static_cast<T>(wrap(T{bit}) << i));
  }
  put(out, result);
}
/// Inserts the lower `length` bits of `a` into `b` at `place`.
template <typename T, typename Out>
KJIT_SIM_INLINE void bfi(Out& out, const auto& a, const auto& b, std::uint32_t place, std::uint32_t length) {
  place &= 0xff, length &= 0xff;
  T result = get<T>(b);
  for (std::uint32_t i = 0; i < length && place + i < 8 * sizeof(T); ++i) {
    const T bit = T{1} << (place + i);
    result = (get<T>(a) >> i & 1) != 0 ? result | bit : result & ~bit;
  }
  put(out, result);
}
template <typename T, typename Out>
KJIT_SIM_INLINE void dp4a(Out& out, const auto& a, const auto& b, const auto& c) {
  put(out, __dp4a(get<T>(a), get<T>(b), get<T>(c)));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void select(Out& out, const auto& a, const auto& b, bool first) {
  put(out, first ? get<T>(a) : get<T>(b));
}

/// Selects bytes of `a` and `b` by a four-digit selector.
template <typename Out>
KJIT_SIM_INLINE void prmt(Out& out, std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  put(out, static_cast<std::uint32_t>(__byte_perm(a, b, selector)));
}

/// Any function of three bits: `table` is its value for a = 0xf0, b = 0xcc, c = 0xaa.
template <typename Out>
KJIT_SIM_INLINE void lop3(Out& out, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if ((table >> i & 1) != 0) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  put(out, result);
}

/// `redux.sync`: a reduction over the lanes of a mask.
template <WarpOp kOp, typename Out>
KJIT_SIM_INLINE void redux(Out& out, std::uint32_t value, std::uint32_t mask) {
  put(out, static_cast<std::uint32_t>(warp_op(kOp, mask, value)));
}

// Lanes and barriers.

KJIT_SIM_INLINE std::uint32_t warp_id() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
}

/// `shfl.sync`: reads from lane `from`, or from itself if that is outside of its segment.
template <typename Out, typename Predicate>
KJIT_SIM_INLINE void shuffle_from(int from, bool is_inside, Out&& out, Predicate&& inside, std::uint32_t value,
                                  std::uint32_t mask) {
  const std::uint32_t lane = is_inside ? static_cast<std::uint32_t>(from) : lane_id();
  put(out, static_cast<std::uint32_t>(warp_op(WarpOp::kShuffle, mask, value, lane)));
  put(inside, is_inside);
}
#define KJIT_SIM_SHUFFLE(name, lane, condition)                                                                   \
  template <typename Out, typename Predicate>                                                                     \
  KJIT_SIM_INLINE void name(Out&& out, Predicate&& inside, const auto& value, std::uint32_t b, std::uint32_t c,   \
                            std::uint32_t mask) {                                                                 \
    const int own = static_cast<int>(lane_id()), segment = static_cast<int>(c >> 8 & 31);                         \
    const int last = (own & segment) | (static_cast<int>(c & 31) & ~segment);                                     \
    const int by = static_cast<int>(b & 31), from = lane;                                                         \
    shuffle_from(from, condition, out, inside, get<std::uint32_t>(value), mask);                                  \
  }                                                                                                               \
  template <typename Out>                                                                                         \
  KJIT_SIM_INLINE void name(Out&& out, const auto& value, std::uint32_t b, std::uint32_t c, std::uint32_t mask) { \
    name(out, Nowhere(), value, b, c, mask);                                                                      \
  }
KJIT_SIM_SHUFFLE(shuffle_up, own - by, from >= last)
KJIT_SIM_SHUFFLE(shuffle_down, own + by, from <= last)
KJIT_SIM_SHUFFLE(shuffle_bfly, own ^ by, from <= last)
KJIT_SIM_SHUFFLE(shuffle_idx, (own & segment) | (by & ~segment), from <= last)
#undef KJIT_SIM_SHUFFLE

template <WarpOp kOp, typename Out>
KJIT_SIM_INLINE void vote(Out& out, bool predicate, std::uint32_t mask) {
  out = static_cast<Out>(warp_op(kOp, mask, predicate));
}
template <typename T, typename Out>
KJIT_SIM_INLINE void match_any(Out& out, const auto& value, std::uint32_t mask) {
  put(out, static_cast<std::uint32_t>(warp_op(WarpOp::kMatchAny, mask, get<T>(value))));
}
/// `elect.sync`: the lowest lane of the mask.
template <typename Out>
KJIT_SIM_INLINE void elect(Out&& leader, bool& is_leader, std::uint32_t mask) {
  warp_op(WarpOp::kSync, mask);
  const auto first = static_cast<std::uint32_t>(__builtin_ctz(mask));
  put(leader, first);
  is_leader = lane_id() == first;
}
KJIT_SIM_INLINE void wait_at_barrier(std::uint32_t id, std::uint32_t threads = 0) {
  barrier(BarrierOp::kPlain, static_cast<int>(id), static_cast<int>(threads), 0);
}
KJIT_SIM_INLINE void wait_for_lanes(std::uint32_t mask) {
  warp_op(WarpOp::kSync, mask);
}
KJIT_SIM_INLINE void arrive_at_cluster(bool releases) {
  cluster_arrive(releases);
}
KJIT_SIM_INLINE void wait_for_cluster() {
  cluster_wait();
}
KJIT_SIM_INLINE void fence() {
  __threadfence();
}
KJIT_SIM_INLINE void nothing() {}

KJIT_SIM_INLINE std::uint64_t* mbarrier_at(std::uint32_t place, std::ptrdiff_t offset) {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(shared_at(place)) + offset);
}
KJIT_SIM_INLINE void mbarrier_start(std::uint32_t place, std::ptrdiff_t offset, std::uint32_t count) {
  mbarrier_init(mbarrier_at(place, offset), count);
}
template <typename Out>
KJIT_SIM_INLINE void mbarrier_arrived(Out&& state, std::uint32_t place, std::ptrdiff_t offset) {
  put(state, mbarrier_arrive(mbarrier_at(place, offset)));
}
template <typename Out>
KJIT_SIM_INLINE void mbarrier_expects(Out&& state, std::uint32_t place, std::ptrdiff_t offset, std::uint32_t bytes) {
  put(state, mbarrier_arrive(mbarrier_at(place, offset), bytes));
}
/// `mbarrier.try_wait.parity` and `test_wait`. A thread that has to wait yields.
KJIT_SIM_INLINE void mbarrier_tested(auto& has_ended, std::uint32_t place, std::ptrdiff_t offset, std::uint32_t parity,
                                     std::uint32_t = 0) {
  has_ended = mbarrier_test(mbarrier_at(place, offset), parity);
  if (!has_ended) yield();
}

}  // namespace ptx

}  // namespace kjit_sim

#undef KJIT_SIM_INLINE
