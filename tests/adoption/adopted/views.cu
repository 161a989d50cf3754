#include <kjit/launch.h>
#include <kjit/tensor.h>

namespace {

using namespace kjit;

template <typename T>
__global__ void scale_kernel(T* out, const T* x, float alpha, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = static_cast<T>(static_cast<float>(x[i]) * alpha);
}

template <typename T>
struct Scale {
  static void run(TensorView x, double alpha, TensorView out) {
    using namespace host;
    SymbolicSize B{"B"}, D{"D"};
    SymbolicDevice device;
    TensorMatcher({B, D}).with_device<kDLCUDA>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    LaunchKernel(div_ceil(x.numel(), 256), 256, device.unwrap())(scale_kernel<T>, static_cast<T*>(out.data_ptr()),
                                                                 static_cast<const T*>(x.data_ptr()), alpha, x.numel());
  }
};

}  // namespace
