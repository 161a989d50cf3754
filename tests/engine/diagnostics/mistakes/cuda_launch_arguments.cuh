#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

template <typename T>
__global__ void scale_kernel(T* x, float alpha, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<T>(static_cast<float>(x[i]) * alpha);
}

void scale(TensorView x, float alpha) {
  scale_kernel<float><<<1, 256>>>(static_cast<float*>(x.data_ptr()), alpha);
}
