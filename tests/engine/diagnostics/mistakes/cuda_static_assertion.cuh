#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

using namespace kjit;

template <typename T, int kVector>
struct Pack {
  static_assert(sizeof(T) * kVector <= 16, "a thread loads at most 16 bytes at once");
  T values[kVector];
};

template <typename T, int kVector>
__global__ void scale_kernel(T* x, float alpha) {
  auto pack = reinterpret_cast<Pack<T, kVector>*>(x)[threadIdx.x];
  for (T& value : pack.values) value *= alpha;
  reinterpret_cast<Pack<T, kVector>*>(x)[threadIdx.x] = pack;
}

template <typename T, int kVector>
struct Scale {
  static void run(TensorView x, float alpha) {
    scale_kernel<T, kVector><<<1, 256>>>(static_cast<T*>(x.data_ptr()), alpha);
  }
};
