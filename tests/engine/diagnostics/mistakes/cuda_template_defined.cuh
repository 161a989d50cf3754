template <typename T>
__global__ void scale_kernel(T* x, T alpha) {
  *x *= alpha;
}

template __global__ void scale_kernel<float>(float*, float);
