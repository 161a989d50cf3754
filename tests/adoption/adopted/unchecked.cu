#include <kjit/tensor.h>

void copy(kjit::TensorView x, kjit::TensorView out) {
  cudaMemcpyAsync(out.data_ptr(), x.data_ptr(), x.numel() * 4, cudaMemcpyDeviceToDevice, 0);
}
