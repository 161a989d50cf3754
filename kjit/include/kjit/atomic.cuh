// Atomic maximum and minimum of floating-point numbers, and synchronisation between the blocks of a grid.
//
//   device::atomic::max(absmax, value);             // float and double, in global or shared memory
//   if (threadIdx.x == 0) event->arrive();          // a block that has written its part
//   if (threadIdx.x == 0) event->wait(num_blocks);  // the block that reads all parts
//
// Numbers are ordered by IEEE 754's total order: -0.0 is smaller than +0.0. A `value` that is NaN has no effect. A NaN
// in memory counts as larger than infinity, or, with the sign bit set, as smaller than -infinity: initialise the memory
// with a number.

#pragma once

#include <kjit/device.cuh>

#include <cstdint>
#include <type_traits>

namespace kjit::device::atomic::details {

// As signed integers, the bits of numbers without a sign are ordered, and above all those with a sign. As unsigned
// integers, the bits of numbers with a sign are in reverse order, and above all those without. So the sign of the new
// number selects the comparison, whatever the memory contains.
template <bool kMax, typename Unsigned>
KJIT_DEVICE Unsigned update_bits(void* addr, Unsigned bits) {
  using Signed = std::make_signed_t<Unsigned>;
  const Signed number = static_cast<Signed>(bits);
  if constexpr (kMax) {
    if (number >= 0) return static_cast<Unsigned>(atomicMax(static_cast<Signed*>(addr), number));
    return atomicMin(static_cast<Unsigned*>(addr), bits);
  } else {
    if (number >= 0) return static_cast<Unsigned>(atomicMin(static_cast<Signed*>(addr), number));
    return atomicMax(static_cast<Unsigned*>(addr), bits);
  }
}

// A NaN becomes the bits that lose against all others: the last NaN of the total order.
template <bool kMax>
KJIT_DEVICE float update(float* addr, float value) {
  constexpr unsigned kLoses = kMax ? ~0u : ~0u >> 1;
  return __uint_as_float(update_bits<kMax>(addr, value == value ? __float_as_uint(value) : kLoses));
}
template <bool kMax>
KJIT_DEVICE double update(double* addr, double value) {
  using Bits = unsigned long long;
  constexpr Bits kLoses = kMax ? ~Bits{0} : ~Bits{0} >> 1;
  const Bits bits = value == value ? static_cast<Bits>(__double_as_longlong(value)) : kLoses;
  return __longlong_as_double(static_cast<long long>(update_bits<kMax>(addr, bits)));
}

}  // namespace kjit::device::atomic::details

/// Single PTX instructions on 32-bit words in global memory (not shared memory, whose addresses differ), at device
/// scope. "release": what this thread wrote before is visible to a thread that reads this or a later value with
/// "acquire". "relaxed": no ordering.
namespace kjit::device::atomic::ptx {

#if KJIT_SIM

KJIT_DEVICE void red_release_add_u32(std::uint32_t* ptr, std::uint32_t n) {
  atomicAdd(ptr, n);
}
KJIT_DEVICE void red_relaxed_add_u32(std::uint32_t* ptr, std::uint32_t n) {
  atomicAdd(ptr, n);
}
KJIT_DEVICE std::uint32_t atom_acquire_cas_b32(std::uint32_t* addr, std::uint32_t compare, std::uint32_t swap) {
  return atomicCAS(addr, compare, swap);
}
KJIT_DEVICE std::uint32_t load_acquire_u32(const std::uint32_t* addr) {
  ::kjit_sim::looked();
  return __atomic_load_n(addr, __ATOMIC_ACQUIRE);
}
KJIT_DEVICE std::uint32_t atom_acquire_add_u32(std::uint32_t* addr, std::uint32_t n) {
  return atomicAdd(addr, n);
}

#else

KJIT_DEVICE void red_release_add_u32(std::uint32_t* ptr, std::uint32_t n) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(ptr), "r"(n) : "memory");
}

KJIT_DEVICE void red_relaxed_add_u32(std::uint32_t* ptr, std::uint32_t n) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(ptr), "r"(n) : "memory");
}

/// Writes `swap` if the word equals `compare`; returns the old value.
KJIT_DEVICE std::uint32_t atom_acquire_cas_b32(std::uint32_t* addr, std::uint32_t compare, std::uint32_t swap) {
  std::uint32_t old;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(addr), "r"(compare), "r"(swap)
               : "memory");
  return old;
}

KJIT_DEVICE std::uint32_t load_acquire_u32(const std::uint32_t* addr) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(addr) : "memory");
  return value;
}

/// Returns the old value.
KJIT_DEVICE std::uint32_t atom_acquire_add_u32(std::uint32_t* addr, std::uint32_t n) {
  std::uint32_t old;
  asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(addr), "r"(n) : "memory");
  return old;
}

#endif

}  // namespace kjit::device::atomic::ptx

namespace kjit::device::atomic {

/// Sets `*addr` to the larger of `*addr` and `value`; returns the old value. One integer atomic.
KJIT_DEVICE float max(float* addr, float value) {
  return details::update<true>(addr, value);
}
KJIT_DEVICE double max(double* addr, double value) {
  return details::update<true>(addr, value);
}

/// Sets `*addr` to the smaller of `*addr` and `value`; returns the old value. One integer atomic.
KJIT_DEVICE float min(float* addr, float value) {
  return details::update<false>(addr, value);
}
KJIT_DEVICE double min(double* addr, double value) {
  return details::update<false>(addr, value);
}

/// A counter in global memory with which blocks signal that they are done. One 32-bit word, which is zero again once
/// all waiting threads have passed, so that the next launch can reuse it.
///
/// - It is never constructed: use a word of global memory that the host has set to zero.
/// - What a thread wrote before `arrive()` is visible to the waiting thread after its wait, and to the rest of its
///   block after a `__syncthreads()`. A block whose threads have all written synchronises before one of them arrives.
/// - `wait` (one waiting thread in the grid) and `wait_multi` (several) encode the word differently: an event is for
///   one of them.
/// - No thread may arrive for the next round before all waiting threads of this one have passed: rounds are not
///   distinguished. The end of the kernel is sufficient.
/// - Waiting and arriving blocks must be resident at the same time: a cooperative launch, or a grid that fits the GPU.
struct Event {
 public:
  using handle_type = std::uint32_t;

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// The word itself, for inspection while no thread arrives or waits.
  __device__ handle_type& unsafe_get_handle() { return word_; }

  /// Signals that `n` producers are done.
  __device__ void arrive(std::uint32_t n = 1) { ptx::red_release_add_u32(&word_, n); }

  /// Waits until exactly `num_producers` have arrived, and resets the word. For one thread of the grid.
  __device__ void wait(std::uint32_t num_producers) {
    while (ptx::atom_acquire_cas_b32(&word_, num_producers, 0) != num_producers) {
    }
  }

  /// Waits until exactly `num_producers` (less than 2^(32 - kConsumerBits)) have arrived. `num_consumers` (less than
  /// 2^kConsumerBits, at least 1) is the total over all waiting calls of their `n`; the last one resets the word.
  template <std::uint32_t kConsumerBits = 16>
  __device__ void wait_multi(std::uint32_t num_producers, std::uint32_t num_consumers, std::uint32_t n = 1) {
    static_assert(kConsumerBits > 0 && kConsumerBits < 32, "the word counts producers and consumers");
    constexpr std::uint32_t kProducerBits = 32 - kConsumerBits;
    constexpr std::uint32_t kProducers = (1u << kProducerBits) - 1;

    const std::uint32_t before = ptx::atom_acquire_add_u32(&word_, n << kProducerBits);
    std::uint32_t now = before;
    // Zero: all consumers have arrived since the last poll, and the last of them has reset the word.
    while ((now & kProducers) != num_producers) {
      now = ptx::load_acquire_u32(&word_);
      if (now == 0) break;
    }
    if ((before >> kProducerBits) + n == num_consumers) {
      // Subtracts instead of storing zero, which continues the release sequence that an acquire of zero synchronises
      // with.
      ptx::red_relaxed_add_u32(&word_, 0u - ((num_consumers << kProducerBits) + num_producers));
    }
  }

 private:
  handle_type word_;
};

}  // namespace kjit::device::atomic
