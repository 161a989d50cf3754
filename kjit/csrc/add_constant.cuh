// add_constant: element by element, as fast as memory goes.
//
//     x: T[...], constant: const int = 1 -> out: T[...]

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>

#include <cstdint>

namespace {

using namespace kjit;

/// One element of every tensor.
template <typename T, int64_t constant>
KJIT_DEVICE void add_constant_element(const T& x_ref, T& out_ref) {
  const compute_t<T> x = widen(x_ref);
  // The math, as in `reference` of tests/ops/test_add_constant.py (in compute_t<T>: float for narrower types).
  const compute_t<T> out = x + constant;
  out_ref = static_cast<T>(out);
}

constexpr int kBlock = 128;  // threads in a block

template <typename T>
struct AddConstantParams {
  const T* x;
  T* out;
  int64_t numel;
  int64_t head;     // elements before the first vector
  int64_t vectors;  // vectors of kVec elements
};

/// A thread moves kUnroll vectors of every tensor, and all of its loads go out before the first result is needed.
/// Threads beyond the last vector take one element each, of those before the first vector and behind the last.
template <typename T, int64_t constant, int kVec, int kUnroll>
__global__ void __launch_bounds__(kBlock) add_constant_kernel(const AddConstantParams<T> params) {
  device::PDLBegin();  // what ran before has ended: nothing is read or written ahead of this
  const int64_t first = int64_t{blockIdx.x} * (kBlock * kUnroll) + threadIdx.x;
  device::AlignedVector<T, kVec> x_vec[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64_t at = first + i * kBlock;
    if (at >= params.vectors) break;
    x_vec[i].load(params.x + params.head, at);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    int64_t at = first + i * kBlock;
    if (at < params.vectors) {
      device::AlignedVector<T, kVec> out_vec;
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        add_constant_element<T, constant>(x_vec[i][j], out_vec[j]);
      }
      out_vec.store(params.out + params.head, at);
    } else {
      at -= params.vectors;
      if (at >= params.head) at += params.vectors * kVec;
      if (at >= params.numel) break;
      add_constant_element<T, constant>(params.x[at], params.out[at]);
    }
  }
}

/// How many elements come before the first one that is aligned to a vector of kVec elements in every tensor; -1 where
/// the tensors never are at the same time.
template <int kVec, typename... Ts>
int64_t aligned_head(const Ts*... pointers) {
  const uintptr_t heads[] = {-reinterpret_cast<uintptr_t>(pointers) % (kVec * sizeof(Ts)) / sizeof(Ts)...};
  for (const uintptr_t head : heads) {
    if (head != heads[0]) return -1;
  }
  return static_cast<int64_t>(heads[0]);
}

template <typename T, int64_t constant>
struct AddConstant {
  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicShape shape{"shape"};
    SymbolicDevice gpu;
    TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x").verify(out, "out");

    const int64_t numel = shape.numel();
    if (numel == 0) return;

    AddConstantParams<T> params{
        .x = static_cast<const T*>(x.data_ptr()),
        .out = static_cast<T*>(out.data_ptr()),
        .numel = numel,
        .head = 0,
        .vectors = numel,
    };
    constexpr int kVec = device::kMaxVecBytes / sizeof(T);
    // One vector a thread, or as many single elements where the tensors are never aligned at the same time.
    void (*kernel)(const AddConstantParams<T>) = add_constant_kernel<T, constant, 1, kVec>;
    int64_t threads = div_ceil(numel, kVec);
    const int64_t head = aligned_head<kVec>(params.x, params.out);
    if (head >= 0) {
      kernel = add_constant_kernel<T, constant, kVec, 1>;
      params.head = head < numel ? head : numel;
      params.vectors = (numel - params.head) / kVec;
      threads = numel - params.vectors * (kVec - 1);
    }
    LaunchKernel(div_ceil(threads, kBlock), kBlock, gpu.unwrap()).enable_pdl()(kernel, params);
  }
};

}  // namespace
