__global__ void histogram(const int* values, int* bins, int num_values, int num_bins) {
  extern __shared__ int local[];
  for (int i = threadIdx.x; i < num_bins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < num_values; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[values[i]], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < num_bins; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
