// Thread block clusters: their barrier, and the shared memory of the other blocks.
//
//   kjit_sim::cluster_arrive(true);
//   kjit_sim::cluster_wait();
//   float* theirs = kjit_sim::in_block(1, &tile[0]);    // `tile` in block 1
//
// Each block of a cluster runs on an OS thread of its own. A block launched without a cluster is a cluster of one.

#pragma once

#include <kjit_sim/mbarrier.h>
#include <kjit_sim/threads.h>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// The rank of this block in its cluster (x varies fastest), and the number of blocks.
std::uint32_t cluster_rank();
dim3 cluster_dim();

/// Arrives at the cluster's barrier. If `releases`, earlier writes of this thread become visible to threads that wait.
void cluster_arrive(bool releases);
/// Waits until all threads of the cluster that have not exited have arrived; this thread must have arrived itself.
void cluster_wait();
/// Makes earlier writes of this thread visible to threads that wait, although it arrives without releasing.
void cluster_release();

/// The address in block `rank` that corresponds to `address` in this block's shared memory.
void* in_block(std::uint32_t rank, const void* address);
template <typename T>
T* in_block(std::uint32_t rank, T* address) {
  return static_cast<T*>(in_block(rank, static_cast<const void*>(address)));
}

/// The rank of the block whose shared memory contains the address.
std::uint32_t rank_of_shared(const void* address);

/// Writes `value` to the location of `here` in block `rank`, and counts its bytes at the mbarrier `complete` there.
template <typename T>
void store_async(std::uint32_t rank, T* here, const T& value, std::uint64_t* complete) {
  *in_block(rank, here) = value;
  if (rank == cluster_rank()) released(complete);
  mbarrier_complete(in_block(rank, complete), sizeof(T));
}

}  // namespace kjit_sim

#pragma GCC visibility pop
