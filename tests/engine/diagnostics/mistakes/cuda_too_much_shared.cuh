#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

template <typename T>
__global__ void scale_kernel(T* x, float alpha) {
  __shared__ T tile[256][256];
  for (int row = 0; row < 256; ++row) tile[row][threadIdx.x] = x[row * 256 + threadIdx.x];
  __syncthreads();
  for (int row = 0; row < 256; ++row) x[row * 256 + threadIdx.x] = tile[row][255 - threadIdx.x] * alpha;
}

template <typename T>
struct Scale {
  static void run(TensorView x, float alpha) { scale_kernel<<<1, 256>>>(static_cast<T*>(x.data_ptr()), alpha); }
};
