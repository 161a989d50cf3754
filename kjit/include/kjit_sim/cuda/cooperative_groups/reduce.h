// Reductions over a cooperative group of up to a warp, in rank order.
//
//   const float total = cg::reduce(tile, x, cg::plus<float>());

#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

#define KJIT_SIM_OPERATION(name, expression)                            \
  template <typename T>                                                 \
  struct name {                                                         \
    T operator()(T a, T b) const { return static_cast<T>(expression); } \
  };
KJIT_SIM_OPERATION(plus, a + b)
KJIT_SIM_OPERATION(less, b < a ? b : a)
KJIT_SIM_OPERATION(greater, a < b ? b : a)
KJIT_SIM_OPERATION(bit_and, a& b)
KJIT_SIM_OPERATION(bit_or, a | b)
KJIT_SIM_OPERATION(bit_xor, a ^ b)
#undef KJIT_SIM_OPERATION

/// Every thread gets the result.
template <typename Group, typename T, typename Op>
T reduce(const Group& group, T value, Op op) {
  T result = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.size(); ++rank) result = op(result, group.shfl(value, static_cast<int>(rank)));
  return result;
}

}  // namespace cooperative_groups
