// CUB's operators. From CCCL 3 on most are those of libcu++ (`cuda::maximum<>`, `cuda::std::plus<>`).

#pragma once

#include <cuda/std/__cccl/version.h>
#include <cub/util_type.cuh>
#include <cuda/functional>
#include <cuda/std/functional>

namespace cub {

struct ArgMax {
  template <typename K, typename V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
    return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <typename K, typename V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

#if CCCL_MAJOR_VERSION < 3
#define KJIT_SIM_OPERATOR(name, expression)         \
  struct name {                                     \
    template <typename T, typename U>               \
    auto operator()(const T& a, const U& b) const { \
      return expression;                            \
    }                                               \
  };
KJIT_SIM_OPERATOR(Sum, a + b)
KJIT_SIM_OPERATOR(Difference, a - b)
KJIT_SIM_OPERATOR(Division, a / b)
KJIT_SIM_OPERATOR(Max, a < b ? b : a)
KJIT_SIM_OPERATOR(Min, b < a ? b : a)
KJIT_SIM_OPERATOR(Equality, a == b)
KJIT_SIM_OPERATOR(Inequality, a != b)
#undef KJIT_SIM_OPERATOR
#endif

}  // namespace cub
