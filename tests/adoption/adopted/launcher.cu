#include <cuda_runtime.h>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

namespace {

__device__ float square(float x) {
  return x * x;
}

__global__ void square_kernel(const float* src, float* dst, size_t count) {
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < count) dst[i] = square(src[i]);
}

}  // namespace

cudaError_t launch_square(const float* input, float* result, size_t count, cudaStream_t stream) {
  square_kernel<<<CEIL_DIV(count, 256), 256, 0, stream>>>(input, result, count);
  return cudaGetLastError();
}
