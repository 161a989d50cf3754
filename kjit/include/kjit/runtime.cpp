// The functions of kjit/runtime.cuh that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/runtime.cuh>

namespace kjit::host::runtime {

namespace details {

/// `device_id`, or the current device's index.
KJIT_IMPL int resolve(int device_id) {
  if (device_id != kCurrentDevice) return device_id;
  int current = 0;
  RuntimeDeviceCheck(::cudaGetDevice(&current));
  return current;
}

KJIT_IMPL int attribute(cudaDeviceAttr which, int device_id) {
  int value = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&value, which, device_id));
  return value;
}

/// A constant property of a device.
template <cudaDeviceAttr kWhich>
int cached_attribute(int device_id, bool use_cache) {
  static DeviceCacheMap<int, -1> cache;
  return cache.get_cached(device_id, use_cache, [](int device) { return attribute(kWhich, device); });
}

}  // namespace details

using details::cached_attribute;
using details::resolve;
using host::details::take_cuda_error;

KJIT_IMPL void* get_device_accessible_ptr(const TensorView& tensor, DebugInfo where) {
  void* data = tensor.data_ptr();
  const DLDeviceType type = tensor.device().device_type;
  if (data == nullptr || (type != kDLCPU && type != kDLGPUHost)) return data;
  void* address = nullptr;
  const auto error = ::cudaHostGetDevicePointer(&address, data, 0);
  if (error == cudaSuccess) return address;
  panic(where, "the GPU cannot access this tensor, which is in host memory that is not pinned (CUDA error: ",
        take_cuda_error(error), ")");
}

KJIT_IMPL std::uint32_t get_sm_count(int device_id, bool use_cache) {
  return static_cast<std::uint32_t>(cached_attribute<cudaDevAttrMultiProcessorCount>(device_id, use_cache));
}

KJIT_IMPL int get_cc_major(int device_id, bool use_cache) {
  return cached_attribute<cudaDevAttrComputeCapabilityMajor>(device_id, use_cache);
}

KJIT_IMPL int get_cc_minor(int device_id, bool use_cache) {
  return cached_attribute<cudaDevAttrComputeCapabilityMinor>(device_id, use_cache);
}

KJIT_IMPL int get_sm_version(int device_id, bool use_cache) {
  return get_cc_major(device_id, use_cache) * 10 + get_cc_minor(device_id, use_cache);
}

KJIT_IMPL int get_runtime_version() {
  int version = 0;
  RuntimeDeviceCheck(::cudaRuntimeGetVersion(&version));
  return version;
}

KJIT_IMPL std::size_t get_max_smem_per_block(int device_id, bool opt_in, bool use_cache) {
  const int bytes = opt_in ? cached_attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>(device_id, use_cache)
                           : cached_attribute<cudaDevAttrMaxSharedMemoryPerBlock>(device_id, use_cache);
  return static_cast<std::size_t>(bytes);
}

KJIT_IMPL std::uint32_t get_blocks_per_sm(const void* kernel, int block_dim, std::size_t dynamic_smem, int device_id) {
  const int device = resolve(device_id);
  const DeviceGuard guard(device);
  if (dynamic_smem > 0 && host::details::allow_dynamic_smem(kernel, dynamic_smem, device, {}) != cudaSuccess) {
    return 0;  // more than a block can have
  }
  int blocks = 0;
  RuntimeDeviceCheck(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_dim, dynamic_smem));
  return static_cast<std::uint32_t>(blocks);
}

KJIT_IMPL std::size_t get_available_dynamic_smem_per_block(const void* kernel, int num_blocks, int block_size,
                                                           int device_id) {
  const DeviceGuard guard(resolve(device_id));
  std::size_t bytes = 0;
  RuntimeDeviceCheck(::cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, num_blocks, block_size));
  return bytes;
}

KJIT_IMPL void set_max_dynamic_smem(const void* kernel, std::size_t dyn_smem_bytes, int device_id) {
  RuntimeDeviceCheck(host::details::allow_dynamic_smem(kernel, dyn_smem_bytes, resolve(device_id), {}));
}

KJIT_IMPL void set_smem_carveout(const void* kernel, int percent, int device_id) {
  const DeviceGuard guard(resolve(device_id));
  RuntimeDeviceCheck(::cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent));
}

KJIT_IMPL L1Carveout set_prefer_l1_carveout_with_occupancy(int lower_percent, int upper_percent,
                                                           std::uint32_t min_occupancy, const void* kernel,
                                                           std::uint32_t block_threads, std::size_t dyn_smem_bytes,
                                                           int device_id) {
  RuntimeCheck(min_occupancy > 0, "the requested occupancy must be positive");
  RuntimeCheck(0 <= lower_percent && lower_percent <= upper_percent && upper_percent <= 100, "from ", lower_percent,
               " to ", upper_percent, " is no range of percents");
  const int device = resolve(device_id);
  const auto threads = static_cast<int>(block_threads);
  std::uint32_t occupancy = 0;
  for (int percent = lower_percent; percent <= upper_percent; ++percent) {
    set_smem_carveout(kernel, percent, device);
    occupancy = get_blocks_per_sm(kernel, threads, dyn_smem_bytes, device);
    if (occupancy >= min_occupancy) return {percent, occupancy};
  }
  set_smem_carveout(kernel, cudaSharedmemCarveoutDefault, device);
  panic({}, "no share of shared memory from ", lower_percent, " to ", upper_percent, " percent gives ", min_occupancy,
        " blocks on an SM; the most was ", occupancy);
}

KJIT_IMPL L1Carveout set_prefer_l1_carveout(const void* kernel, std::uint32_t block_threads, std::size_t dyn_smem_bytes,
                                            int device_id) {
  const int device = resolve(device_id);
  set_smem_carveout(kernel, cudaSharedmemCarveoutDefault, device);
  const std::uint32_t occupancy = get_blocks_per_sm(kernel, static_cast<int>(block_threads), dyn_smem_bytes, device);
  return set_prefer_l1_carveout_with_occupancy(cudaSharedmemCarveoutMaxL1, cudaSharedmemCarveoutMaxShared, occupancy,
                                               kernel, block_threads, dyn_smem_bytes, device);
}

}  // namespace kjit::host::runtime
