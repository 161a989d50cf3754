// Reduction of a row's total over the threads that share the row: lanes of a warp for short rows, else a block, or a
// cluster of blocks.
//
//   const RowTeam<kClusters, Total> team(threads);  // once in a kernel: this thread's row, and its lane in the row
//   team.await();
//   total = team.begin(total);                      // work after this overlaps with the exchange
//   total = team.finish(total);                     // bitwise the same in all threads
//
// A total is any trivially copyable type that `combined` takes.

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

/// A total as words.
template <typename Total>
struct TotalWords {
  static_assert(std::is_trivially_copyable_v<Total>, "a row's total is copied between threads word by word");
  std::uint32_t words[(sizeof(Total) + 3) / 4];

  KJIT_DEVICE static TotalWords of(const Total& total) {
    TotalWords copy{};
    std::memcpy(copy.words, &total, sizeof(Total));
    return copy;
  }
  KJIT_DEVICE Total total() const {
    const TotalWords copy = *this;  // word by word, also from shared memory
    Total value;
    std::memcpy(static_cast<void*>(&value), copy.words, sizeof(Total));
    return value;
  }
};

/// The totals that the blocks of a cluster exchange, at the end of each block's dynamic shared memory.
template <typename Total>
struct alignas(16) Exchange {
  std::uint64_t complete;  // mbarrier: the totals of all warps of the cluster have arrived
  TotalWords<Total> of_warp[kMaxCluster * kMaxRowBlock / kWarp];
};

/// Reductions over `count` consecutive lanes of a warp, a power of two. The result is bitwise the same in all of them.
/// All lanes of the warp must call.
struct Lanes {
  unsigned count;

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
    for (unsigned offset = 1; offset < kWarp; offset *= 2) {
      if (offset >= count) continue;
      auto copy = TotalWords<Total>::of(total);
#pragma unroll
      for (std::uint32_t& word : copy.words) word = __shfl_xor_sync(0xffffffffu, word, static_cast<int>(offset));
      const bool is_lower = (threadIdx.x & offset) == 0;
      total = std::is_arithmetic_v<Total> || is_lower ? combine(total, copy.total()) : combine(copy.total(), total);
    }
    return total;
  }
};

/// The threads that share this thread's row, in a grid from `spread_rows`. Every thread of a block calls each function
/// once, in this order, including threads whose row is after the last one.
template <bool kClusters, typename Total>
class RowTeam {
 public:
  std::int64_t row;
  int lane;  // this thread's index among the threads of its row

  explicit __device__ RowTeam(int threads) : row(blockIdx.x), threads_(static_cast<unsigned>(threads)) {
    unsigned number = threadIdx.x;
    if constexpr (kClusters) {
      if (shares_blocks()) {
        number += blockIdx.y * blockDim.x;
        if (threadIdx.x == 0) {
          using namespace device::ptx;
          std::uint64_t* const complete = &exchange().complete;
          mbar_init(complete, 1);
          mbar_init_fence();
          mbar_arrive_expect_tx(complete, threads_ / kWarp * static_cast<unsigned>(sizeof(TotalWords<Total>)));
        }
        __syncwarp();
        device::ptx::cluster_arrive_relaxed();
      }
    }
    if (threads_ <= kWarp) {  // a power of two
      const int shift = __ffs(threads) - 1;
      row = row * (blockDim.x >> shift) + (number >> shift);
      number &= threads_ - 1;
    }
    lane = static_cast<int>(number);
  }

  /// Waits until the other blocks that share the row have started, so that totals can be exchanged. To be called before
  /// the first read: it invalidates the SM's L1 cache, and delays reads in flight.
  KJIT_DEVICE void await() const {
    if constexpr (kClusters) {
      if (shares_blocks()) device::ptx::cluster_wait();
    }
  }

  /// Sends this thread's total to the other blocks of the cluster, if the row is shared by one.
  KJIT_DEVICE Total begin(Total total) const {
    if constexpr (kClusters) {
      if (shares_blocks()) {
        Exchange<Total>& here = exchange();
        total = combined_across(total, Lanes{kWarp});
        if (const unsigned rank = threadIdx.x % kWarp; rank < gridDim.y) {
          const auto copy = TotalWords<Total>::of(total);
          std::uint32_t* const to = here.of_warp[static_cast<unsigned>(lane) / kWarp].words;
          constexpr int kWords = sizeof(copy) / 4;
#pragma unroll
          for (int i = 0; i < kWords; ++i) device::ptx::store_async(rank, &to[i], copy.words[i], &here.complete);
        }
      }
    }
    return total;
  }

  /// The total of the row. It waits for the totals of the others only: a cluster barrier would wait for all memory
  /// operations.
  KJIT_DEVICE Total finish(Total total) const {
    const unsigned warps = threads_ / kWarp;
    if constexpr (kClusters) {
      if (shares_blocks()) {
        const Exchange<Total>& here = exchange();
        device::ptx::mbar_wait_parity(&exchange().complete, 0);
        const unsigned half = warps / 2;  // their number is even
        total = Total{};
#pragma unroll 1
        for (unsigned i = threadIdx.x % kWarp; i < half; i += kWarp) {
          total = combined(total, combined(here.of_warp[i].total(), here.of_warp[i + half].total()));
        }
        return combined_across(total, Lanes{kWarp});
      }
    }
    total = combined_across(total, Lanes{threads_ < kWarp ? threads_ : kWarp});
    if (threads_ <= kWarp) return total;

    __shared__ TotalWords<Total> of_warp[kWarp];
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = TotalWords<Total>::of(total);
    __syncthreads();
    // Only two numbers of lanes, so that few branches delay code that does not need the total.
    const unsigned places = warps <= 8 ? 8 : kWarp, warp = threadIdx.x % places;
    total = of_warp[warp < warps ? warp : 0].total();
    return combined_across(warp < warps ? total : Total{}, Lanes{places});
  }

 private:
  /// The memory in which this block receives the totals of the other blocks of its cluster.
  KJIT_DEVICE static Exchange<Total>& exchange() {
    unsigned bytes;
#if KJIT_SIM
    bytes = static_cast<unsigned>(::kjit_sim::dynamic_shared_size());
#else
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
#endif
    unsigned char* const end = device::row::details::dynamic_shared() + bytes;
    return *reinterpret_cast<Exchange<Total>*>(end - sizeof(Exchange<Total>));
  }

  /// Whether the row is shared by a cluster.
  KJIT_DEVICE bool shares_blocks() const { return threads_ > blockDim.x; }

  unsigned threads_;
};

}  // namespace kjit::details
