// How pattern rowwise lays rows over a GPU: how many threads share a row, and which of its kernels has it. Plain
// functions and numbers; docs/kernel-notes.md has what was measured to find them.

#pragma once

#include <dlpack/dlpack.h>
#include <kjit/utils.h>

#include <cstdint>

namespace kjit::details {

constexpr int kMaxRowBlock = 1024;
constexpr std::int64_t kMaxRowSize = std::int64_t{1} << 30;  // elements: kernels count those of a row in 32 bits

/// How a row is shared.
struct RowSpread {
  int threads;        // that share a row: a power of two up to 32, or those of a cluster
  int block;          // threads of a block
  std::int64_t grid;  // blocks, side by side in x
  int cluster;        // blocks that share a row, side by side in y
};

/// What a kernel whose rows are in registers is told.
struct RowPlan {
  std::int64_t num_rows;
  std::int64_t row_size;
  std::int64_t ahead;  // prefetch distance, in rows
  int fetched;         // bytes of a row that each warp prefetches, of each tensor
  int threads;         // that share a row
};

constexpr std::int64_t kFewBlocks = 64;  // half of a large GPU, so that all clusters find a place

/// Whether a cluster should share each of `rows` rows of `vectors` vectors, though a block could hold one: where they
/// are so few that most of the GPU is idle, and so long that it takes less time to exchange totals than to read them.
constexpr bool worth_sharing(std::int64_t rows, std::int64_t vectors, int max_cluster) {
  return max_cluster > 1 && vectors >= 1024 && rows <= kFewBlocks / 2;
}

/// Threads that share a row of `vectors` vectors where each holds up to `parts`: a power of two up to 32 lanes of a
/// warp, else whole warps.
constexpr std::int64_t threads_to_hold(std::int64_t vectors, int parts) {
  const std::int64_t least = host::div_ceil(vectors, std::int64_t{parts});
  if (least > 32) return host::div_ceil(least, std::int64_t{32}) * 32;
  std::int64_t lanes = 1;
  while (lanes < least) lanes *= 2;
  return lanes;
}

/// Threads of the largest block for a long row, where a thread has as many vectors as its registers hold, and an SM has
/// room for `kMaxRowBlock` threads. Clusters of smaller blocks are faster where a block would have three quarters of
/// those threads or fewer, but more than half, and be alone on its SM. Of these, up to 640 threads that have `parts`
/// vectors each are fast as they are.
constexpr int largest_block(std::int64_t vectors, int parts, int max_cluster) {
  constexpr int kHalf = kMaxRowBlock / 2, kQuarter = kMaxRowBlock / 4, kFastBlock = 640;
  std::int64_t blocks = 1;
  while (vectors > blocks * kMaxRowBlock * parts) blocks *= 2;
  const std::int64_t threads = threads_to_hold(host::div_ceil(vectors, blocks), parts);
  const bool is_fast = threads <= kFastBlock && vectors == blocks * threads * parts;
  const bool wastes = kHalf < threads && threads <= kHalf + kQuarter && !is_fast;
  return wastes && 2 * blocks <= max_cluster ? kHalf : kMaxRowBlock;
}

constexpr int kSmallBlock = 64;  // threads: the fewer rows a block has, the sooner the SM has room for others

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row. Where a
/// block of `max_block` threads, a multiple of 32, cannot hold the row so, a cluster of up to `max_cluster` shares it,
/// a power of two; where that cannot either, a block has it, and a thread more. A thread has at most three vectors
/// where fewer threads could share a row than a cache line has vectors, `line`, as more of it is read in one go then,
/// and of few rows at most two: most of the GPU is idle, and the more threads a row has, the sooner it is done. A
/// cluster shares those that are `worth_sharing`, too.
constexpr RowSpread spread_rows(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxRowBlock,
                                int max_cluster = 1, int line = 8) {
  constexpr std::int64_t kShort = 64, kMedium = 256, kFew = 65536;
  const std::int64_t held = std::int64_t{parts} * max_block;  // by a block
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

constexpr int kFetchedBytes = 65536;  // of a row, in all inputs, for each block that works on it
constexpr int kWholeBytes = 81920;    // what a block has of a row, at most, where all of that is fetched

/// How many of the `parts` vectors of each of its threads a full block asks for ahead of its turn, in each of `inputs`
/// tensors: they stay in the L2 cache until they are read.
constexpr int fetched_parts(int parts, int inputs) {
  const int most = inputs == 0 ? 0 : host::div_ceil(kFetchedBytes, inputs * kMaxRowBlock * 16);
  return most < parts ? most : parts;
}

/// The kernels of an op, as `RowChoice` numbers them.
enum RowKernel : int { kUnalignedRows, kHeldRows, kShortRows, kLongRows, kRowKernels };

/// What the choice of a kernel depends on: numbers of `RowTuning`, and of the architecture.
struct RowLimits {
  int parts, short_parts, long_parts, unaligned_parts;
  int short_block, unaligned_block;  // threads at most
  int unaligned_threads;             // that share a row, at least: one for each single element
  int unaligned_line;                // vectors of a cache line
  int max_cluster;                   // blocks that may share a row
};

/// Which kernel has the rows, and how.
struct RowChoice {
  RowKernel kernel;
  int parts;  // vectors that a thread has at most
  RowSpread spread;
};

/// Chooses for `rows` rows of `vectors` vectors each, or of `unaligned_vectors` where they are not aligned.
RowChoice choose_rows(std::int64_t rows, std::int64_t vectors, std::int64_t unaligned_vectors, bool aligned,
                      const RowLimits& limits);

/// Lets `plan` say what is prefetched: of the row that is begun about when this one is done, as many rows further as
/// the GPU works on at a time, 64 KiB for each block, or 80 where it has no more. Nothing where rows are few or short.
void plan_prefetch(RowPlan& plan, const void* kernel, const RowSpread& spread, std::int64_t vectors, int inputs,
                   DLDevice device);

}  // namespace kjit::details

#ifndef KJIT_PRECOMPILED
#include <kjit/detail/row_spread.cpp>
#endif
