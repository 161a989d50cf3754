#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

void scale(TensorView x, double alpha) {
  float* values = static_cast<float*>(x.data);
  int64_t count = x.numl();
  for (int64_t i = 0; i < count; ++i) valeus[i] *= alpha;
  x.data_pointer();
  return alhpa;
}
