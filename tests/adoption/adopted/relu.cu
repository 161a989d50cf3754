namespace ops {

template <typename scalar_t, int kItems = 1>
__global__ void __launch_bounds__(128, 4) relu_kernel(const scalar_t* in, scalar_t* out, int64_t numel) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < numel) out[i] = in[i] > scalar_t(0) ? in[i] : scalar_t(0);
}

}  // namespace ops
