#include <cuda_fp16.h>

__global__ void add_half(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, unsigned n) {
  unsigned i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < n) {
    reinterpret_cast<half2*>(c)[i / 2] =
        __hadd2(reinterpret_cast<const half2*>(a)[i / 2], reinterpret_cast<const half2*>(b)[i / 2]);
  } else if (i < n) {
    c[i] = __hadd(a[i], b[i]);
  }
}
