// Barriers in shared memory that threads and bulk copies arrive at: one inline PTX instruction each.
//
//   if (threadIdx.x == 0) device::ptx::mbar_init(&full, producers);  // then __syncthreads()
//   device::ptx::mbar_arrive(&full);                                 // each producer, after its writes
//   device::ptx::mbar_wait_parity(&full, phase);                     // consumers; then phase ^= 1
//
// A barrier counts arrivals down, and bytes where a bulk copy reports to it. When both are done the phase ends, the
// counts start anew, and the parity flips. The first phase has parity 0. A wait names the parity of the phase whose end
// it waits for, and the caller keeps track of it: a wait for parity 0 on a new barrier waits for the first phase, one
// for parity 1 returns at once (what a producer wants whose buffer is still free). No wait may fall two phases behind:
// parity alone cannot tell them apart.
//
// All need sm_80; what needs more says so. No access to memory is moved by the compiler across any of them.

#pragma once

#include <kjit/device.cuh>
#if KJIT_SIM
#include <kjit_sim/mbarrier.h>
#endif

#include <cstdint>

namespace kjit::device::ptx {

/// The address of something in shared memory as PTX's `.shared` instructions take it: 32 bits, counted from where the
/// block's shared memory starts.
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

/// Makes `bar` a barrier of `count` arrivals for each phase. One thread does it, and `__syncthreads()` (before bulk
/// copies of another proxy a fence, too) makes it known to the others.
KJIT_DEVICE void mbar_init(std::uint64_t* bar, std::uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(to_shared(bar)), "r"(count) : "memory");
}

/// Counts one arrival. What this thread wrote before is seen by whoever waits for the end of the phase. Returns the
/// state before the arrival.
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

/// Counts one arrival and makes the phase wait for `bytes` more bytes of bulk copies. Needs sm_90: a kernel that calls
/// it is refused by the assembler for older GPUs.
KJIT_DEVICE void mbar_arrive_expect_tx(std::uint64_t* bar, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(to_shared(bar)), "r"(bytes) : "memory");
}

/// Waits for the end of the phase of parity `parity` (0 or 1). Then what the arriving threads wrote before they
/// arrived, and what bulk copies that report to this barrier wrote, can be read.
KJIT_DEVICE void mbar_wait_parity(std::uint64_t* bar, std::uint32_t parity) {
  const std::uint32_t address = to_shared(bar);
  std::uint32_t done;
  // The hardware may give up a wait before the phase has ended.
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
