// Exports for test_runtime.py.

#include <cuda.h>
#include <kjit/bits.h>
#include <kjit/tensor.h>
#include <kjit/runtime.cuh>

#include <cstddef>
#include <cstdint>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

static_assert(kDLGPU == kDLCUDA && kDLGPUHost == kDLCUDAHost);
static_assert(runtime::DriverResult<CUresult> && !runtime::DriverResult<cudaError_t>);
static_assert(runtime::kCurrentDevice < 0 && runtime::kNumStaticMaxDevice >= 8);

/// Attributes of a kernel are permanent: every test that changes some has a kernel of its own.
template <int kTest>
__global__ void reverse_kernel(float* data, int n) {
  extern __shared__ float shared[];
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) shared[i] = data[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] = shared[n - 1 - i];
}

/// A launch without any query before.
template <int kTest>
void launch_plainly(TensorView data) {
  const DeviceGuard guard(data.device().device_id);
  const int n = static_cast<int>(data.numel());
  const cudaStream_t stream = LaunchKernel::resolve_device(data.device());
  reverse_kernel<kTest><<<1, 256, static_cast<std::size_t>(n) * sizeof(float), stream>>>(data_of<float>(data), n);
  RuntimeDeviceCheck();
}

std::int64_t sm_count(std::int64_t device, bool use_cache) {
  return runtime::get_sm_count(static_cast<int>(device), use_cache);
}
std::int64_t sm_version(std::int64_t device) {
  const int id = static_cast<int>(device);
  RuntimeCheck(runtime::get_sm_version(id) == runtime::get_cc_major(id) * 10 + runtime::get_cc_minor(id), "not both");
  return runtime::get_sm_version(id);
}
std::int64_t smem_per_block(std::int64_t device, bool opt_in) {
  return static_cast<std::int64_t>(runtime::get_max_smem_per_block(static_cast<int>(device), opt_in));
}
std::int64_t smem_per_sm() {
  int bytes = 0;
  RuntimeDeviceCheck(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  return bytes;
}
bool runtime_version_is_of_the_headers_major() {
  return runtime::get_runtime_version() / 1000 == CUDART_VERSION / 1000;
}

std::int64_t blocks_per_sm(std::int64_t threads, std::int64_t smem, std::int64_t device) {
  return runtime::get_blocks_per_sm(reverse_kernel<0>, static_cast<int>(threads), static_cast<std::size_t>(smem),
                                    static_cast<int>(device));
}
/// As kernels query it: for the current device, cached.
std::int64_t blocks_per_sm_of_the_current(std::int64_t threads) {
  const auto kernel = reverse_kernel<0>;
  static const std::uint32_t blocks = runtime::get_blocks_per_sm(kernel, static_cast<int>(threads));
  return blocks;
}
std::int64_t available_smem(std::int64_t blocks, std::int64_t threads) {
  return static_cast<std::int64_t>(runtime::get_available_dynamic_smem_per_block(
      reverse_kernel<1>, static_cast<int>(blocks), static_cast<int>(threads)));
}
std::int64_t blocks_with_available_smem(std::int64_t blocks, std::int64_t threads) {
  const auto bytes = static_cast<std::size_t>(available_smem(blocks, threads));
  return runtime::get_blocks_per_sm(reverse_kernel<1>, static_cast<int>(threads), bytes);
}

void set_smem(std::int64_t bytes, std::int64_t device) {
  runtime::set_max_dynamic_smem(reverse_kernel<2>, static_cast<std::size_t>(bytes), static_cast<int>(device));
}
void set_smem_per_device(DLDevice device, std::int64_t bytes) {
  runtime::set_max_dynamic_smem_per_device<reverse_kernel<3>>(device, static_cast<std::size_t>(bytes));
}

/// The number of runs, and the device of the last one.
int runs = 0;
int ran_on = -1;
void run_per_device(DLDevice device, bool fails) {
  runtime::init_per_device(device, [&] {
    ++runs;
    RuntimeDeviceCheck(cudaGetDevice(&ran_on));
    RuntimeCheck(!fails, "as requested");
  });
}
void run_without_cache(std::int64_t device) {
  runtime::init_per_device(static_cast<int>(device), false, [] { ++runs; });
}
std::int64_t runs_so_far() {
  return runs;
}
std::int64_t device_of_last_run() {
  return ran_on;
}
std::int64_t current_device() {
  int device = -1;
  RuntimeDeviceCheck(cudaGetDevice(&device));
  return device;
}

/// The number of queries in `calls` rounds over devices -1 to 99: one for each cached device, otherwise one a round.
std::int64_t queries_of_a_cache_map(std::int64_t calls, bool use_cache) {
  runtime::DeviceCacheMap<int, -1> map;
  std::int64_t queries = 0;
  for (std::int64_t call = 0; call < calls; ++call) {
    for (int device = -1; device < 100; ++device) {
      const int value = map.get_cached(device, use_cache, [&](int asked) {
        ++queries;
        return 3 * asked + 5;
      });
      RuntimeCheck(value == 3 * device + 5, "device ", device, " has the value of another: ", value);
    }
  }
  return queries;
}

__global__ void sum_kernel(float* out, const float* in, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += in[i];
  *out = sum;
}
/// `in` may be in pinned host memory.
void sum(TensorView out, TensorView in) {
  const void* reachable = runtime::get_device_accessible_ptr(in);
  LaunchKernel(1, 1, out.device())(sum_kernel, data_of<float>(out), static_cast<const float*>(reachable),
                                   static_cast<int>(in.numel()));
}
std::int64_t accessible_address(TensorView x) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(runtime::get_device_accessible_ptr(x)));
}
bool gpu_reads_all_host_memory() {
  int value = 0;
  RuntimeDeviceCheck(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0));
  return value != 0;
}

template <int kTest>
std::int64_t carveout() {
  cudaFuncAttributes attributes{};
  RuntimeDeviceCheck(cudaFuncGetAttributes(&attributes, reverse_kernel<kTest>));
  return attributes.preferredShmemCarveout;
}
std::int64_t set_carveout(std::int64_t percent) {
  runtime::set_smem_carveout(reverse_kernel<4>, static_cast<int>(percent));
  return carveout<4>();
}
/// The percentage that keeps the occupancy; -2 if there is none.
std::int64_t prefer_l1(std::int64_t threads, std::int64_t smem) {
  const auto bytes = static_cast<std::size_t>(smem);
  const auto before = runtime::get_blocks_per_sm(reverse_kernel<5>, static_cast<int>(threads), bytes);
  const runtime::L1Carveout found =
      runtime::set_prefer_l1_carveout(reverse_kernel<5>, static_cast<std::uint32_t>(threads), bytes);
  const auto after = runtime::get_blocks_per_sm(reverse_kernel<5>, static_cast<int>(threads), bytes);
  const bool kept = found.blocks_per_sm >= before && after == found.blocks_per_sm;
  return kept && carveout<5>() == found.carveout_percent ? found.carveout_percent : -2;
}
void prefer_l1_between(std::int64_t lower, std::int64_t upper, std::int64_t occupancy) {
  runtime::set_prefer_l1_carveout_with_occupancy(static_cast<int>(lower), static_cast<int>(upper),
                                                 static_cast<std::uint32_t>(occupancy), reverse_kernel<6>, 256);
}
std::int64_t carveout_after_failure() {
  return carveout<6>();
}

void check_driver_result(std::int64_t result) {
  RuntimeDeviceCheck(static_cast<CUresult>(result));
}
void check_driver_result_with_words(std::int64_t result) {
  CHECK_CUDA(static_cast<CUresult>(result)) << "in a test";
}
bool errors_are_told_from_success() {
  return runtime::is_cuda_error(cudaErrorInvalidValue) && !runtime::is_cuda_error(cudaSuccess) &&
         runtime::is_cuda_error(CUDA_ERROR_INVALID_VALUE) && !runtime::is_cuda_error(CUDA_SUCCESS) &&
         StringView(runtime::get_cuda_error_string(cudaErrorInvalidValue)) ==
             runtime::get_cuda_error_string(CUDA_ERROR_INVALID_VALUE);
}
bool a_failed_check_leaves_no_error_behind() {
  try {
    CHECK_CUDA(cudaSetDevice(12345)) << "there are not that many";
  } catch (const PanicError&) {
    return cudaPeekAtLastError() == cudaSuccess;
  }
  return false;
}

host::ffi::Tensor made_like(TensorView x) {
  return host::ffi::empty_like(x);
}

__global__ void powers_kernel(int* out) {
  __shared__ int values[round_up_pow2(5u)];
  constexpr std::uint32_t kLast = static_cast<std::uint32_t>(log2_floor(sizeof(values) / sizeof(int)));
  static_assert(is_pow2(sizeof(values)) && round_down_pow2(kLast) == 2u && log2_ceil(5u) == 3);
  values[threadIdx.x] = static_cast<int>(kLast);
  __syncthreads();
  out[threadIdx.x] = values[7 - threadIdx.x];
}
void powers(TensorView out) {
  LaunchKernel(1, 8, out.device())(powers_kernel, data_of<int>(out));
}

}  // namespace
