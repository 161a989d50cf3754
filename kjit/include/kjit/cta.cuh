// Reductions over all threads of a block.
//
//   __shared__ float smem[device::kWarpThreads];
//   const float peak = device::cta::reduce_max(x, smem);          // in every thread, for a block of any size
//   const float total = device::cta::reduce_sum<256>(x, smem);    // slightly faster: the size is a constant
//
// `smem` has one element for each warp, including a partial one (32 are always enough). All threads of the block must
// call. After the call `smem[0]` holds the result as well, and `smem` may be read or reused at once. A call costs two
// `__syncthreads()`, three if the block is not a multiple of 32 threads, and none for a single warp; it uses one more
// element of static shared memory.
//
// Values are converted to the element type of `smem` and reduced in it: half-precision values with a `float` array are
// summed in float. The result is bitwise the same in all threads. The maximum and the minimum ignore NaN unless all
// values are NaN, and need no initial value: all values may be negative.

#pragma once

#include <kjit/bits.h>
#include <kjit/device.cuh>
#include <kjit/type.cuh>
#include <kjit/warp.cuh>

#include <cstdint>
#include <type_traits>

namespace kjit::device::cta {

namespace details {

/// Reduces the first `lanes` lanes of a warp that has no others.
template <ReductionOp Op, typename S>
KJIT_DEVICE S reduce_lanes(S value, std::uint32_t lanes) {
  if (lanes == kWarpThreads) return warp::reduce<Op>(value);
  using Trait = ReductionTrait<Op, S>;
  const warp::mask_t active_mask = warp::kFullMask >> (kWarpThreads - lanes);
  const std::uint32_t lane = get_lane_id();
#pragma unroll
  for (std::uint32_t offset = kWarpThreads / 2; offset > 0; offset /= 2) {
    const std::uint32_t other = lane + offset;
    const S theirs = warp::broadcast(value, other < lanes ? other : lane, active_mask);
    if (other < lanes) value = Trait::reduce(value, theirs);
  }
  return warp::broadcast(value, 0, active_mask);
}

/// `kThreads` is the block size, or 0 if it is known only at run time.
template <ReductionOp Op, std::uint32_t kThreads, typename S>
KJIT_DEVICE S reduce(S value, S* smem) {
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  // Warp 0 keeps its result out of smem[0], so that the total can be written there while others still read: saves a
  // barrier.
  __shared__ S first;

  const std::uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const std::uint32_t threads = kThreads > 0 ? kThreads : blockDim.x * blockDim.y * blockDim.z;
  const std::uint32_t warps = div_ceil(threads, kWarpThreads);
  const std::uint32_t warp_id = thread / kWarpThreads;
  const std::uint32_t lane = thread % kWarpThreads;
  const bool whole_warps = threads % kWarpThreads == 0;
  const std::uint32_t lanes = whole_warps || warp_id + 1 < warps ? kWarpThreads : threads % kWarpThreads;

  value = reduce_lanes<Op>(value, lanes);
  if (warps == 1) {
    const warp::mask_t active_mask = warp::kFullMask >> (kWarpThreads - lanes);
    __syncwarp(active_mask);
    if (lane == 0) smem[0] = value;
    __syncwarp(active_mask);
    return value;
  }

  if (lane == 0) *(warp_id == 0 ? &first : &smem[warp_id]) = value;
  __syncthreads();
  if (lanes == kWarpThreads) {
    // Lanes without a warp contribute a neutral value: zero, or the last value again.
    constexpr std::uint32_t kWidth = kThreads > 0 ? host::round_up_pow2((kThreads + 31) / 32) : kWarpThreads;
    const std::uint32_t place = lane % kWidth;
    const std::uint32_t index = place < warps ? place : warps - 1;
    value = index == 0 ? first : smem[index];
    if constexpr (Op == ReductionOp::SUM) {
      if (place >= warps) value = S{};
    }
    value = warp::reduce<Op, kWidth>(value);
  }
  if (thread == 0) smem[0] = value;
  __syncthreads();
  // A partial warp has too few lanes to reduce in the same order as the others.
  if (!whole_warps) {
    value = smem[0];
    __syncthreads();
  }
  return value;
}

}  // namespace details

/// The sum of `value` over the block, in every thread. `kNumThreads` is the block size.
template <int kNumThreads, typename T, typename S>
KJIT_DEVICE S reduce_sum(T value, S* smem) {
  static_assert(kNumThreads > 0, "a block has threads");
  return details::reduce<ReductionOp::SUM, kNumThreads>(static_cast<S>(value), smem);
}
/// The same for a block size that is known only at run time.
template <typename T, typename S>
KJIT_DEVICE S reduce_sum(T value, S* smem) {
  return details::reduce<ReductionOp::SUM, 0>(static_cast<S>(value), smem);
}

/// The maximum of `value` over the block, in every thread.
template <int kNumThreads, typename T, typename S>
KJIT_DEVICE S reduce_max(T value, S* smem) {
  static_assert(kNumThreads > 0, "a block has threads");
  return details::reduce<ReductionOp::MAX, kNumThreads>(static_cast<S>(value), smem);
}
template <typename T, typename S>
KJIT_DEVICE S reduce_max(T value, S* smem) {
  return details::reduce<ReductionOp::MAX, 0>(static_cast<S>(value), smem);
}
/// At least `min_value`, even if all values are NaN.
template <typename T, typename S>
KJIT_DEVICE S reduce_max(T value, S* smem, std::type_identity_t<S> min_value) {
  return reduce_max(ReductionTrait<ReductionOp::MAX, S>::reduce(static_cast<S>(value), min_value), smem);
}

/// The minimum of `value` over the block, in every thread.
template <int kNumThreads, typename T, typename S>
KJIT_DEVICE S reduce_min(T value, S* smem) {
  static_assert(kNumThreads > 0, "a block has threads");
  return details::reduce<ReductionOp::MIN, kNumThreads>(static_cast<S>(value), smem);
}
template <typename T, typename S>
KJIT_DEVICE S reduce_min(T value, S* smem) {
  return details::reduce<ReductionOp::MIN, 0>(static_cast<S>(value), smem);
}

}  // namespace kjit::device::cta
