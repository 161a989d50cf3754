#include <kjit/tensor.h>

using namespace kjit;

__global__ int scale_kernel(float* x) {
  x[threadIdx.x] *= 2.0f;
  return 0;
}

void scale(TensorView x) {
  scale_kernel<<<1, 32>>>(static_cast<float*>(x.data_ptr()));
}
