// Cooperative groups for the simulator: the block, tiles of up to a warp, coalesced threads, the cluster, the grid.
//
//   const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
//   for (int i = tile.size() / 2; i > 0; i /= 2) sum += tile.shfl_down(sum, i);
//   cg::this_grid().sync();                                   // in a cooperative launch

#pragma once

#include <kjit_sim/cluster.h>
#include <kjit_sim/sim.h>

#include <cstdint>
#include <type_traits>

namespace cooperative_groups {

/// All threads of the block.
class thread_block {
 public:
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() {
  return {};
}

/// Lanes of a warp selected by a mask. Ranks count the lanes of the mask.
class coalesced_group {
 public:
  explicit coalesced_group(unsigned mask) : mask_(mask) {}

  void sync() const { __syncwarp(mask_); }
  unsigned thread_rank() const { return rank_of(kjit_sim::lane_id()); }
  unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned size() const { return num_threads(); }
  unsigned meta_group_size() const { return 1; }
  unsigned meta_group_rank() const { return 0; }

  template <typename T>
  T shfl(T value, unsigned rank) const {
    return __shfl_sync(mask_, value, lane_of(rank % num_threads()));
  }
  template <typename T>
  T shfl_up(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return __shfl_sync(mask_, value, lane_of(rank >= delta ? rank - delta : rank));
  }
  template <typename T>
  T shfl_down(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return __shfl_sync(mask_, value, lane_of(rank + delta < num_threads() ? rank + delta : rank));
  }
  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const { return ranks_of(__ballot_sync(mask_, predicate)); }
  template <typename T>
  unsigned match_any(T value) const {
    return ranks_of(__match_any_sync(mask_, value));
  }
  template <typename T>
  unsigned match_all(T value, int& predicate) const {
    return ranks_of(__match_all_sync(mask_, value, &predicate));
  }

  // The lanes of this group with the same label or predicate, and groups of `size` lanes.
  template <typename T>
  friend coalesced_group labeled_partition(const coalesced_group& group, T label) {
    return coalesced_group(__match_any_sync(group.mask_, label));
  }
  friend coalesced_group binary_partition(const coalesced_group& group, bool predicate) {
    const unsigned those = __ballot_sync(group.mask_, predicate);
    return coalesced_group(predicate ? those : group.mask_ & ~those);
  }
  friend coalesced_group tiled_partition(const coalesced_group& group, unsigned size) {
    const unsigned first = group.rank_of(kjit_sim::lane_id()) / size * size;
    unsigned lanes = 0;
    for (unsigned rank = first; rank < first + size && rank < group.num_threads(); ++rank) {
      lanes |= 1u << group.lane_of(rank);
    }
    return coalesced_group(lanes);
  }

 protected:
  unsigned rank_of(unsigned lane) const { return static_cast<unsigned>(__popc(mask_ & ((1u << lane) - 1))); }
  int lane_of(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return __ffs(static_cast<int>(rest)) - 1;
  }
  unsigned ranks_of(unsigned lanes) const {
    unsigned ranks = 0;
    for (; lanes != 0; lanes &= lanes - 1) ranks |= 1u << rank_of(static_cast<unsigned>(__builtin_ctz(lanes)));
    return ranks;
  }

  unsigned mask_;
};

template <typename T>
coalesced_group labeled_partition(const coalesced_group& group, T label);
coalesced_group binary_partition(const coalesced_group& group, bool predicate);
coalesced_group tiled_partition(const coalesced_group& group, unsigned size);

/// The lanes that are converged with this one.
inline coalesced_group coalesced_threads() {
  return coalesced_group(__activemask());
}

/// `Size` consecutive threads: a power of two up to 32.
template <unsigned Size, typename Parent = void>
class thread_block_tile : public coalesced_group {
  static_assert(Size > 0 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile is a power of two of lanes, up to a warp");

 public:
  thread_block_tile() : coalesced_group(lanes()) {}
  template <typename Other>
  thread_block_tile(const thread_block_tile<Size, Other>& other) : coalesced_group(other) {}

  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  static unsigned thread_rank() { return kjit_sim::lane_id() % Size; }
  static unsigned meta_group_size() { return (thread_block::num_threads() + Size - 1) / Size; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }

  template <typename T>
  T shfl(T value, int rank) const {
    return __shfl_sync(mask_, value, rank, Size);
  }
  template <typename T>
  T shfl_up(T value, unsigned delta) const {
    return __shfl_up_sync(mask_, value, delta, Size);
  }
  template <typename T>
  T shfl_down(T value, unsigned delta) const {
    return __shfl_down_sync(mask_, value, delta, Size);
  }
  template <typename T>
  T shfl_xor(T value, int lanes) const {
    return __shfl_xor_sync(mask_, value, lanes, Size);
  }

 private:
  static unsigned lanes() {
    return static_cast<unsigned>(((std::uint64_t{1} << Size) - 1) << (kjit_sim::lane_id() / Size * Size));
  }
};

template <unsigned Size, typename Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}
inline coalesced_group tiled_partition(const thread_block&, unsigned size) {
  const unsigned rest = thread_block::num_threads() - thread_block::thread_rank() / 32 * 32;
  return tiled_partition(coalesced_group(rest < 32 ? (1u << rest) - 1 : 0xffffffff), size);
}

/// All threads of the cluster; of the block, if it was launched without a cluster.
class cluster_group {
 public:
  using arrival_token = struct {};

  static void sync() {
    kjit_sim::cluster_arrive(true);
    kjit_sim::cluster_wait();
  }
  static arrival_token barrier_arrive() {
    kjit_sim::cluster_arrive(true);
    return {};
  }
  static void barrier_wait() { kjit_sim::cluster_wait(); }
  static void barrier_wait(arrival_token&&) { kjit_sim::cluster_wait(); }

  static unsigned block_rank() { return kjit_sim::cluster_rank(); }
  static dim3 block_index() {
    const dim3 dim = dim_blocks();
    const unsigned rank = block_rank();
    return {rank % dim.x, rank / dim.x % dim.y, rank / dim.x / dim.y};
  }
  static dim3 dim_blocks() { return kjit_sim::cluster_dim(); }
  static unsigned num_blocks() {
    const dim3 dim = dim_blocks();
    return dim.x * dim.y * dim.z;
  }
  static unsigned thread_rank() { return block_rank() * thread_block::num_threads() + thread_block::thread_rank(); }
  static dim3 thread_index() {
    const dim3 block = block_index();
    return {block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y, block.z * blockDim.z + threadIdx.z};
  }
  static dim3 dim_threads() {
    const dim3 dim = dim_blocks();
    return {dim.x * blockDim.x, dim.y * blockDim.y, dim.z * blockDim.z};
  }
  static unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned size() { return num_threads(); }

  template <typename T>
  static T* map_shared_rank(T* address, int rank) {
    return kjit_sim::in_block(static_cast<unsigned>(rank), address);
  }
  static unsigned query_shared_rank(const void* address) { return kjit_sim::rank_of_shared(address); }
};

inline cluster_group this_cluster() {
  return {};
}

/// All threads of all blocks.
class grid_group {
 public:
  static bool is_valid() { return kjit_sim::is_cooperative(); }
  static void sync() { kjit_sim::grid_sync(); }
  static unsigned long long num_blocks() { return std::uint64_t{gridDim.x} * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return blockIdx.x + std::uint64_t{gridDim.x} * (blockIdx.y + std::uint64_t{gridDim.y} * blockIdx.z);
  }
  static unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
  static dim3 group_dim() { return gridDim; }
};

inline grid_group this_grid() {
  return {};
}

/// Called by one thread of the group.
template <typename Group, typename F, typename... Args>
void invoke_one(const Group& group, F&& f, Args&&... args) {
  if (group.thread_rank() == 0) f(args...);
}

template <typename Group>
void sync(const Group& group) {
  group.sync();
}
template <typename Group>
unsigned thread_rank(const Group& group) {
  return static_cast<unsigned>(group.thread_rank());
}
template <typename Group>
unsigned group_size(const Group& group) {
  return static_cast<unsigned>(group.size());
}

}  // namespace cooperative_groups
