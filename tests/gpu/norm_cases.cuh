// Exports for test_norm_header.py.

#include <kjit/tensor.h>

#include <kjit/impl/norm.cuh>
#include <kjit/tile.cuh>

#include <cstdint>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

// host::norm at compile time: the sizes that ported kernels rely on, and unsupported ones.
static_assert(norm::is_config_supported<fp16_t, 64>() && norm::is_config_supported<bf16_t, 256>());
static_assert(norm::is_config_supported<bf16_t, 512>() && norm::is_config_supported<fp16_t, 8192>());
static_assert(!norm::is_config_supported<bf16_t, 96>() && !norm::is_config_supported<bf16_t, 384>());
static_assert(!norm::is_config_supported<bf16_t, 32>() && !norm::is_config_supported<bf16_t, 8448>());
static_assert(norm::is_config_supported<fp32_t, 128>() && norm::is_config_supported<fp32_t, 4096>());
static_assert(!norm::is_config_supported<fp32_t, 8192>() && !norm::is_config_supported<double, 128>());
static_assert(!norm::should_use_cta<bf16_t, 256>() && norm::should_use_cta<bf16_t, 512>());
static_assert(!norm::should_use_cta<fp32_t, 128>() && norm::should_use_cta<fp32_t, 256>());
static_assert(norm::get_cta_threads<bf16_t, 512>() == 64 && norm::get_cta_threads<fp16_t, 8192>() == 1024);
static_assert(norm::get_cta_threads<fp32_t, 256>() == 64 && norm::get_cta_threads<fp32_t, 4096>() == 1024);
static_assert(sizeof(device::norm::StorageType<bf16_t, 64>) == 4 &&
              sizeof(device::norm::StorageType<bf16_t, 256>) == 16);
static_assert(sizeof(device::norm::StorageType<bf16_t, 8192>) == 16);
static_assert(sizeof(device::norm::StorageType<fp32_t, 64>) == 8 &&
              sizeof(device::norm::StorageType<fp32_t, 512>) == 16);
static_assert(device::norm::kSmemBufferSize == 33);
static_assert(norm::get_row_threads<bf16_t, 1>() == 1 && norm::get_row_threads<bf16_t, 128>() == 8);
static_assert(norm::get_row_threads<bf16_t, 1024>() == 64 && norm::get_row_threads<bf16_t, 1025>() == 96);
static_assert(norm::get_row_threads<bf16_t, 4096>() == 256 && norm::get_row_threads<fp32_t, 16384>() == 1024);

struct Params {
  const void* input;
  const void* weight;
  void* output;
  int64_t input_stride;
  int64_t output_stride;
  int64_t rows;
  int64_t dim;
  float eps;
  bool aligned;
};

/// One block, all rows in sequence: shared memory is reused.
template <typename T, int64_t kDim>
__global__ void storage_kernel(const Params params) {
  using Storage = device::norm::StorageType<T, kDim>;
  __shared__ float smem[device::norm::kSmemBufferSize];
  for (int64_t row = 0; row < params.rows; ++row) {
    const void* input = device::pointer::offset<T>(params.input, row * params.input_stride);
    void* output = device::pointer::offset<T>(params.output, row * params.output_stride);
    if constexpr (host::norm::should_use_cta<T, kDim>()) {
      const auto memory = device::tile::Memory<Storage>::cta();
      const Storage x = memory.load(input), weight = memory.load(params.weight);
      memory.store(output, device::norm::apply_norm_cta<kDim>(x, weight, params.eps, smem));
    } else {
      const auto memory = device::tile::Memory<Storage>::warp();
      const Storage x = memory.load(input), weight = memory.load(params.weight);
      memory.store(output, device::norm::apply_norm_warp<kDim>(x, weight, params.eps));
    }
  }
}

/// `kThreads` threads a row, in blocks of at least a warp; rows beyond the end are not stored.
template <typename T, int64_t kDim, uint32_t kThreads, bool kRunTime>
__global__ void row_kernel(const Params params) {
  using Row = device::norm::Row<T, kDim, kThreads>;
  __shared__ float smem[Row::kSmemFloats + 1];
  const uint32_t thread = threadIdx.x % kThreads;
  const uint32_t groups = blockDim.x / kThreads;
  for (int64_t first = 0; first < params.rows; first += groups) {
    const int64_t row = first + threadIdx.x / kThreads;
    const void* input = device::pointer::offset<T>(params.input, (row < params.rows ? row : 0) * params.input_stride);
    void* output = device::pointer::offset<T>(params.output, row * params.output_stride);
    Row x, weight;
    __syncthreads();  // smem is reused
    if constexpr (kRunTime) {
      x.load(input, thread, params.aligned, params.dim);
      weight.load(params.weight, thread, params.aligned, params.dim);
      x.scale(x.inverse_rms(params.eps, smem, params.dim), weight);
      if (row < params.rows) x.store(output, thread, params.aligned, params.dim);
    } else {
      x.load(input, thread, params.aligned);
      weight.load(params.weight, thread, params.aligned);
      x.scale(x.inverse_rms(params.eps, smem), weight);
      if (row < params.rows) x.store(output, thread, params.aligned);
    }
  }
}

template <typename T>
Params checked(TensorView input, TensorView weight, TensorView output, double eps) {
  SymbolicSize rows{"rows"}, dim{"dim"}, input_stride{"input_stride"}, output_stride{"output_stride"};
  SymbolicDevice gpu;
  SymbolicDType dtype;
  dtype.set_options<T>();
  gpu.set_options<kDLCUDA>();
  TensorMatcher({rows, dim}).with_strides({input_stride, 1}).with_device(gpu).with_dtype(dtype).verify(input, "input");
  TensorMatcher({dim}).with_device(gpu).with_dtype(dtype).verify(weight, "weight");
  TensorMatcher({rows, dim})
      .with_strides({output_stride, 1})
      .with_device(gpu)
      .with_dtype(dtype)
      .verify(output, "output");
  const auto addresses = reinterpret_cast<uintptr_t>(input.data_ptr()) |
                         reinterpret_cast<uintptr_t>(weight.data_ptr()) |
                         reinterpret_cast<uintptr_t>(output.data_ptr()) |
                         static_cast<uintptr_t>((input_stride.unwrap() | output_stride.unwrap()) * int64_t{sizeof(T)});
  return Params{
      .input = input.data_ptr(),
      .weight = weight.data_ptr(),
      .output = output.data_ptr(),
      .input_stride = input_stride.unwrap(),
      .output_stride = output_stride.unwrap(),
      .rows = rows.unwrap(),
      .dim = dim.unwrap(),
      .eps = static_cast<float>(eps),
      .aligned = addresses % 16 == 0,
  };
}

template <typename T, int64_t kDim>
void launch_storage(TensorView input, TensorView weight, TensorView output, double eps) {
  const Params params = checked<T>(input, weight, output, eps);
  RuntimeCheck(params.aligned && params.dim == kDim);
  uint32_t threads = device::kWarpThreads;
  if constexpr (norm::should_use_cta<T, kDim>()) threads = norm::get_cta_threads<T, kDim>();
  LaunchKernel(1, threads, input.device())(storage_kernel<T, kDim>, params);
}

template <typename T, int64_t kDim, uint32_t kThreads, bool kRunTime>
void launch_row(TensorView input, TensorView weight, TensorView output, double eps) {
  const Params params = checked<T>(input, weight, output, eps);
  RuntimeCheck(params.dim <= kDim && (kRunTime || params.dim == kDim));
  LaunchKernel(1, kThreads < 32 ? 32 : kThreads, input.device())(row_kernel<T, kDim, kThreads, kRunTime>, params);
}

/// One vector a thread, for the sizes that `is_config_supported` accepts.
template <typename T>
void storage(TensorView input, TensorView weight, TensorView output, double eps) {
  switch (input.size(1)) {
    case 64:
      return launch_storage<T, 64>(input, weight, output, eps);
    case 128:
      return launch_storage<T, 128>(input, weight, output, eps);
    case 768:
      return launch_storage<T, 768>(input, weight, output, eps);
    case 4096:
      return launch_storage<T, 4096>(input, weight, output, eps);
    default:
      Panic("no kernel for rows of ", input.size(1));
  }
}

/// `Row` with the number of threads of `get_row_threads`.
template <typename T>
void row(TensorView input, TensorView weight, TensorView output, double eps) {
  const auto launch = [&]<int64_t kDim>() {
    launch_row<T, kDim, norm::get_row_threads<T, kDim>(), false>(input, weight, output, eps);
  };
  switch (input.size(1)) {
    case 1:
      return launch.template operator()<1>();
    case 96:
      return launch.template operator()<96>();
    case 100:
      return launch.template operator()<100>();
    case 257:
      return launch.template operator()<257>();
    case 1000:
      return launch.template operator()<1000>();
    case 5121:
      return launch.template operator()<5121>();
    case 16384:
      return launch.template operator()<16384>();
    default:
      Panic("no kernel for rows of ", input.size(1));
  }
}

/// `Row` with room for 2,100 elements and a run-time length, on 96 threads.
template <typename T>
void any_row(TensorView input, TensorView weight, TensorView output, double eps) {
  launch_row<T, 2100, 96, true>(input, weight, output, eps);
}

}  // namespace
