// The functions of kjit/detail/row_spread.h that are not constexpr (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <cuda_runtime_api.h>
#include <kjit/launch.h>

#include <kjit/detail/row_spread.h>

#include <cstdint>

namespace kjit::details {

KJIT_IMPL RowChoice choose_rows(std::int64_t rows, std::int64_t vectors, std::int64_t unaligned_vectors, bool aligned,
                                const RowLimits& limits) {
  // If a block would be alone on an SM, its threads hold more of a row, unless the row fills whole warps exactly.
  const int in_short = limits.short_block * limits.short_parts, in_half = kMaxRowBlock / 2 * limits.parts;
  const bool fits = vectors <= (in_short < in_half ? in_short : in_half) ||
                    (vectors % (32 * limits.parts) == 0 && vectors <= kMaxRowBlock * limits.parts);
  if (!aligned || vectors > std::int64_t{limits.max_cluster} * kMaxRowBlock * limits.long_parts) {
    const int parts = limits.unaligned_parts, block = limits.unaligned_block, least = limits.unaligned_threads;
    const std::int64_t most = std::int64_t{limits.max_cluster} * block * parts;
    const std::int64_t held = unaligned_vectors < most ? unaligned_vectors : most;
    RowSpread spread = spread_rows(rows, held, parts, block, limits.max_cluster, limits.unaligned_line);
    if (spread.threads < least) {
      spread = {least, kSmallBlock, host::div_ceil(rows, std::int64_t{kSmallBlock / least}), 1};
    }
    return {kUnalignedRows, parts, spread};
  }
  if (!fits || worth_sharing(rows, vectors, limits.max_cluster)) {
    const int parts = limits.long_parts;
    const RowSpread spread =
        spread_rows(rows, vectors, parts, largest_block(vectors, parts, limits.max_cluster), limits.max_cluster);
    return {kLongRows, parts, spread};
  }
  const RowSpread spread = spread_rows(rows, vectors, limits.parts);
  // For short rows a thread holds less: with fewer registers each, more threads run.
  if (vectors == std::int64_t{spread.threads} * limits.parts && (limits.parts <= limits.short_parts || vectors > 64)) {
    return {kHeldRows, limits.parts, spread};
  }
  return {kShortRows, limits.short_parts, spread_rows(rows, vectors, limits.short_parts, limits.short_block)};
}

/// The number of blocks of `kernel` that an SM runs at once, without dynamic shared memory. Cached, because the query
/// takes longer than most steps of a launch.
KJIT_IMPL int blocks_per_sm(const void* kernel, int block, DLDevice device) {
  struct Answer {
    const void* kernel;
    int device;
    int blocks;
  };
  static thread_local Answer known[kMaxRowBlock / 32 + 1];
  Answer& answer = known[block / 32];
  if (answer.kernel != kernel || answer.device != device.device_id) {
    const host::DeviceGuard guard(device.device_id);
    int blocks = 0;
    host::RuntimeDeviceCheck(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block, 0));
    answer = {kernel, device.device_id, blocks};
  }
  return answer.blocks;
}

KJIT_IMPL void plan_prefetch(RowPlan& plan, const void* kernel, const RowSpread& spread, std::int64_t vectors,
                             int inputs, DLDevice device) {
  constexpr int kVec = 16, kLeastThreads = 128;
  if (spread.threads < kLeastThreads || inputs == 0) return;
  int sms = 0;
  host::RuntimeDeviceCheck(::cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  if (spread.grid * spread.cluster <= sms) return;
  const std::int64_t at_a_time = std::int64_t{sms} * blocks_per_sm(kernel, spread.block, device) / spread.cluster;
  if (plan.num_rows <= at_a_time) return;
  const std::int64_t most = std::int64_t{kFetchedBytes} / inputs * spread.cluster, all = vectors * kVec;
  const std::int64_t bytes = most < all && inputs * all > spread.cluster * std::int64_t{kWholeBytes} ? most : all;
  constexpr int kOfWarp = 32 * kVec;  // bytes that a warp loads at once
  plan.ahead = at_a_time;
  plan.fetched = static_cast<int>(host::div_ceil(bytes, std::int64_t{spread.threads / 32 * kOfWarp})) * kOfWarp;
}

}  // namespace kjit::details
