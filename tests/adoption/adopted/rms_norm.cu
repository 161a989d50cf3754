#include <cuda_bf16.h>

template <typename T>
__global__ void rms_norm_kernel(T* __restrict__ out, const T* __restrict__ input, const T* __restrict__ weight,
                                const float epsilon, const int hidden) {
  __shared__ float variance;
  if (threadIdx.x == 0) variance = 0;
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float x = static_cast<float>(input[int64_t{blockIdx.x} * hidden + i]);
    sum += x * x;
  }
  atomicAdd(&variance, sum);
  __syncthreads();
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    out[int64_t{blockIdx.x} * hidden + i] =
        static_cast<T>(static_cast<float>(input[int64_t{blockIdx.x} * hidden + i]) *
                       rsqrtf(variance / hidden + epsilon) * static_cast<float>(weight[i]));
  }
}

void rms_norm(__nv_bfloat16* out, __nv_bfloat16* input, __nv_bfloat16* weight, float eps, int num_tokens, int hidden,
              cudaStream_t stream) {
  if (num_tokens > 0) rms_norm_kernel<<<num_tokens, 128, 0, stream>>>(out, input, weight, eps, hidden);
}
