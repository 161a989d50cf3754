#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

static float offset = 2.0f;

template <typename T>
__global__ void scale_kernel(T* x, float alpha, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<T>(static_cast<float>(x[i]) * alpha + offset);
}

template <typename T>
struct Scale {
  static void run(TensorView x, float alpha) {
    using namespace host;
    SymbolicSize n{"n"};
    SymbolicDevice gpu;
    TensorMatcher({n}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
    LaunchKernel(div_ceil(n.unwrap(), 256), 256, gpu.unwrap())(scale_kernel<T>, x.data_ptr(), alpha, n.unwrap());
  }
};
