// dst = src + kConstant for int32 tensors on a GPU: one vector a thread where both are aligned, else one element.

#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 128;
constexpr int64_t kVector = device::kMaxVecBytes / sizeof(int32_t);

template <int32_t kConstant>
__global__ void __launch_bounds__(kBlock)
    add_constant_kernel(int32_t* dst, const int32_t* src, int64_t n, int64_t vectors) {
  device::PDLBegin();
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < vectors) {
    device::AlignedVector<int32_t, kVector> values;
    values.load(src, i);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] += kConstant;
    values.store(dst, i);
    return;
  }
  const int64_t rest = vectors * kVector + (i - vectors);
  if (rest < n) dst[rest] = src[rest] + kConstant;
}

template <int32_t kConstant>
void add_constant(TensorView dst, TensorView src) {
  using namespace host;
  SymbolicSize n{"n"};
  SymbolicDevice gpu;
  TensorMatcher({n}).with_dtype<int32_t>().with_device<kDLCUDA>(gpu).verify(dst, "dst").verify(src, "src");
  auto* to = static_cast<int32_t*>(dst.data_ptr());
  const auto* from = static_cast<const int32_t*>(src.data_ptr());
  const auto misaligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % device::kMaxVecBytes;
  const int64_t vectors = misaligned != 0 ? 0 : n.unwrap() / kVector;
  const int64_t threads = vectors + (n.unwrap() - vectors * kVector);
  LaunchKernel(div_ceil(threads, kBlock), kBlock, gpu.unwrap())
      .enable_pdl()(add_constant_kernel<kConstant>, to, from, n.unwrap(), vectors);
}

}  // namespace
