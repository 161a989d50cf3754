// RMSNorm of rows: out = x * rsqrt(mean(x^2) + eps) * weight, for fp16, bf16 and fp32 rows of any size.

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>

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
  static constexpr uint32_t kBlock = kThreads <= device::kWarpThreads ? 128 : kThreads;
  static constexpr uint32_t kRows = kBlock / kThreads;  // of a block, side by side
  using Row = device::norm::Row<T, kDim, kThreads>;
  // As many blocks of an SM as keep enough loads on their way, and leave enough registers for row and weight.
  static constexpr uint32_t kBlocksPerSM = (Row::kVectors > 2 ? 1024 : 2048) / kBlock;

  static void run(TensorView input, TensorView weight, TensorView output, float eps);
};

template <typename T, int64_t kDim, bool kAligned>
__global__ void __launch_bounds__(RMSNorm<T, kDim>::kBlock, kAligned ? RMSNorm<T, kDim>::kBlocksPerSM : 1)
    rmsnorm_kernel(const __grid_constant__ RMSNormParams params) {
  using namespace device;
  using Op = RMSNorm<T, kDim>;
  using Row = typename Op::Row;
  __shared__ float smem[Row::kSmemFloats + 1];
  const uint32_t thread = threadIdx.x % Op::kThreads;
  const int64_t wanted = int64_t{blockIdx.x} * Op::kRows + threadIdx.x / Op::kThreads;
  // Past the last row there is nothing to do, but neighbours in the warp need this thread for their sum.
  const int64_t row = wanted < params.rows ? wanted : params.rows - 1;

  Row x, weight;
  PDLBegin();
  x.load(pointer::offset<T>(params.input, row * params.input_stride), thread, kAligned);
  weight.load(params.weight, thread, kAligned);
  x.scale(x.inverse_rms(params.eps, smem), weight);
  if (wanted < params.rows) x.store(pointer::offset<T>(params.output, row * params.output_stride), thread, kAligned);
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
  LaunchKernel(div_ceil(params.rows, int64_t{kRows}), kBlock, gpu.unwrap())
      .enable_pdl()(aligned ? rmsnorm_kernel<T, kDim, true> : rmsnorm_kernel<T, kDim, false>, params);
}

}  // namespace
