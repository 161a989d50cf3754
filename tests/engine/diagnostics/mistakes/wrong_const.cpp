#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

void scale(TensorView x, double alpha, TensorView out) {
  float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<float>(from[i] * alpha);
}
