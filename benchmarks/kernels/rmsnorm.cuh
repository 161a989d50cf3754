// RMSNorm of rows: out = x * rsqrt(mean(x^2) + eps) * weight, for fp16, bf16 and fp32 rows of any size.

#include <kjit/tensor.h>
#include <kjit/runtime.cuh>

#include <kjit/impl/norm.cuh>

#include <cstdint>

namespace {

using namespace kjit;

struct RMSNormParams {
  const void* input;
  const void* weight;
  void* output;
  int64_t input_stride;  // elements from row to row
  int64_t output_stride;
  int64_t rows;
  float eps;
};

template <typename T, int64_t kDim>
struct RMSNorm {
  static constexpr uint32_t kThreads = host::norm::get_row_threads<T, kDim>();  // of a row
  static constexpr uint32_t kBlock = kThreads < 128 && 128 % kThreads == 0 ? 128 : kThreads;
  static constexpr uint32_t kRows = kBlock / kThreads;  // of a block, side by side
  static constexpr uint32_t kBlocksPerSM = 1024 / kBlock;
  using Row = device::norm::Row<T, kDim, kThreads>;

  static void run(TensorView input, TensorView weight, TensorView output, float eps);
};

/// Each block takes rows until there are none left, and reads the next while it works on one.
template <typename T, int64_t kDim, bool kAligned>
__global__ void __launch_bounds__(RMSNorm<T, kDim>::kBlock, RMSNorm<T, kDim>::kBlocksPerSM)
    rmsnorm_kernel(const __grid_constant__ RMSNormParams params) {
  using namespace device;
  using Op = RMSNorm<T, kDim>;
  using Row = typename Op::Row;
  constexpr bool kKeepWeight = Row::kVectors <= 2;  // in registers, from row to row
  __shared__ float smem[Row::kSmemFloats + 1];

  const uint32_t thread = threadIdx.x % Op::kThreads;
  const int64_t step = int64_t{gridDim.x} * Op::kRows;
  int64_t row = int64_t{blockIdx.x} * Op::kRows + threadIdx.x / Op::kThreads;
  // Past the last row there is nothing to do, but neighbours in the warp need this thread for their sum.
  const auto input_row = [&](int64_t i) {
    return pointer::offset<T>(params.input, (i < params.rows ? i : params.rows - 1) * params.input_stride);
  };

  PDLWaitPrimary<KJIT_ARCH_HOPPER_OR_GREATER>();
  PDLTriggerSecondary<KJIT_ARCH_HOPPER_OR_GREATER>();
  Row x, next, weight;
  x.load(input_row(row), thread, kAligned);
  if constexpr (kKeepWeight) weight.load(params.weight, thread, kAligned);

  for (int64_t first = int64_t{blockIdx.x} * Op::kRows; first < params.rows; first += step) {
    const bool more = first + step < params.rows;
    if (more) next.load(input_row(row + step), thread, kAligned);
    const float factor = x.inverse_rms(params.eps, smem);
    if constexpr (!kKeepWeight) weight.load(params.weight, thread, kAligned);
    x.scale(factor, weight);
    if (row < params.rows) x.store(pointer::offset<T>(params.output, row * params.output_stride), thread, kAligned);
    if (more) x = next;
    row += step;
  }
}

template <typename T, int64_t kDim>
void RMSNorm<T, kDim>::run(TensorView input, TensorView weight, TensorView output, float eps) {
  using namespace host;
  SymbolicSize rows{"rows"}, input_stride{"input_stride"}, output_stride{"output_stride"};
  SymbolicDevice gpu;
  SymbolicDType dtype;
  dtype.set_options<T>();
  TensorMatcher({rows, kDim})
      .with_strides({input_stride, 1})
      .with_device<kDLCUDA>(gpu)
      .with_dtype(dtype)
      .verify(input, "input");
  TensorMatcher({kDim}).with_device(gpu).with_dtype(dtype).verify(weight, "weight");
  TensorMatcher({rows, kDim})
      .with_strides({output_stride, 1})
      .with_device(gpu)
      .with_dtype(dtype)
      .verify(output, "output");
  if (rows.unwrap() == 0) return;

  const auto addresses = reinterpret_cast<uintptr_t>(input.data_ptr()) |
                         reinterpret_cast<uintptr_t>(weight.data_ptr()) |
                         reinterpret_cast<uintptr_t>(output.data_ptr()) |
                         static_cast<uintptr_t>((input_stride.unwrap() | output_stride.unwrap()) * int64_t{sizeof(T)});
  const RMSNormParams params{
      .input = input.data_ptr(),
      .weight = weight.data_ptr(),
      .output = output.data_ptr(),
      .input_stride = input_stride.unwrap(),
      .output_stride = output_stride.unwrap(),
      .rows = rows.unwrap(),
      .eps = eps,
  };
  const bool aligned = addresses % 16 == 0;  // every row, and the weight, starts at a multiple of 16 bytes
  // No more blocks than run at a time, and all with the same number of rows.
  const int64_t blocks = div_ceil(params.rows, kRows);
  const int64_t rounds = div_ceil(blocks, runtime::get_sm_count(gpu.unwrap().device_id) * kBlocksPerSM);
  LaunchKernel(div_ceil(blocks, rounds), kBlock, gpu.unwrap())
      .enable_pdl(KJIT_ARCH_HOPPER_OR_GREATER)(aligned ? rmsnorm_kernel<T, kDim, true> : rmsnorm_kernel<T, kDim, false>,
                                               params);
}

}  // namespace
