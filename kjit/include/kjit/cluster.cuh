// Cluster-level primitives beside cooperative_groups::this_cluster(): one inline PTX instruction each that CUDA has no
// function for.
//
//   device::ptx::mbar_init(&complete, 1);             // one thread of each block
//   device::ptx::mbar_init_fence();
//   device::ptx::cluster_arrive_relaxed();            // all threads; then work that needs no other block
//   device::ptx::cluster_wait();                      // from here on the other blocks are running
//   device::ptx::store_async(rank, &sum, value, &complete);   // to `sum` of block `rank`, signalled by `complete`
//
// All need sm_90: ptxas rejects a kernel that calls one for older GPUs.

#pragma once

#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>
#if KJIT_SIM
#include <kjit_sim/cluster.h>
#endif

#include <cstdint>
#include <cstring>

namespace kjit::device::ptx {

#if KJIT_SIM

KJIT_DEVICE void mbar_init_fence() {
  ::kjit_sim::cluster_release();
}
KJIT_DEVICE void cluster_arrive_relaxed() {
  ::kjit_sim::cluster_arrive(false);
}
KJIT_DEVICE void cluster_wait() {
  ::kjit_sim::cluster_wait();
}
template <typename T>
KJIT_DEVICE void store_async(unsigned rank, T* here, T value, std::uint64_t* complete) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  ::kjit_sim::store_async(rank, here, value, complete);
}

#else

/// Makes the mbarriers that this thread has initialised visible to threads that have waited for the cluster, even if it
/// arrives relaxed.
KJIT_DEVICE void mbar_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives at the cluster barrier, once before each `cluster_wait`. Does not make this thread's writes visible: a
/// releasing arrival makes each warp wait for its outstanding loads. Every thread of a warp calls.
KJIT_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// Waits until all threads of the cluster have arrived. Invalidates the SM's L1 cache. Every thread of a warp calls.
KJIT_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

namespace details {

/// The address in block `rank` of the cluster that corresponds to `here` in this block's shared memory, for
/// `.shared::cluster` instructions.
KJIT_DEVICE std::uint32_t to_shared_of(unsigned rank, void* here) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to_shared(here)), "r"(rank));
  return there;
}

}  // namespace details

/// Writes `value`, of 4 or 8 bytes, to the location of `here` in block `rank`. Asynchronous: only threads of that block
/// that wait for its mbarrier `complete`, which has to expect the bytes, see it. For clusters of at least two blocks;
/// compute-sanitizer reports an error otherwise.
template <typename T>
KJIT_DEVICE void store_async(unsigned rank, T* here, T value, std::uint64_t* complete) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using namespace details;
  const std::uint32_t to = to_shared_of(rank, here), counter = to_shared_of(rank, complete);
  if constexpr (sizeof(T) == 4) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(bits),
                 "r"(counter)
                 : "memory");
  } else {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to), "l"(bits),
                 "r"(counter)
                 : "memory");
  }
}

#endif

}  // namespace kjit::device::ptx
