#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

constexpr int log2_of(int n) {
  if (n <= 0) throw "not positive";
  int log = 0;
  while (n >>= 1) ++log;
  return log;
}

template <int kBlock>
struct Scale {
  static constexpr int kSteps = log2_of(kBlock);
  static int64_t run(TensorView x) { return x.numel() >> kSteps; }
};
