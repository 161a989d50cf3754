// Kernels that share every row of a tensor among a few threads: lanes of a warp where rows are short, else a block.
//
//   const row::Spread spread = row::spread(num_rows, vectors, 4);   // host: at most 4 vectors a thread
//   LaunchKernel(spread.grid, spread.block, device)(kernel, spread.threads, ...);
//   ...
//   const auto [row, lane] = device::row::place(threads);            // in the kernel: which row, and which part of it
//   const float total = device::row::reduce_sum(x, threads);         // the same in all threads of the row
//
// How many threads a row gets is known at run time only, so that one kernel serves rows of every length. Nearly free to
// compile.

#pragma once

#include <kjit/utils.h>
#include <kjit/device.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

namespace host::row {

/// Threads of the largest block that `spread` asks for.
inline constexpr int kMaxBlock = 1024;

/// How rows are spread over a GPU.
struct Spread {
  int threads;        // that share a row: a power of two up to 32, or the block
  int block;          // threads of a block
  std::int64_t grid;  // blocks
};

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row, and of a
/// row that is too long for a block of `max_block` threads, a multiple of 32, more. Of short rows it has at most two.
inline Spread spread(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxBlock) {
  constexpr int kSmallBlock = 128;
  constexpr std::int64_t kShort = 64;
  const std::int64_t wanted = div_ceil(vectors, std::int64_t{vectors <= kShort && parts > 2 ? 2 : parts});
  if (wanted <= 32) {
    int threads = 1;
    while (threads < wanted) threads *= 2;
    return {threads, kSmallBlock, div_ceil(rows, std::int64_t{kSmallBlock / threads})};
  }
  const int block = static_cast<int>(wanted < max_block ? div_ceil(wanted, std::int64_t{32}) * 32 : max_block);
  return {block, block, rows};
}

}  // namespace host::row

namespace device::row {

/// A thread's row, and its number among the threads of that row. The row may lie behind the last one.
struct Place {
  std::int64_t row;
  int lane;
};

/// Where this thread works when `threads` threads share a row, in a grid that `host::row::spread` laid out.
KJIT_DEVICE Place place(int threads) {
  const int thread = static_cast<int>(threadIdx.x);
  if (threads > static_cast<int>(kWarpThreads)) return {std::int64_t{blockIdx.x}, thread};
  const int shift = __ffs(threads) - 1;  // a power of two
  return {std::int64_t{blockIdx.x} * (blockDim.x >> shift) + (thread >> shift), thread & (threads - 1)};
}

/// Reads the `N` elements at `data`, aligned to the vector's size; zeros where `data` is null.
template <typename T, std::size_t N>
KJIT_DEVICE void load_or_zero(AlignedVector<T, N>& vector, const T* data, std::int64_t index) {
  if (data == nullptr) {
    vector.fill(T{});
  } else {
    vector.load(data + index);
  }
}

/// Reads the `N` elements from `data[index]` on, wherever they lie; zeros where `data` is null.
template <typename T, std::size_t N>
KJIT_DEVICE void load_unaligned(AlignedVector<T, N>& vector, const T* data, std::int64_t index) {
#pragma unroll
  for (std::size_t i = 0; i < N; ++i) {
    vector[i] = data == nullptr ? T{} : data[index + static_cast<std::int64_t>(i)];
  }
}

/// Writes a vector to where `to` points, aligned, and lets it be the first to leave the caches (`st.global.cs`): for
/// what is not read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  constexpr std::size_t kBytes = sizeof(T) * N;
  using Small =
      std::conditional_t<kBytes == 1, unsigned char, std::conditional_t<kBytes == 2, unsigned short, unsigned>>;
  using Word = std::conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes == 8, uint2, Small>>;
  Word words[kBytes / sizeof(Word)];
  std::memcpy(words, vector.data(), kBytes);
#pragma unroll
  for (std::size_t i = 0; i < kBytes / sizeof(Word); ++i) __stcs(reinterpret_cast<Word*>(to) + i, words[i]);
}

namespace details {

template <typename S, typename Combine>
KJIT_DEVICE S reduce(S value, S neutral, int threads, Combine combine) {
  constexpr int kWarp = static_cast<int>(kWarpThreads);
  for (int offset = (threads < kWarp ? threads : kWarp) / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if (threads <= kWarp) return value;

  __shared__ S of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncthreads();  // what an earlier call has put there is read
  if (lane == 0) of_warp[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  value = lane < threads / kWarp ? of_warp[lane] : neutral;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

}  // namespace details

/// The sum of `value` over the threads that share a row, in all of them, and the same bit by bit. `S` is float, double
/// or an integer of 32 or 64 bits. All threads of the block call, those whose row lies behind the last one too.
template <typename S>
KJIT_DEVICE S reduce_sum(S value, int threads) {
  return details::reduce(value, S{}, threads, [](S a, S b) { return a + b; });
}

/// The maximum of `value` in the same way; it is at least `smallest`, also where all values are NaN.
template <typename S>
KJIT_DEVICE S reduce_max(S value, S smallest, int threads) {
  return details::reduce(value, smallest, threads, [](S a, S b) { return a < b ? b : a; });
}

}  // namespace device::row

}  // namespace kjit
