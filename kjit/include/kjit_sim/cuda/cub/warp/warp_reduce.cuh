// CUB's reductions of a warp, or of a power of two of its lanes. The result is valid in the first lane.

#pragma once

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

template <typename T, int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpReduce {
  using Lanes = kjit_detail::Lanes<LOGICAL_WARP_THREADS>;

 public:
  struct TempStorage {
    unsigned char none;
  };

  explicit WarpReduce(TempStorage&) {}

  template <typename Op>
  T Reduce(T value, Op op) {
    return Lanes::reduce(value, LOGICAL_WARP_THREADS - 1, op);
  }
  template <typename Op>
  T Reduce(T value, Op op, int valid_items) {
    return Lanes::reduce(value, valid_items - 1, op);
  }
  T Sum(T value) { return Reduce(value, kjit_detail::Plus()); }
  T Sum(T value, int valid_items) { return Reduce(value, kjit_detail::Plus(), valid_items); }
  T Max(T value) { return Reduce(value, ::cuda::maximum<>()); }
  T Min(T value) { return Reduce(value, ::cuda::minimum<>()); }

  /// One result for each segment, in its first lane. A head flag marks the first lane of a segment.
  template <typename Flag, typename Op>
  T HeadSegmentedReduce(T value, Flag head_flag, Op op) {
    return segmented(value, flags(head_flag) >> 1, op);
  }
  /// A tail flag marks the last lane of a segment.
  template <typename Flag, typename Op>
  T TailSegmentedReduce(T value, Flag tail_flag, Op op) {
    return segmented(value, flags(tail_flag), op);
  }
  template <typename Flag>
  T HeadSegmentedSum(T value, Flag head_flag) {
    return HeadSegmentedReduce(value, head_flag, kjit_detail::Plus());
  }
  template <typename Flag>
  T TailSegmentedSum(T value, Flag tail_flag) {
    return TailSegmentedReduce(value, tail_flag, kjit_detail::Plus());
  }

 private:
  template <typename Flag>
  static unsigned flags(Flag flag) {
    const unsigned all = __ballot_sync(Lanes::mask(), static_cast<bool>(flag));
    return (all & Lanes::mask()) >> (kjit_sim::lane_id() / LOGICAL_WARP_THREADS * LOGICAL_WARP_THREADS);
  }
  template <typename Op>
  static T segmented(T value, unsigned last_lanes, Op op) {
    const int last = __ffs(static_cast<int>(last_lanes >> Lanes::lane()));
    return Lanes::reduce(value, last == 0 ? LOGICAL_WARP_THREADS - 1 : Lanes::lane() + last - 1, op);
  }
};

}  // namespace cub
