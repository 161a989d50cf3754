// Barriers in shared memory that threads and bulk copies arrive at, as PTX's `mbarrier` has them, in one 64-bit word.
//
//   kjit_sim::mbarrier_init(&bar, threads);
//   kjit_sim::mbarrier_arrive(&bar);
//   while (!kjit_sim::mbarrier_test(&bar, parity)) kjit_sim::yield();
//
// A block runs on one OS thread, so plain memory does.

#pragma once

#include <kjit_sim/threads.h>

#include <cstdint>

namespace kjit_sim {

/// The word's parts: arrivals and bytes that are missing in this phase, arrivals of each phase, the parity of the
/// phase.
struct MBarrier {
  std::uint64_t missing : 20;
  std::uint64_t count : 20;
  std::int64_t bytes : 23;
  std::uint64_t parity : 1;

  static MBarrier read(const std::uint64_t* word) { return from_bits<MBarrier>(*word); }
  void write(std::uint64_t* word) {
    if (missing == 0 && bytes == 0) {
      missing = count;
      parity ^= 1;
    }
    *word = to_bits(*this);
  }
};

inline void mbarrier_init(std::uint64_t* word, std::uint32_t count) {
  if (count == 0 || count >= 1u << 20) fail("an mbarrier counts 1 to %u arrivals, not %u", (1u << 20) - 1, count);
  MBarrier{.missing = count, .count = count, .bytes = 0, .parity = 0}.write(word);
}
/// Counts one arrival, and `bytes` bytes that have to come; returns the word as it was.
inline std::uint64_t mbarrier_arrive(std::uint64_t* word, std::uint32_t bytes = 0) {
  released(word);
  const std::uint64_t before = *word;
  MBarrier barrier = MBarrier::read(word);
  barrier.bytes += bytes;
  --barrier.missing;
  barrier.write(word);
  return before;
}
/// `bytes` bytes have come.
inline void mbarrier_complete(std::uint64_t* word, std::uint32_t bytes) {
  MBarrier barrier = MBarrier::read(word);
  barrier.bytes -= bytes;
  barrier.write(word);
}
/// Whether the phase of this parity has ended.
inline bool mbarrier_test(const std::uint64_t* word, std::uint32_t parity) {
  if (MBarrier::read(word).parity == parity) return false;
  acquired(word);
  return true;
}

}  // namespace kjit_sim
