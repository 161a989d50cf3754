// CUB's prefix sums of a warp, or of a power of two of its lanes.

#pragma once

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

template <typename T, int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpScan {
  using Lanes = kjit_detail::Lanes<LOGICAL_WARP_THREADS>;
  using Plus = kjit_detail::Plus;

 public:
  struct TempStorage {
    unsigned char none;
  };

  explicit WarpScan(TempStorage&) {}

  void InclusiveSum(T input, T& output) { InclusiveScan(input, output, Plus()); }
  void InclusiveSum(T input, T& output, T& aggregate) { InclusiveScan(input, output, Plus(), aggregate); }
  void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T{}, Plus()); }
  void ExclusiveSum(T input, T& output, T& aggregate) { ExclusiveScan(input, output, T{}, Plus(), aggregate); }

  template <typename Op>
  void InclusiveScan(T input, T& output, Op op) {
    output = Lanes::scan(input, op);
  }
  template <typename Op>
  void InclusiveScan(T input, T& output, Op op, T& aggregate) {
    InclusiveScan(input, output, op);
    aggregate = Lanes::of(output, LOGICAL_WARP_THREADS - 1);
  }
  /// The first lane's output is undefined; here it is its input.
  template <typename Op>
  void ExclusiveScan(T input, T& output, Op op) {
    output = Lanes::before(Lanes::scan(input, op));
  }
  template <typename Op>
  void ExclusiveScan(T input, T& output, T initial_value, Op op) {
    T inclusive;
    Scan(input, inclusive, output, initial_value, op);
  }
  template <typename Op>
  void ExclusiveScan(T input, T& output, T initial_value, Op op, T& aggregate) {
    const T inclusive = Lanes::scan(input, op);
    const T before = Lanes::before(inclusive);
    output = Lanes::lane() == 0 ? initial_value : static_cast<T>(op(initial_value, before));
    aggregate = Lanes::of(inclusive, LOGICAL_WARP_THREADS - 1);
  }
  template <typename Op>
  void Scan(T input, T& inclusive, T& exclusive, Op op) {
    inclusive = Lanes::scan(input, op);
    exclusive = Lanes::before(inclusive);
  }
  template <typename Op>
  void Scan(T input, T& inclusive, T& exclusive, T initial_value, Op op) {
    const T sum = Lanes::scan(input, op);
    const T before = Lanes::before(sum);
    inclusive = op(initial_value, sum);
    exclusive = Lanes::lane() == 0 ? initial_value : static_cast<T>(op(initial_value, before));
  }
  T Broadcast(T input, unsigned lane) { return Lanes::of(input, static_cast<int>(lane)); }
};

}  // namespace cub
