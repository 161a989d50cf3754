// Atomic maximum and minimum of floating-point numbers, and waiting for other blocks of a grid.
//
//   device::atomic::max(absmax, value);             // float and double, in global or shared memory
//   if (threadIdx.x == 0) event->arrive();          // a block that has written its part
//   if (threadIdx.x == 0) event->wait(num_blocks);  // the one that reads all parts
//
// Numbers are ordered as IEEE 754's total order has them: -0.0 is smaller than +0.0. A `value` that is NaN changes
// nothing. A NaN that is in memory counts as larger than infinity or, where its sign bit is set, as smaller than
// -infinity: let the memory start with a number.

#pragma once

#include <kjit/device.cuh>

#include <cstdint>
#include <type_traits>

namespace kjit::device::atomic::details {

#if defined(USE_ROCM) || defined(__HIP_PLATFORM_AMD__)

// Compare and swap is the one that AMD's GPUs can do in every kind of memory.
template <typename Unsigned>
KJIT_DEVICE Unsigned order(Unsigned bits) {
  constexpr Unsigned kSign = Unsigned{1} << (8 * sizeof(Unsigned) - 1);
  return bits & kSign ? ~bits : bits | kSign;
}

template <bool kMax, typename Unsigned>
KJIT_DEVICE Unsigned update_bits(void* addr, Unsigned bits) {
  Unsigned old = *static_cast<volatile Unsigned*>(addr);
  while (kMax ? order(bits) > order(old) : order(bits) < order(old)) {
    const Unsigned assumed = old;
    old = atomicCAS(static_cast<Unsigned*>(addr), assumed, bits);
    if (old == assumed) break;
  }
  return old;
}

#else

// As signed integers, the bits of numbers without a sign are in order, and all those with a sign are below them. As
// unsigned integers, the bits of numbers with a sign are in reverse order, and all those without are below them. So the
// sign of the new number tells which comparison is right, whatever the memory holds.
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

#endif

// A NaN becomes the bits that lose against all others: those of the last NaN of the total order.
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

/// Single PTX instructions on 32-bit words in global memory (not shared: an address there is another one for them),
/// seen by the whole GPU. "release": what this thread wrote before is seen by whoever reads the word with "acquire" and
/// finds this or a later value. "relaxed": no such promise.
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

/// Writes `swap` where the word is `compare`; returns what it was before.
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

/// Returns what the word was before.
KJIT_DEVICE std::uint32_t atom_acquire_add_u32(std::uint32_t* addr, std::uint32_t n) {
  std::uint32_t old;
  asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(addr), "r"(n) : "memory");
  return old;
}

#endif

}  // namespace kjit::device::atomic::ptx

namespace kjit::device::atomic {

/// Makes `*addr` the larger one of `*addr` and `value`; returns what it was before. One atomic operation on an integer.
KJIT_DEVICE float max(float* addr, float value) {
  return details::update<true>(addr, value);
}
KJIT_DEVICE double max(double* addr, double value) {
  return details::update<true>(addr, value);
}

/// Makes `*addr` the smaller one of `*addr` and `value`; returns what it was before. One atomic operation on an
/// integer.
KJIT_DEVICE float min(float* addr, float value) {
  return details::update<false>(addr, value);
}
KJIT_DEVICE double min(double* addr, double value) {
  return details::update<false>(addr, value);
}

/// A counter in global memory with which blocks tell others that they are done. It is one 32-bit word, and zero again
/// once all that wait have been let go, so that the next launch may use it as it is.
///
/// - It is never constructed: take a word of global memory that the host has set to zero.
/// - What a thread wrote before `arrive()` can be read after the wait by the thread that waited; by the rest of its
/// block
///   after a `__syncthreads()`. Likewise a block whose threads have all written synchronises before one of them
///   arrives.
/// - `wait` (one waiting thread in the whole grid) and `wait_multi` (several) use the word differently: an event is for
/// one
///   of them.
/// - Nobody may arrive for the next round before all that wait for this one have been let go: nothing in the word tells
///   rounds apart. The end of a kernel is enough.
/// - Those that wait and those that they wait for must run at the same time: a cooperative launch, or a grid that fits.
struct Event {
 public:
  using handle_type = std::uint32_t;

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// The word itself. Only to look at, while nobody arrives or waits.
  __device__ handle_type& unsafe_get_handle() { return word_; }

  /// Counts `n` producers as done.
  __device__ void arrive(std::uint32_t n = 1) { ptx::red_release_add_u32(&word_, n); }

  /// Waits until exactly `num_producers` have arrived, and sets the word back. For one thread of the grid.
  __device__ void wait(std::uint32_t num_producers) {
    while (ptx::atom_acquire_cas_b32(&word_, num_producers, 0) != num_producers) {
    }
  }

  /// Waits until exactly `num_producers` (less than 2^(32 - kConsumerBits)) have arrived. `num_consumers` (less than
  /// 2^kConsumerBits, at least 1) wait in all, and the `n` of all calls add up to it: the last one sets the word back.
  template <std::uint32_t kConsumerBits = 16>
  __device__ void wait_multi(std::uint32_t num_producers, std::uint32_t num_consumers, std::uint32_t n = 1) {
    static_assert(kConsumerBits > 0 && kConsumerBits < 32, "the word counts producers and consumers");
    constexpr std::uint32_t kProducerBits = 32 - kConsumerBits;
    constexpr std::uint32_t kProducers = (1u << kProducerBits) - 1;

    const std::uint32_t before = ptx::atom_acquire_add_u32(&word_, n << kProducerBits);
    std::uint32_t now = before;
    // Zero: all consumers were there before this one looked again, and the last of them has set the word back.
    while ((now & kProducers) != num_producers) {
      now = ptx::load_acquire_u32(&word_);
      if (now == 0) break;
    }
    if ((before >> kProducerBits) + n == num_consumers) {
      // Subtracted rather than set to zero, which keeps the chain of read-modify-writes that makes a zero an acquire.
      ptx::red_relaxed_add_u32(&word_, 0u - ((num_consumers << kProducerBits) + num_producers));
    }
  }

 private:
  handle_type word_;
};

}  // namespace kjit::device::atomic
