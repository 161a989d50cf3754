// Prefix sums over a cooperative group of up to a warp, in rank order.
//
//   const int before = cg::exclusive_scan(tile, x);
//   const int largest = cg::inclusive_scan(tile, x, cg::greater<int>());

#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <typename Group, typename T, typename Op = plus<T>>
T inclusive_scan(const Group& group, T value, Op op = {}) {
  T result = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.size(); ++rank) {
    const T next = group.shfl(value, static_cast<int>(rank));
    if (rank <= group.thread_rank()) result = op(result, next);
  }
  return result;
}
/// The first thread gets T().
template <typename Group, typename T, typename Op = plus<T>>
T exclusive_scan(const Group& group, T value, Op op = {}) {
  const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
  return group.thread_rank() == 0 ? T() : before;
}

}  // namespace cooperative_groups
