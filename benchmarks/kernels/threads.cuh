// Many threads that do little: what a thread costs, and a barrier.

#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 256;

__global__ void elements_kernel(float* out, const float* in, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < n) out[i] = 2.0f * in[i] + 1.0f;
}

/// One thread for each element.
void elements(TensorView out, TensorView in) {
  host::LaunchKernel(host::div_ceil(out.numel(), kBlock), kBlock, out.device())(
      elements_kernel, static_cast<float*>(out.data_ptr()), static_cast<const float*>(in.data_ptr()), out.numel());
}

/// Values go round the block, one place for each barrier.
__global__ void barriers_kernel(float* out, const float* in, int barriers) {
  __shared__ float values[2][kBlock];
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  float value = in[i];
  for (int round = 0; round < barriers; ++round) {
    values[round % 2][threadIdx.x] = value;
    __syncthreads();
    value = values[round % 2][(threadIdx.x + 1) % kBlock];
  }
  out[i] = value;
}

/// The elements are a multiple of a block.
void barriers(TensorView out, TensorView in, int64_t barriers) {
  host::LaunchKernel(out.numel() / kBlock, kBlock, out.device())(barriers_kernel, static_cast<float*>(out.data_ptr()),
                                                                 static_cast<const float*>(in.data_ptr()),
                                                                 static_cast<int>(barriers));
}

/// Sums of warps.
__global__ void shuffles_kernel(float* out, const float* in) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  float sum = in[i];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  out[i] = sum;
}

void shuffles(TensorView out, TensorView in) {
  host::LaunchKernel(out.numel() / kBlock, kBlock, out.device())(shuffles_kernel, static_cast<float*>(out.data_ptr()),
                                                                 static_cast<const float*>(in.data_ptr()));
}

}  // namespace
