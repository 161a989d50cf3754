__global__ void iota(long long* data, int N, int start) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) data[i] = start + i;
}

int main() {
  long long* data;
  cudaMalloc(&data, 1024 * sizeof(long long));
  iota<<<4, 256>>>(data, 1024, 3);
  return cudaDeviceSynchronize();
}
