// Barriers in shared memory for threads and bulk copies: PTX's `mbarrier`, in one 64-bit word.
//
//   kjit_sim::mbarrier_init(&bar, threads);
//   kjit_sim::mbarrier_arrive(&bar);
//   while (!kjit_sim::mbarrier_test(&bar, parity)) kjit_sim::yield();
//
// Blocks of a cluster update each other's barriers from OS threads of their own, so updates are atomic.

#pragma once

#include <kjit_sim/threads.h>

#include <cstddef>
#include <cstdint>

namespace kjit_sim {

/// The fields of the word: pending arrivals and bytes of this phase, arrivals of each phase, the parity of the phase.
struct MBarrier {
  std::uint64_t missing : 20;
  std::uint64_t count : 20;
  std::int64_t bytes : 23;
  std::uint64_t parity : 1;

  static MBarrier read(const std::uint64_t* word) { return from_bits<MBarrier>(*word); }
  std::uint64_t bits() const { return to_bits(*this); }
};

/// A compare-and-swap. Not instrumented: a checker would take it for an atomic operation of the kernel.
__attribute__((no_sanitize("thread"))) inline bool mbarrier_replace(std::uint64_t* word, std::uint64_t before,
                                                                    std::uint64_t after) {
  return __atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/// Counts `arrivals`, and expected bytes or, if negative, completed ones; returns the old word.
inline std::uint64_t mbarrier_count(std::uint64_t* word, unsigned arrivals, std::int64_t bytes) {
  std::uint64_t before;
  MBarrier barrier;
  do {
    barrier = MBarrier::read(word);
    before = barrier.bits();
    barrier.missing -= arrivals;
    barrier.bytes += bytes;
    if (barrier.missing == 0 && barrier.bytes == 0) {
      barrier.missing = barrier.count;
      barrier.parity ^= 1;
    }
  } while (!mbarrier_replace(word, before, barrier.bits()));
  return before;
}

inline void mbarrier_init(std::uint64_t* word, std::uint32_t count) {
  if (count == 0 || count >= 1u << 20) fail("an mbarrier counts 1 to %u arrivals, not %u", (1u << 20) - 1, count);
  *word = MBarrier{.missing = count, .count = count, .bytes = 0, .parity = 0}.bits();
}
/// Counts one arrival, and expects `bytes` more bytes; returns the old word.
inline std::uint64_t mbarrier_arrive(std::uint64_t* word, std::uint32_t bytes = 0) {
  released(word);
  return mbarrier_count(word, 1, bytes);
}
/// Completes `bytes` bytes.
inline void mbarrier_complete(std::uint64_t* word, std::size_t bytes) {
  mbarrier_count(word, 0, -static_cast<std::int64_t>(bytes));
}
/// Whether the phase with this parity has ended.
inline bool mbarrier_test(const std::uint64_t* word, std::uint32_t parity) {
  if (MBarrier::read(word).parity == parity) return false;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  acquired(word);
  return true;
}

}  // namespace kjit_sim
