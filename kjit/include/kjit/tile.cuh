// The mapping of threads to elements of a contiguous array: one thread, a warp or a block accesses consecutive
// elements.
//
//   const auto memory = device::tile::Memory<device::AlignedVector<T, 8>>::cta();
//   for (int64_t round = 0; memory.in_bound(vectors, round); ++round)
//     memory.store(dst, memory.load(src, round), round);  // thread t moves element t + round * blockDim.x

#pragma once

#include <kjit/device.cuh>

#include <cstdint>

namespace kjit::device::tile {

/// Thread `tid` of a group of `tsize` threads that shares an array of `T`: its element in round `offset` has index `tid
/// + offset * tsize`, in 64 bits. `T` may be a vector, to which the array must be aligned.
template <typename T>
struct Memory {
 public:
  using value_type = T;

  constexpr __device__ Memory(std::uint32_t tid, std::uint32_t tsize) : tid_(tid), tsize_(tsize) {}

  /// A single thread: `offset` is the index of the element.
  __device__ static constexpr Memory thread() { return Memory{0, 1}; }
  /// The 32 lanes of a warp.
  __device__ static Memory warp() { return Memory{get_lane_id(), kWarpThreads}; }
  /// Groups of `warp_threads` consecutive threads in x, a divisor of `blockDim.x`.
  __device__ static Memory warp(int warp_threads) {
    const auto threads = static_cast<std::uint32_t>(warp_threads);
    return Memory{threadIdx.x % threads, threads};
  }
  /// The first `cta_threads` threads of the block in x, by default all. In a multi-dimensional block each row of
  /// threads is a group of its own.
  __device__ static Memory cta(int cta_threads = static_cast<int>(blockDim.x)) {
    return Memory{threadIdx.x, static_cast<std::uint32_t>(cta_threads)};
  }

  /// The index of this thread's element in round `offset`.
  __device__ std::int64_t index(std::int64_t offset = 0) const { return tid_ + offset * tsize_; }
  /// This thread's element in round `offset` of the array at `ptr`.
  __device__ T load(const void* ptr, std::int64_t offset = 0) const {
    return static_cast<const T*>(ptr)[index(offset)];
  }
  /// Writes this thread's element in round `offset` of the array at `ptr`.
  __device__ void store(void* ptr, T val, std::int64_t offset = 0) const { static_cast<T*>(ptr)[index(offset)] = val; }
  /// Whether an array of `element_count` elements has this thread's element in round `offset`.
  __device__ bool in_bound(std::int64_t element_count, std::int64_t offset = 0) const {
    return index(offset) < element_count;
  }

 private:
  std::uint32_t tid_;
  std::uint32_t tsize_;
};

}  // namespace kjit::device::tile
