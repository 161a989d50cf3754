// A row's total, combined over the threads that share the row: lanes of a warp where rows are short, else a block, or a
// cluster of blocks.
//
//   const auto [row, lane] = place_in_row<kClusters>(threads);
//   await_cluster<kClusters>(threads);
//   auto pending = begin_total<kClusters>(total, threads);     // what is done meanwhile costs no time
//   total = finish_total<kClusters>(pending, threads);         // the same in each of the threads, bit by bit
//
// Once in a kernel. A total is any trivially copyable type that `combined` takes.

#pragma once

#include <kjit/patterns/totals.h>
#include <kjit/cluster.cuh>
#include <kjit/detail/row_memory.cuh>
#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>

#include <kjit/detail/row_plan.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit::details {

constexpr unsigned kWarp = device::kWarpThreads;

/// What the blocks of a cluster tell each other, at the end of each block's dynamic shared memory.
template <typename Total>
struct alignas(16) Exchange {
  static constexpr std::size_t kWords = sizeof(Total) % 4 == 0 ? sizeof(Total) / 4 : sizeof(Total) / 4 + 1;
  std::uint64_t complete;  // barrier: the totals of all warps of the cluster have come
  std::uint32_t words[kMaxCluster * kMaxRowBlock / 32][kWords];
};

/// A total as words.
template <typename Total>
struct TotalWords {
  static_assert(std::is_trivially_copyable_v<Total>, "a row's total is copied between threads word by word");
  static constexpr std::size_t kCount = Exchange<Total>::kWords;
  std::uint32_t words[kCount];

  explicit __device__ TotalWords(const Total& total) {
    if constexpr (sizeof(Total) % 4 != 0) words[kCount - 1] = 0;
    std::memcpy(words, &total, sizeof(Total));
  }
  explicit __device__ TotalWords(const std::uint32_t (&other)[kCount]) {
#pragma unroll
    for (std::size_t i = 0; i < kCount; ++i) words[i] = other[i];
  }

  KJIT_DEVICE Total total() const {
    Total value;
    std::memcpy(static_cast<void*>(&value), words, sizeof(Total));
    return value;
  }
};

template <typename Total>
KJIT_DEVICE Total shuffled(const Total& total, int offset) {
  if constexpr (std::is_arithmetic_v<Total>) {
    return __shfl_xor_sync(0xffffffffu, total, offset);
  } else {
    TotalWords<Total> copy(total);
#pragma unroll
    for (std::uint32_t& word : copy.words) word = __shfl_xor_sync(0xffffffffu, word, offset);
    return copy.total();
  }
}

/// `count` lanes side by side in a warp, a power of two: what combines a value of each, the same in all of them, bit by
/// bit. All lanes of the warp call.
struct Lanes {
  int count;

  template <typename S>
  KJIT_DEVICE S sum(S value) const {
    return each(value, [](S one, S other) { return one + other; });
  }
  template <typename S>
  KJIT_DEVICE S max(S value) const {
    return each(value, [](S one, S other) { return ::max(one, other); });
  }
  /// `combine` gets the value of the lower lane first.
  template <typename Total>
  KJIT_DEVICE Total combine(Total total) const {
    return each(total, [](const Total& one, const Total& other) { return combined(one, other); });
  }

 private:
  template <typename Total, typename Combine>
  KJIT_DEVICE Total each(Total total, const Combine& combine) const {
#pragma unroll
    for (int offset = static_cast<int>(kWarp) / 2; offset > 0; offset /= 2) {
      if (offset >= count) continue;
      const Total other = shuffled(total, offset);
      const bool is_lower = (threadIdx.x & static_cast<unsigned>(offset)) == 0;
      total = std::is_arithmetic_v<Total> || is_lower ? combine(total, other) : combine(other, total);
    }
    return total;
  }
};

template <typename Total>
KJIT_DEVICE Total combined_in_warp(const Total& total) {
  return combined_across(total, Lanes{static_cast<int>(kWarp)});
}

/// Where this block learns the totals of the others of its cluster.
template <typename Total>
KJIT_DEVICE Exchange<Total>& exchange() {
  unsigned bytes;
#if KJIT_SIM
  bytes = static_cast<unsigned>(::kjit_sim::dynamic_shared_size());
#else
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
#endif
  return *reinterpret_cast<Exchange<Total>*>(device::row::details::dynamic_shared() + bytes - sizeof(Exchange<Total>));
}

/// A thread's row, and its number among the threads of that row. The row may lie behind the last one.
struct RowPlace {
  std::int64_t row;
  int lane;
};

/// Where this thread works when `threads` threads share a row, in a grid that `spread_rows` laid out. Every thread
/// calls, once.
template <bool kClusters, typename Total>
KJIT_DEVICE RowPlace place_in_row(int threads) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kClusters && kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) {
      if (threadIdx.x == 0) {
        device::ptx::mbar_init(&exchange<Total>().complete, 1);
        device::ptx::mbar_init_fence();
      }
      __syncwarp();
      device::ptx::cluster_arrive_relaxed();
      return {std::int64_t{blockIdx.x}, static_cast<int>(blockIdx.y * blockDim.x) + thread};
    }
  }
  if (threads > static_cast<int>(kWarp)) return {std::int64_t{blockIdx.x}, thread};
  const int shift = __ffs(threads) - 1;  // a power of two
  return {std::int64_t{blockIdx.x} * (blockDim.x >> shift) + (thread >> shift), thread & (threads - 1)};
}

/// Waits until the other blocks that share this one's row have come, so that totals can be exchanged. Every thread
/// calls, once, between `place_in_row` and its first read: it empties the SM's cache, and takes time from reads that
/// are under way.
template <bool kClusters>
KJIT_DEVICE void await_cluster(int threads) {
  if constexpr (kClusters && kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) device::ptx::cluster_wait();
  }
}

/// Tells the others that share the row of this thread's total; `finish_total` waits for theirs.
template <bool kClusters, typename Total>
KJIT_DEVICE Total begin_total(Total total, int threads) {
  if constexpr (kClusters && kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) {
      const unsigned warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
      const unsigned blocks = gridDim.y;
      Exchange<Total>& here = exchange<Total>();
      if (threadIdx.x == 0) {
        const unsigned bytes = static_cast<unsigned>(sizeof(here.words[0]));
        device::ptx::mbar_arrive_expect_tx(&here.complete, blocks * warps * bytes);
      }
      total = combined_in_warp(total);
      if (lane < blocks) {
        const TotalWords<Total> copy(total);
#pragma unroll
        for (std::size_t i = 0; i < copy.kCount; ++i) {
          device::ptx::store_async(lane, &here.words[blockIdx.y * kWarp + warp][i], copy.words[i], &here.complete);
        }
      }
    }
  }
  return total;
}

/// What all warps of the cluster have sent, combined. Nobody waits for more than that: a barrier of the cluster would
/// wait for all memory.
template <typename Total>
KJIT_DEVICE Total finish_in_cluster() {
  const unsigned warps = blockDim.x / kWarp, lane = threadIdx.x % kWarp, blocks = gridDim.y;
  Exchange<Total>& here = exchange<Total>();
  device::ptx::mbar_wait_parity(&here.complete, 0);
  Total total{};
#pragma unroll 1
  for (unsigned i = lane; lane < warps && i < blocks * kWarp; i += 2 * kWarp) {  // the number of blocks is even
    total = combined(
        total, combined(TotalWords<Total>(here.words[i]).total(), TotalWords<Total>(here.words[i + kWarp]).total()));
  }
  return combined_in_warp(total);
}

/// The total of the row, in each of its threads. All threads of the block call, those whose row lies behind the last
/// one too.
template <bool kClusters, typename Total>
KJIT_DEVICE Total finish_total(Total total, int threads) {
  if constexpr (kClusters && kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) return finish_in_cluster<Total>();
  }
  total = combined_across(total, Lanes{threads < static_cast<int>(kWarp) ? threads : static_cast<int>(kWarp)});
  if (threads <= static_cast<int>(kWarp)) return total;

  __shared__ std::uint32_t of_warp[kWarp][TotalWords<Total>::kCount];
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) {
    const TotalWords<Total> copy(total);
#pragma unroll
    for (std::size_t i = 0; i < copy.kCount; ++i) of_warp[threadIdx.x / kWarp][i] = copy.words[i];
  }
  __syncthreads();
  // The totals of so many warps, a power of two, are in as many lanes, and again in those behind.
  const unsigned warps = static_cast<unsigned>(threads) / kWarp, places = 1u << (32 - __clz(warps - 1));
  const unsigned warp = lane % places;
  return combined_across(warp < warps ? TotalWords<Total>(of_warp[warp]).total() : Total{},
                         Lanes{static_cast<int>(places)});
}

}  // namespace kjit::details
