// Atomic operations on global and shared memory, for the types that CUDA supports.
//
//   atomicAdd(&total, x);
//   while (atomicCAS(&lock, 0, 1) != 0) {}
//
// All are sequentially consistent, which is stronger than CUDA's.

#pragma once

#include <kjit_sim/threads.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

// Reports name the line of the call.
#define KJIT_SIM_INLINE __attribute__((always_inline)) inline

namespace kjit_sim {

/// Replaces a value by `f(value)` and returns the old value. For types without an atomic instruction.
template <typename T, typename F>
KJIT_SIM_INLINE T update(T* address, F&& f) {
  using Bits = std::conditional_t<sizeof(T) == 8, unsigned long long,
                                  std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;
  static_assert(sizeof(T) == sizeof(Bits));
  auto* const word = reinterpret_cast<Bits*>(address);
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const T value = from_bits<T>(old);
    const T changed = f(value);
    if (__atomic_compare_exchange_n(word, &old, static_cast<Bits>(to_bits(changed)), false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED)) {
      return value;
    }
  }
}

/// The integers of 32 and 64 bits that CUDA's atomic operations take.
template <typename T>
concept AtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, long> ||
    std::is_same_v<T, unsigned long> || std::is_same_v<T, long long> || std::is_same_v<T, unsigned long long>;
template <typename T>
concept AtomicWord = AtomicInteger<T> || std::is_same_v<T, unsigned short>;

}  // namespace kjit_sim

#define KJIT_SIM_ATOMIC(name, ...)                                    \
  template <kjit_sim::AtomicInteger T>                                \
  KJIT_SIM_INLINE T name(T* address, std::type_identity_t<T> value) { \
    kjit_sim::looked();                                               \
    return __VA_ARGS__;                                               \
  }
KJIT_SIM_ATOMIC(atomicAdd, __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST))
KJIT_SIM_ATOMIC(atomicSub, __atomic_fetch_sub(address, value, __ATOMIC_SEQ_CST))
KJIT_SIM_ATOMIC(atomicExch, __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST))
KJIT_SIM_ATOMIC(atomicMin, kjit_sim::update(address, [value](T old) { return old < value ? old : value; }))
KJIT_SIM_ATOMIC(atomicMax, kjit_sim::update(address, [value](T old) { return old > value ? old : value; }))
KJIT_SIM_ATOMIC(atomicAnd, __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST))
KJIT_SIM_ATOMIC(atomicOr, __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST))
KJIT_SIM_ATOMIC(atomicXor, __atomic_fetch_xor(address, value, __ATOMIC_SEQ_CST))
#undef KJIT_SIM_ATOMIC

KJIT_SIM_INLINE float atomicAdd(float* address, float value) {
  return kjit_sim::update(address, [value](float old) { return old + value; });
}
KJIT_SIM_INLINE double atomicAdd(double* address, double value) {
  return kjit_sim::update(address, [value](double old) { return old + value; });
}
KJIT_SIM_INLINE float2 atomicAdd(float2* address, float2 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
KJIT_SIM_INLINE float4 atomicAdd(float4* address, float4 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}
KJIT_SIM_INLINE float atomicExch(float* address, float value) {
  return kjit_sim::update(address, [value](float) { return value; });
}
KJIT_SIM_INLINE unsigned atomicInc(unsigned* address, unsigned last) {
  kjit_sim::looked();
  return kjit_sim::update(address, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
KJIT_SIM_INLINE unsigned atomicDec(unsigned* address, unsigned last) {
  kjit_sim::looked();
  return kjit_sim::update(address, [last](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}
template <kjit_sim::AtomicWord T>
KJIT_SIM_INLINE T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  kjit_sim::looked();
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return compare;
}

// The scope of an operation is ignored.
#define KJIT_SIM_SCOPES(name)                                   \
  template <typename T, typename... V>                          \
  KJIT_SIM_INLINE auto name##_block(T* address, V... values) {  \
    return name(address, values...);                            \
  }                                                             \
  template <typename T, typename... V>                          \
  KJIT_SIM_INLINE auto name##_system(T* address, V... values) { \
    return name(address, values...);                            \
  }
KJIT_SIM_SCOPES(atomicAdd)
KJIT_SIM_SCOPES(atomicSub)
KJIT_SIM_SCOPES(atomicExch)
KJIT_SIM_SCOPES(atomicMin)
KJIT_SIM_SCOPES(atomicMax)
KJIT_SIM_SCOPES(atomicInc)
KJIT_SIM_SCOPES(atomicDec)
KJIT_SIM_SCOPES(atomicCAS)
KJIT_SIM_SCOPES(atomicAnd)
KJIT_SIM_SCOPES(atomicOr)
KJIT_SIM_SCOPES(atomicXor)
#undef KJIT_SIM_SCOPES

// nvcc's own functions. The order and the scope of an operation are ignored.
enum {
  __NV_ATOMIC_RELAXED,
  __NV_ATOMIC_CONSUME,
  __NV_ATOMIC_ACQUIRE,
  __NV_ATOMIC_RELEASE,
  __NV_ATOMIC_ACQ_REL,
  __NV_ATOMIC_SEQ_CST
};
enum {
  __NV_THREAD_SCOPE_THREAD,
  __NV_THREAD_SCOPE_BLOCK,
  __NV_THREAD_SCOPE_CLUSTER,
  __NV_THREAD_SCOPE_DEVICE,
  __NV_THREAD_SCOPE_SYSTEM
};
template <typename T>
KJIT_SIM_INLINE std::remove_cv_t<T> __nv_atomic_load_n(T* address, int, int = 0) {
  kjit_sim::looked();
  return kjit_sim::update(const_cast<std::remove_cv_t<T>*>(address), [](auto old) { return old; });
}
template <typename T>
KJIT_SIM_INLINE void __nv_atomic_load(T* address, std::remove_const_t<T>* result, int order, int = 0) {
  *result = __nv_atomic_load_n(address, order);
}
template <typename T>
KJIT_SIM_INLINE T __nv_atomic_exchange_n(T* address, std::type_identity_t<T> value, int, int = 0) {
  kjit_sim::looked();
  return kjit_sim::update(address, [value](T) { return value; });
}
template <typename T>
KJIT_SIM_INLINE void __nv_atomic_exchange(T* address, T* value, T* result, int order, int = 0) {
  *result = __nv_atomic_exchange_n(address, *value, order);
}
template <typename T>
KJIT_SIM_INLINE void __nv_atomic_store_n(T* address, std::type_identity_t<T> value, int order, int = 0) {
  __nv_atomic_exchange_n(address, value, order);
}
template <typename T>
KJIT_SIM_INLINE void __nv_atomic_store(T* address, T* value, int order, int = 0) {
  __nv_atomic_exchange_n(address, *value, order);
}
template <typename T>
KJIT_SIM_INLINE bool __nv_atomic_compare_exchange_n(T* address, T* expected, std::type_identity_t<T> value, bool, int,
                                                    int, int = 0) {
  kjit_sim::looked();
  const T before = *expected;
  const auto same = [before](T old) { return kjit_sim::to_bits(old) == kjit_sim::to_bits(before); };
  *expected = kjit_sim::update(address, [&](T old) { return same(old) ? value : old; });
  return same(*expected);
}
template <typename T>
KJIT_SIM_INLINE bool __nv_atomic_compare_exchange(T* address, T* expected, T* value, bool weak, int success,
                                                  int failure, int = 0) {
  return __nv_atomic_compare_exchange_n(address, expected, *value, weak, success, failure);
}
#define KJIT_SIM_NV_ATOMIC(name, expression)                                                               \
  template <typename T>                                                                                    \
  KJIT_SIM_INLINE T __nv_atomic_fetch_##name(T* address, std::type_identity_t<T> value, int, int = 0) {    \
    kjit_sim::looked();                                                                                    \
    return kjit_sim::update(address, [value](T old) { return static_cast<T>(expression); });               \
  }                                                                                                        \
  template <typename T>                                                                                    \
  KJIT_SIM_INLINE void __nv_atomic_##name(T* address, std::type_identity_t<T> value, int order, int = 0) { \
    __nv_atomic_fetch_##name(address, value, order);                                                       \
  }
KJIT_SIM_NV_ATOMIC(add, old + value)
KJIT_SIM_NV_ATOMIC(sub, old - value)
KJIT_SIM_NV_ATOMIC(and, old& value)
KJIT_SIM_NV_ATOMIC(or, old | value)
KJIT_SIM_NV_ATOMIC(xor, old ^ value)
KJIT_SIM_NV_ATOMIC(min, old < value ? old : value)
KJIT_SIM_NV_ATOMIC(max, old > value ? old : value)
#undef KJIT_SIM_NV_ATOMIC
inline void __nv_atomic_thread_fence(int, int = 0) {
  __threadfence();
}
#undef KJIT_SIM_INLINE
