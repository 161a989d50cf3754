#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

float clamp_to(float x, float limit) {
  return x < limit ? x : limit;
}
int clamp_to(int x, int limit) {
  return x < limit ? x : limit;
}

void scale(TensorView x, double alpha) {
  float* values = static_cast<float*>(x.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) values[i] = clamp_to(i, alpha);
}
