// Distribution of rows over a GPU for pattern rowwise: the number of threads that share a row, and the choice of the
// kernel. Host code without templates; the measurements that the numbers are based on are in docs/kernel-notes.md.

#pragma once

#include <dlpack/dlpack.h>
#include <kjit/utils.h>

#include <cstdint>

namespace kjit::details {

constexpr int kMaxRowBlock = 1024;
constexpr std::int64_t kMaxRowSize = std::int64_t{1} << 30;  // elements: kernels index a row with 32 bits

/// The distribution of rows over a grid.
struct RowSpread {
  int threads;        // that share a row: a power of two up to 32, or all of a cluster
  int block;          // threads in a block
  std::int64_t grid;  // blocks, side by side in x
  int cluster;        // blocks that share a row, side by side in y
};

/// The parameters of a kernel, beside the tensors.
struct RowPlan {
  std::int64_t num_rows;
  std::int64_t row_size;
  std::int64_t ahead;  // prefetch distance, in rows
  int fetched;         // bytes of a row that each warp prefetches, of each tensor
  int threads;         // that share a row
};

constexpr std::int64_t kFewBlocks = 64;  // half of the SMs of a large GPU, so that all clusters fit

/// Whether a cluster should share each of `rows` rows of `vectors` vectors although a block could hold one: there are
/// so few rows that most of the GPU is idle, and they are so long that exchanging totals takes less time than loading
/// them.
constexpr bool worth_sharing(std::int64_t rows, std::int64_t vectors, int max_cluster) {
  return max_cluster > 1 && vectors >= 1024 && rows <= kFewBlocks / 2;
}

/// The number of threads that share a row of `vectors` vectors if each holds up to `parts`: a power of two up to 32, or
/// whole warps.
constexpr std::int64_t threads_to_hold(std::int64_t vectors, int parts) {
  const std::int64_t least = host::div_ceil(vectors, std::int64_t{parts});
  if (least > 32) return host::div_ceil(least, std::int64_t{32}) * 32;
  std::int64_t lanes = 1;
  while (lanes < least) lanes *= 2;
  return lanes;
}

/// The size of the largest block for a long row, whose threads hold as many vectors as fit into their registers, so
/// that an SM runs `kMaxRowBlock` threads. A block of more than half and at most three quarters of these would leave
/// the rest of its SM idle: clusters of blocks of half the size are faster, except if it has at most 640 threads and
/// each holds exactly `parts` vectors.
constexpr int largest_block(std::int64_t vectors, int parts, int max_cluster) {
  constexpr int kHalf = kMaxRowBlock / 2, kQuarter = kMaxRowBlock / 4, kFastBlock = 640;
  std::int64_t blocks = 1;
  while (vectors > blocks * kMaxRowBlock * parts) blocks *= 2;
  const std::int64_t threads = threads_to_hold(host::div_ceil(vectors, blocks), parts);
  const bool is_fast = threads <= kFastBlock && vectors == blocks * threads * parts;
  const bool wastes = kHalf < threads && threads <= kHalf + kQuarter && !is_fast;
  return wastes && 2 * blocks <= max_cluster ? kHalf : kMaxRowBlock;
}

constexpr int kSmallBlock = 64;  // threads: a block with fewer rows ends sooner and makes room for the next

/// Distributes `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row.
///
/// - If a block of `max_block` threads, a multiple of 32, cannot hold a row, a cluster of up to `max_cluster` blocks, a
///   power of two, shares it; also if it is `worth_sharing`. If a cluster cannot hold it either, a block has the row,
///   with more vectors in each thread.
/// - If fewer than `line` threads, the number of vectors in a cache line, would share a row, a thread has at most three
///   vectors, so that more of a line is loaded at once.
/// - If there are few rows, most of the GPU is idle: a thread has at most two vectors, as more threads finish sooner.
constexpr RowSpread spread_rows(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxRowBlock,
                                int max_cluster = 1, int line = 8) {
  constexpr std::int64_t kShort = 64, kMedium = 256, kFew = 65536;
  const std::int64_t held = std::int64_t{parts} * max_block;  // vectors held by a block
  int cluster = 1;
  if (vectors <= max_cluster * held && (vectors > held || worth_sharing(rows, vectors, max_cluster))) {
    while (vectors > cluster * held ||
           (cluster < max_cluster && 2 * cluster * rows <= kFewBlocks && vectors >= 2 * cluster * kMedium)) {
      cluster *= 2;
    }
  }
  const bool few = rows * vectors <= kFew || (cluster > 1 && cluster * rows <= kFewBlocks);
  const int most = few && kShort < vectors && vectors <= kMedium ? 1 : few ? 2 : parts;
  const int each = most < parts ? most : parts;
  if (const std::int64_t lanes = threads_to_hold(vectors, each); lanes <= 32) {
    int threads = static_cast<int>(lanes);
    while (threads < line && 3 * threads < vectors) threads *= 2;
    return {threads, kSmallBlock, host::div_ceil(rows, std::int64_t{kSmallBlock / threads}), 1};
  }
  const std::int64_t share = host::div_ceil(host::div_ceil(vectors, std::int64_t{each}), std::int64_t{cluster});
  const int block = static_cast<int>(share < max_block ? host::div_ceil(share, std::int64_t{32}) * 32 : max_block);
  return {cluster * block, block, rows, cluster};
}

constexpr int kFetchedBytes = 65536;  // prefetched of a row, of all inputs together, for each block that shares it
constexpr int kWholeBytes = 81920;    // if a block's part of a row is at most this, all of it is prefetched

/// The number of vectors, of the `parts` of each thread, that a full block prefetches in each of `inputs` tensors. They
/// are kept in L2 until they are loaded.
constexpr int fetched_parts(int parts, int inputs) {
  const int most = inputs == 0 ? 0 : host::div_ceil(kFetchedBytes, inputs * kMaxRowBlock * 16);
  return most < parts ? most : parts;
}

/// The kernels of an op.
enum RowKernel : int { kUnalignedRows, kHeldRows, kShortRows, kLongRows, kRowKernels };

/// Limits that determine the choice of a kernel, from `RowTuning` and the architecture.
struct RowLimits {
  int parts, short_parts, long_parts, unaligned_parts;
  int short_block, unaligned_block;  // the largest block, in threads
  int unaligned_threads;             // the minimum to share a row: one for each element outside the vectors
  int unaligned_line;                // vectors in a cache line
  int max_cluster;                   // the maximum number of blocks that share a row
};

/// A kernel, and the distribution of rows over its grid.
struct RowChoice {
  RowKernel kernel;
  int parts;  // the maximum number of vectors in a thread
  RowSpread spread;
};

/// Chooses the kernel for `rows` rows of `vectors` vectors each, or of `unaligned_vectors` if they are not `aligned`.
RowChoice choose_rows(std::int64_t rows, std::int64_t vectors, std::int64_t unaligned_vectors, bool aligned,
                      const RowLimits& limits);

/// Sets the prefetches of `plan`: the row at a distance of as many rows as the GPU processes at once, which a block
/// begins at about the time when this one ends; 64 KiB for each block, or all if that is at most 80. None if rows are
/// few or short.
void plan_prefetch(RowPlan& plan, const void* kernel, const RowSpread& spread, std::int64_t vectors, int inputs,
                   DLDevice device);

}  // namespace kjit::details

#ifndef KJIT_PRECOMPILED
#include <kjit/detail/row_spread.cpp>
#endif
