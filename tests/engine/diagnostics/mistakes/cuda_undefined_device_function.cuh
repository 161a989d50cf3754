#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

__device__ float factor_of(int64_t i);

__global__ void scale_kernel(float* x) {
  x[threadIdx.x] *= factor_of(threadIdx.x);
}

void scale(TensorView x) {
  scale_kernel<<<1, 256>>>(static_cast<float*>(x.data_ptr()));
}
