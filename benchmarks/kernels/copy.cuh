// dst = src for contiguous tensors of one dtype, at the speed of memory: 16 bytes a thread.

#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <kjit/device.cuh>

#include <cstdint>

#include "split.cuh"

namespace {

using namespace kjit;

constexpr int kBlock = 128;

/// Aligned vectors are read. They are written whole where `dst` is aligned with `src`, else element by element.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kBlock) copy_kernel(T* dst, const T* src, const Split split) {
  constexpr int kVec = 16 / sizeof(T);
  device::PDLBegin();
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < split.vectors) {
    device::AlignedVector<T, kVec> values;
    values.load(src + split.head, i);
    if constexpr (kWhole) {
      values.store(dst + split.head, i);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) dst[split.head + i * kVec + j] = values[j];
    }
  } else {
    const int64_t single = split.element(i);
    if (single < split.numel) dst[single] = src[single];
  }
}

template <typename T>
struct Copy {
  static void run(TensorView dst, TensorView src) {
    using namespace host;
    SymbolicShape shape{"shape"};
    SymbolicDevice gpu;
    TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(dst, "dst").verify(src, "src");
    auto* to = static_cast<T*>(dst.data_ptr());
    const auto* from = static_cast<const T*>(src.data_ptr());
    const Split split = Split::of(from, shape.numel(), sizeof(T), 16 / sizeof(T));
    const bool whole = reinterpret_cast<uintptr_t>(to + split.head) % 16 == 0;
    LaunchKernel(div_ceil(split.items(), kBlock), kBlock, gpu.unwrap())
        .enable_pdl()(whole ? copy_kernel<T, true> : copy_kernel<T, false>, to, from, split);
  }
};

}  // namespace
