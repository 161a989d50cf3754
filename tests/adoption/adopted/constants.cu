template <typename T, int kRepeat, bool kNegate>
__global__ void repeat(const T* x, T* y, const int n) {
  int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i >= n) return;
  T sum = 0;
#pragma unroll
  for (int k = 0; k < kRepeat; ++k) sum += x[i];
  y[i] = kNegate ? -sum : sum;
}
