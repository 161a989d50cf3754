#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

__global__ void scale_kernel(fp16_t* x, float alpha, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<fp16_t>(static_cast<float>(x[i]) * alpha);
}
