#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

void scale_rows(const float* from, float* to, double alpha, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) to[i] = static_cast<float>(from[i] * alpha);
}

void scale(TensorView x, double alpha, TensorView out) {
  scale_rows(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), x.numel());
}
