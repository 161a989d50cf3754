#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

__global__ void scale_kernel(int* x) {
  x[threadIdx.x] = __reduce_add_sync(0xffffffff, x[threadIdx.x]);
}

void scale(TensorView x) {
  scale_kernel<<<1, 32>>>(static_cast<int*>(x.data_ptr()));
}
