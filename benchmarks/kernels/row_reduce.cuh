// The maximum or the sum of each row: output[i] = max(input[i]) or sum(input[i]), added up in float and rounded once.
//
// NaN are left out of a maximum, unless the whole row is NaN.

#define KJIT_LIGHT_TYPES

#include <kjit/tensor.h>
#include <kjit/runtime.cuh>

#include <kjit/cta.cuh>
#include <kjit/type.cuh>
#include <kjit/warp.cuh>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace {

using namespace kjit;
using device::ReductionOp;

constexpr uint32_t kBlock = 256;
constexpr uint32_t kBlocksPerSM = 8;

struct RowReduceParams {
  const void* input;
  void* output;
  int64_t stride;  // elements from row to row
  int64_t rows;
  int64_t columns;
  int64_t vectors;  // of 16 bytes at the start of each row, none where rows are not aligned
};

/// `kThreads` threads take a row: a power of two of lanes, or the block.
template <ReductionOp kOp, typename T, uint32_t kThreads>
__global__ void __launch_bounds__(kBlock, kBlocksPerSM)
    row_reduce_kernel(const __grid_constant__ RowReduceParams params) {
  using namespace device;
  using Pair = packed_t<T>;
  using Sum = std::conditional_t<kOp == ReductionOp::SUM, fp32x2_t, Pair>;
  constexpr int kPairs = 16 / sizeof(Pair);
  constexpr int kUnroll = 4;
  constexpr float kNeutral = kOp == ReductionOp::SUM ? 0.0f : NAN;
  __shared__ float smem[kWarpThreads];
  const uint32_t thread = threadIdx.x % kThreads;
  const int64_t step = int64_t{gridDim.x} * (kBlock / kThreads);

  device::PDLBegin();
  // `first` is the same in the whole block, so that all its threads come to the reduction together.
  for (int64_t first = int64_t{blockIdx.x} * (kBlock / kThreads); first < params.rows; first += step) {
    const int64_t row = first + threadIdx.x / kThreads;
    const bool inside = row < params.rows;
    const T* input = static_cast<const T*>(params.input) + (inside ? row : first) * params.stride;
    Sum sum = cast<Sum>(fp32x2_t{kNeutral, kNeutral});
#pragma unroll 1
    for (int64_t i = thread; i < params.vectors; i += kUnroll * kThreads) {
      AlignedVector<Pair, kPairs> values[kUnroll];
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (i + u * kThreads < params.vectors) {
          values[u].load(input, i + u * kThreads);
        } else {
          values[u].fill(cast<Pair>(fp32x2_t{kNeutral, kNeutral}));
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j) sum = ReductionTrait<kOp, Sum>::reduce(sum, cast<Sum>(values[u][j]));
      }
    }
    const fp32x2_t both = cast<fp32x2_t>(sum);
    float result = ReductionTrait<kOp, float>::reduce(both.x, both.y);
#pragma unroll 1
    for (int64_t i = params.vectors * kPairs * 2 + thread; i < params.columns; i += kThreads) {
      result = ReductionTrait<kOp, float>::reduce(result, cast<float>(input[i]));
    }
    if constexpr (kThreads <= kWarpThreads) {
      result = warp::reduce<kOp, kThreads>(result);
    } else if constexpr (kOp == ReductionOp::SUM) {
      result = cta::reduce_sum<kBlock>(result, smem);
    } else {
      result = cta::reduce_max<kBlock>(result, smem);
    }
    if (thread == 0 && inside) static_cast<T*>(params.output)[row] = cast<T>(result);
  }
}

template <ReductionOp kOp, typename T>
struct RowReduce {
  static_assert(kOp != ReductionOp::MIN);

  static void run(TensorView input, TensorView output) {
    using namespace host;
    SymbolicSize rows{"rows"}, columns{"columns"}, stride{"stride"};
    SymbolicDevice gpu;
    SymbolicDType dtype;
    dtype.set_options<T>();
    gpu.set_options<kDLCUDA>();
    TensorMatcher({rows, columns}).with_strides({stride, 1}).with_device(gpu).with_dtype(dtype).verify(input, "input");
    TensorMatcher({rows}).with_device(gpu).with_dtype(dtype).verify(output, "output");
    RuntimeCheck(kOp == ReductionOp::SUM || columns.unwrap() > 0 || rows.unwrap() == 0, "an empty row has no maximum");

    const int64_t stride_bytes = stride.unwrap() * int64_t{sizeof(T)};
    const bool aligned =
        (reinterpret_cast<uintptr_t>(input.data_ptr()) | static_cast<uintptr_t>(stride_bytes)) % 16 == 0;
    const RowReduceParams params{
        .input = input.data_ptr(),
        .output = output.data_ptr(),
        .stride = stride.unwrap(),
        .rows = rows.unwrap(),
        .columns = columns.unwrap(),
        .vectors = aligned ? columns.unwrap() / int64_t{16 / sizeof(T)} : 0,
    };
    // Short rows are read by few lanes each, so that every load instruction is a full one. A warp needs no barrier and
    // is right for longer ones, as long as there are enough of them to fill the GPU.
    const int64_t sms = runtime::get_sm_count(gpu.unwrap().device_id);
    const int64_t bytes = params.columns * int64_t{sizeof(T)};
    uint32_t threads = kBlock;
    void (*kernel)(const RowReduceParams) = row_reduce_kernel<kOp, T, kBlock>;
    if (bytes <= 1024) {
      threads = 8;
      kernel = row_reduce_kernel<kOp, T, 8>;
    } else if (bytes <= 8192 && params.rows >= sms * 16) {
      threads = 32;
      kernel = row_reduce_kernel<kOp, T, 32>;
    }
    const int64_t blocks = div_ceil(params.rows, int64_t{kBlock / threads});
    const int64_t at_a_time = sms * kBlocksPerSM;
    LaunchKernel(blocks < at_a_time ? blocks : at_a_time, kBlock, gpu.unwrap()).enable_pdl()(kernel, params);
  }
};

}  // namespace
