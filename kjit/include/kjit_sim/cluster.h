// Clusters of blocks: the barrier that all their threads share, and the shared memory of the other blocks.
//
//   kjit_sim::cluster_arrive(true);
//   kjit_sim::cluster_wait();
//   float* theirs = kjit_sim::in_block(1, &tile[0]);    // what block 1 has where this one has `tile`
//
// Each block of a cluster runs on an OS thread of its own. A block that was launched without a cluster is one alone.

#pragma once

#include <kjit_sim/mbarrier.h>
#include <kjit_sim/threads.h>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// This block's number in its cluster (x counts first), and how many blocks there are.
std::uint32_t cluster_rank();
dim3 cluster_dim();

/// Arrives at the cluster's barrier. Where `releases`, what this thread wrote can be seen by those who have waited.
void cluster_arrive(bool releases);
/// Waits until all threads of the cluster that have not exited have arrived; this one has to have done so itself.
void cluster_wait();
/// Lets those who have waited see what this thread wrote so far, though it arrives without releasing.
void cluster_release();

/// Where block `rank` has what this block has at `address` in shared memory.
void* in_block(std::uint32_t rank, const void* address);
template <typename T>
T* in_block(std::uint32_t rank, T* address) {
  return static_cast<T*>(in_block(rank, static_cast<const void*>(address)));
}

/// The number of the block that has the address in its shared memory.
std::uint32_t rank_of_shared(const void* address);

/// Writes `value` to where block `rank` has `here`, and its bytes are counted by the mbarrier `complete` there.
template <typename T>
void store_async(std::uint32_t rank, T* here, const T& value, std::uint64_t* complete) {
  *in_block(rank, here) = value;
  if (rank == cluster_rank()) released(complete);
  mbarrier_complete(in_block(rank, complete), sizeof(T));
}

}  // namespace kjit_sim

#pragma GCC visibility pop
