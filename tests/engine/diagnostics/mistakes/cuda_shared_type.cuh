#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

template <typename T>
__global__ void scale_kernel(T* x, float alpha) {
  extern __shared__ T tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x] * alpha;
}

void scale(TensorView x, float alpha) {
  scale_kernel<<<1, 256, 1024>>>(static_cast<float*>(x.data_ptr()), alpha);
  scale_kernel<<<1, 256, 2048>>>(static_cast<double*>(x.data_ptr()), alpha);
}
