// Barriers in shared memory for threads and bulk copies: one inline PTX instruction each.
//
//   if (threadIdx.x == 0) device::ptx::mbar_init(&full, producers);  // then __syncthreads()
//   device::ptx::mbar_arrive(&full);                                 // each producer, after its writes
//   device::ptx::mbar_wait_parity(&full, phase);                     // consumers; then phase ^= 1
//
// A barrier counts down arrivals, and the bytes of bulk copies that report to it. When both are complete the phase
// ends, the counts are reset, and the parity flips. The first phase has parity 0. A wait names the parity of the phase
// whose completion it waits for, which the caller tracks: on a new barrier, a wait for parity 0 waits for the first
// phase, and a wait for parity 1 returns at once (what a producer needs whose buffer is still free). No wait may lag by
// two phases: parity alone cannot distinguish them.
//
// All need sm_80, except where noted. The compiler moves no memory access across any of them.

#pragma once

#include <kjit/device.cuh>
#if KJIT_SIM
#include <kjit_sim/mbarrier.h>
#endif

#include <cstdint>

namespace kjit::device::ptx {

/// The address of an object in shared memory for PTX's `.shared` instructions: 32 bits, relative to the start of the
/// block's shared memory.
template <typename T>
KJIT_DEVICE std::uint32_t to_shared(T* ptr) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(ptr));
}

#if KJIT_SIM

KJIT_DEVICE void mbar_init(std::uint64_t* bar, std::uint32_t count) {
  ::kjit_sim::mbarrier_init(bar, count);
}
KJIT_DEVICE std::uint64_t mbar_arrive(std::uint64_t* bar) {
  return ::kjit_sim::mbarrier_arrive(bar);
}
KJIT_DEVICE std::uint64_t mbar_arrive_relaxed(std::uint64_t* bar) {
  return ::kjit_sim::mbarrier_arrive(bar);
}
KJIT_DEVICE void mbar_arrive_expect_tx(std::uint64_t* bar, std::uint32_t bytes) {
  ::kjit_sim::mbarrier_arrive(bar, bytes);
}
KJIT_DEVICE void mbar_wait_parity(std::uint64_t* bar, std::uint32_t parity) {
  while (!::kjit_sim::mbarrier_test(bar, parity)) ::kjit_sim::yield();
}

#else

/// Initialises `bar` for `count` arrivals in each phase. By one thread, followed by `__syncthreads()` (and before bulk
/// copies also by a proxy fence) to make it visible to the others.
KJIT_DEVICE void mbar_init(std::uint64_t* bar, std::uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(to_shared(bar)), "r"(count) : "memory");
}

/// Counts one arrival. Earlier writes of this thread are visible to threads that have waited for the end of the phase.
/// Returns the state before the arrival.
KJIT_DEVICE std::uint64_t mbar_arrive(std::uint64_t* bar) {
  std::uint64_t state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(to_shared(bar)) : "memory");
  return state;
}

/// Counts one arrival without making this thread's writes visible. Before sm_90 it is `mbar_arrive`.
KJIT_DEVICE std::uint64_t mbar_arrive_relaxed(std::uint64_t* bar) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  std::uint64_t state;
  asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(to_shared(bar)) : "memory");
  return state;
#else
  return mbar_arrive(bar);
#endif
}

/// Counts one arrival and makes the phase wait for `bytes` more bytes of bulk copies. Needs sm_90: ptxas rejects it for
/// older GPUs.
KJIT_DEVICE void mbar_arrive_expect_tx(std::uint64_t* bar, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(to_shared(bar)), "r"(bytes) : "memory");
}

/// Waits for the end of the phase with parity `parity` (0 or 1). After it, writes that the arriving threads made before
/// their arrival, and those of bulk copies that report to this barrier, are visible.
KJIT_DEVICE void mbar_wait_parity(std::uint64_t* bar, std::uint32_t parity) {
  const std::uint32_t address = to_shared(bar);
  std::uint32_t done;
  // try_wait may return before the phase has ended.
  do {
    asm volatile(
        "{\n"
        "  .reg .pred done;\n"
#if KJIT_ARCH_HOPPER_OR_GREATER
        "  mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
#else
        "  mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
#endif
        "  selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  } while (done == 0);
}

#endif

}  // namespace kjit::device::ptx
