// Exports for test_launch.py.

#include <cooperative_groups.h>
#include <kjit/tensor.h>
#include <kjit/utils.cuh>
#include <kjit/vec.cuh>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

__global__ void fill_kernel(float* out, std::int64_t n, float value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

/// `value` is a double and the kernel takes a float: arguments are converted to the parameters.
void fill(TensorView out, double value) {
  SymbolicSize n{"n"};
  SymbolicDevice device;
  TensorMatcher({n}).with_device<kDLCUDA>(device).with_dtype<float>().verify(out, "out");
  auto* data = data_of<float>(out);
  LaunchKernel(div_ceil(n.unwrap(), 256), 256, device.unwrap())(fill_kernel, data, n.unwrap(), value);
}

void fill_on_stream(TensorView out, double value, cudaStream_t stream) {
  auto* data = data_of<float>(out);
  LaunchKernel(div_ceil(out.numel(), 256), 256, stream)
      .enable_pdl()
      .enable_pdl(false)(fill_kernel, data, out.numel(), value);
}

__global__ void nothing_kernel() {}

void launch_sizes(DLDevice device, std::int64_t x, std::int64_t y, std::int64_t z, std::int64_t threads) {
  LaunchKernel({x, y, z}, threads, device)(nothing_kernel);
}

__global__ void reverse_kernel(float* data, int n) {
  extern __shared__ float shared[];
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) shared[i] = data[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] = shared[n - 1 - i];
}

void reverse(TensorView data) {
  const auto n = data.numel();
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  LaunchKernel(1, 256, data.device(), bytes)(reverse_kernel, data_of<float>(data), static_cast<int>(n));
}

/// Each test has a kernel of its own, because its raised limit is permanent.
template <int kTest, int kStatic>
__global__ void reverse_with_static_kernel(float* data, int n) {
  extern __shared__ float shared[];
  __shared__ float added[kStatic];
  for (int i = static_cast<int>(threadIdx.x); i < kStatic; i += static_cast<int>(blockDim.x)) added[i] = 1.0f;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) shared[i] = data[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    data[i] = shared[n - 1 - i] + added[i % kStatic];
  }
}

template <int kTest, int kStatic>
void reverse_with_static(TensorView data) {
  const auto n = data.numel();
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  LaunchKernel(1, 256, data.device(), bytes)(reverse_with_static_kernel<kTest, kStatic>, data_of<float>(data),
                                             static_cast<int>(n));
}

// Writes the result of the previous kernel in the stream plus one: wrong unless the wait works.
template <bool kBegins>
__global__ void after_kernel(float* out, const float* in, std::int64_t n) {
  if constexpr (kBegins) {
    device::PDLBegin();
  } else {
    device::PDLWaitPrimary<true>();
  }
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + 1.0f;
  if constexpr (!kBegins) device::PDLTriggerSecondary<true>();
}

template <bool kBegins>
void chain(TensorView a, TensorView b, std::int64_t length) {
  const auto n = a.numel();
  auto* first = data_of<float>(a);
  auto* second = data_of<float>(b);
  for (std::int64_t i = 0; i < length; ++i) {
    LaunchKernel launch(div_ceil(n, 256), 256, a.device());
    if (kBegins) {
      launch.enable_pdl();
    } else {
      launch.config({.use_pdl = true});
    }
    launch(after_kernel<kBegins>, second, first, n);
    auto* swapped = first;
    first = second;
    second = swapped;
  }
}

__global__ void cluster_kernel(int* out) {
  unsigned blocks = 0;
#if KJIT_ARCH_HOPPER_OR_GREATER
  blocks = cooperative_groups::this_cluster().num_blocks();
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(blocks);
}

void cluster_sizes(TensorView out, std::int64_t blocks) {
  const auto cluster = dim3(static_cast<unsigned>(blocks));
  LaunchKernel(out.numel(), 32, out.device()).enable_cluster(cluster)(cluster_kernel, data_of<int>(out));
}

void cooperative(TensorView out, double value) {
  auto* data = data_of<float>(out);
  LaunchKernel(1, 256, out.device()).cooperative()(fill_kernel, data, out.numel(), value);
}

template <typename T, std::size_t N>
__global__ void add_vectors_kernel(T* out, const T* in, T bias, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  device::AlignedVector<T, N> v, b;
  b.fill(bias);
  v.load(in, i);
#pragma unroll
  for (std::size_t j = 0; j < N; ++j) v[j] = static_cast<T>(static_cast<float>(v[j]) + static_cast<float>(b[j]));
  v.store(out, i);
}

template <typename T, std::size_t N>
void add_vectors(TensorView out, TensorView in, double bias) {
  SymbolicSize n;
  SymbolicDevice device;
  TensorMatcher({n})
      .with_device<kDLCUDA>(device)
      .with_dtype<T>()
      .ensure_alignment(sizeof(T) * N)
      .verify(out)
      .verify(in);
  const std::int64_t count = n.unwrap() / static_cast<std::int64_t>(N);
  const auto* from = data_of<const T>(in);
  LaunchKernel(div_ceil(count, 128), 128, device.unwrap())(add_vectors_kernel<T, N>, data_of<T>(out), from,
                                                           static_cast<T>(static_cast<float>(bias)), count);
}

__global__ void lanes_kernel(int* out) {
  const auto lane = device::get_lane_id();
  const auto group_lane = device::get_lane_id<8>();
  device::store_as<int>(out, static_cast<int>(100 * lane + group_lane), threadIdx.x);
}
void lanes(TensorView out) {
  LaunchKernel(1, 32, out.device())(lanes_kernel, data_of<int>(out));
}

__global__ void array_kernel(float* out, device::DeviceArray<float, 3> values) {
  out[threadIdx.x] = values[threadIdx.x];
}
void array(TensorView out) {
  device::DeviceArray<float, 3> values;
  for (int i : irange(3)) values[static_cast<std::size_t>(i)] = static_cast<float>(i) + 0.5f;
  LaunchKernel(1, 3, out.device())(array_kernel, data_of<float>(out), values);
}

void check_cuda() {
  CHECK_CUDA(cudaErrorInvalidValue) << "in a test";
}

}  // namespace
