// Queries and settings of CUDA devices and kernels, cached where the answer cannot change, for any number of GPUs.
//
//   static const uint32_t per_sm = runtime::get_blocks_per_sm(kernel, 256);
//   const auto blocks = std::min(needed, per_sm * runtime::get_sm_count(device.device_id));
//   runtime::set_max_dynamic_smem_per_device<kernel>(device, bytes);
//
// Needs only the CUDA runtime's C header: plain C++ units may include it. All functions are thread-safe.

#pragma once

#include <cuda_runtime_api.h>
#include <dlpack/dlpack.h>
#include <kjit/ffi.h>
#include <kjit/launch.h>
#include <kjit/once.h>
#include <kjit/utils.h>
#ifdef __CUDACC__
#include <kjit/utils.cuh>
#endif

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace kjit::host::runtime {

/// The number of devices that a `DeviceCacheMap` caches. Others are queried each time.
inline constexpr std::uint32_t kNumStaticMaxDevice = 72;

/// Instead of a device index: the current device at the call.
inline constexpr int kCurrentDevice = -1;

/// A device by its index, or by the `DLDevice` of a tensor.
struct MaybeDevice {
  MaybeDevice(DLDevice device) noexcept : device_id(device.device_id) {}
  MaybeDevice(std::int32_t number) noexcept : device_id(number) {}
  std::int32_t device_id;
};

/// One value for each device, queried at its first use. `kDefault` stands for "not queried yet"; a query that returns
/// it is repeated at each call. Threads that race for the first call may all query.
template <typename T, T kDefault>
class DeviceCacheMap {
 public:
  constexpr DeviceCacheMap() noexcept {
    for (T& value : values_) value = kDefault;
  }

  /// The value for `device`: `query(device)` if it is not cached or `use_cache` is false.
  template <typename Fn>
  T get_cached(std::int32_t device, bool use_cache, Fn&& query) {
    const bool has_place = device >= 0 && device < static_cast<std::int32_t>(kNumStaticMaxDevice);
    if (use_cache && has_place) {
      const T known = __atomic_load_n(&values_[device], __ATOMIC_RELAXED);
      if (known != kDefault) return known;
    }
    const T value = static_cast<T>(std::forward<Fn>(query)(device));
    if (has_place) __atomic_store_n(&values_[device], value, __ATOMIC_RELAXED);
    return value;
  }
  template <typename Fn>
  T get_cached(std::int32_t device, Fn&& query) {
    return get_cached(device, true, std::forward<Fn>(query));
  }

 private:
  T values_[kNumStaticMaxDevice];
};

/// The device address of the tensor's data; for a tensor in host memory, the address that it is mapped to. An error if
/// the GPU cannot access it: host memory must be pinned (`pin_memory()`).
void* get_device_accessible_ptr(const TensorView& tensor, DebugInfo where = {});

/// The number of SMs of a device. `use_cache = false` queries the driver again.
std::uint32_t get_sm_count(int device_id, bool use_cache = true);
/// The compute capability: 9 and 0 for sm_90.
int get_cc_major(int device_id, bool use_cache = true);
int get_cc_minor(int device_id, bool use_cache = true);
/// The compute capability as one number: 90 for sm_90.
int get_sm_version(int device_id, bool use_cache = true);
/// The version of the loaded CUDA runtime: 13000 for 13.0.
int get_runtime_version();
/// Bytes of shared memory that one block may use after `set_max_dynamic_smem` (static shared memory included), or, with
/// `opt_in` false, without it.
std::size_t get_max_smem_per_block(int device_id, bool opt_in = true, bool use_cache = true);

/// A split of an SM's L1 cache and shared memory, and the number of blocks that fit an SM with it.
struct L1Carveout {
  int carveout_percent;
  std::uint32_t blocks_per_sm;
};

/// The number of blocks of `kernel` that are resident on an SM at a time. More than 48 KiB of shared memory are enabled
/// for the kernel first, as by a launch.
///
/// 0 if not even one block fits: a grid of that many blocks is empty, and launches nothing.
std::uint32_t get_blocks_per_sm(const void* kernel, std::int32_t block_dim, std::size_t dynamic_smem = 0,
                                int device_id = kCurrentDevice);
template <typename T>
std::uint32_t get_blocks_per_sm(T kernel, std::int32_t block_dim, std::size_t dynamic_smem = 0,
                                int device_id = kCurrentDevice) {
  return get_blocks_per_sm(reinterpret_cast<const void*>(kernel), block_dim, dynamic_smem, device_id);
}

/// Bytes of dynamic shared memory available to each block when `num_blocks` of them are resident on one SM.
std::size_t get_available_dynamic_smem_per_block(const void* kernel, int num_blocks, int block_size,
                                                 int device_id = kCurrentDevice);
template <typename T>
std::size_t get_available_dynamic_smem_per_block(T kernel, int num_blocks, int block_size,
                                                 int device_id = kCurrentDevice) {
  return get_available_dynamic_smem_per_block(reinterpret_cast<const void*>(kernel), num_blocks, block_size, device_id);
}

/// Allows launches of `kernel` with up to `dyn_smem_bytes` bytes of dynamic shared memory; never lowers an earlier
/// limit. A call that changes nothing costs next to nothing: call it before every launch with `<<<...>>>`.
/// `LaunchKernel` does so itself.
void set_max_dynamic_smem(const void* kernel, std::size_t dyn_smem_bytes, int device_id = kCurrentDevice);
template <typename T>
void set_max_dynamic_smem(T kernel, std::size_t dyn_smem_bytes, int device_id = kCurrentDevice) {
  set_max_dynamic_smem(reinterpret_cast<const void*>(kernel), dyn_smem_bytes, device_id);
}

/// The preferred share of an SM's memory, in percent, that `kernel` has as shared memory instead of L1 cache; -1 (the
/// driver's choice) to 100. A hint that applies to the whole process.
void set_smem_carveout(const void* kernel, int percent, int device_id = kCurrentDevice);
template <typename T>
void set_smem_carveout(T kernel, int percent, int device_id = kCurrentDevice) {
  set_smem_carveout(reinterpret_cast<const void*>(kernel), percent, device_id);
}

/// Sets the smallest shared-memory share, from `lower_bound_percent` to `upper_bound_percent` (0 to 100), at which
/// `min_occupancy` blocks of `kernel` fit an SM. An error if there is none; the driver then chooses.
L1Carveout set_prefer_l1_carveout_with_occupancy(int lower_bound_percent, int upper_bound_percent,
                                                 std::uint32_t min_occupancy, const void* kernel,
                                                 std::uint32_t block_threads, std::size_t dyn_smem_bytes = 0,
                                                 int device_id = kCurrentDevice);
template <typename T>
L1Carveout set_prefer_l1_carveout_with_occupancy(int lower_bound_percent, int upper_bound_percent,
                                                 std::uint32_t min_occupancy, T kernel, std::uint32_t block_threads,
                                                 std::size_t dyn_smem_bytes = 0, int device_id = kCurrentDevice) {
  return set_prefer_l1_carveout_with_occupancy(lower_bound_percent, upper_bound_percent, min_occupancy,
                                               reinterpret_cast<const void*>(kernel), block_threads, dyn_smem_bytes,
                                               device_id);
}

/// Gives `kernel` the most L1 cache that keeps its default occupancy. Once for each device is enough:
/// `init_per_device(device, [] { set_prefer_l1_carveout(kernel, 256); })`.
L1Carveout set_prefer_l1_carveout(const void* kernel, std::uint32_t block_threads, std::size_t dyn_smem_bytes = 0,
                                  int device_id = kCurrentDevice);
template <typename T>
L1Carveout set_prefer_l1_carveout(T kernel, std::uint32_t block_threads, std::size_t dyn_smem_bytes = 0,
                                  int device_id = kCurrentDevice) {
  return set_prefer_l1_carveout(reinterpret_cast<const void*>(kernel), block_threads, dyn_smem_bytes, device_id);
}

/// Runs `fn` with `device_id` as the current device.
template <std::invocable Fn>
void run_on_device(int device_id, Fn&& fn) {
  const DeviceGuard guard(device_id);
  std::forward<Fn>(fn)();
}

/// Runs `fn` at the first call for each device, with that device current. Call sites are identified as by `init_once`.
/// `use_cache = false` always runs it, and does not count as the first call. If `fn` throws, the next call runs it
/// again.
template <typename Tag = void, std::invocable Fn>
void init_per_device(int device_id, bool use_cache, Fn&& fn) {
  static CacheSet<int> done;
  if (!use_cache) return run_on_device(device_id, std::forward<Fn>(fn));
  done.get_cached(device_id, [&] { run_on_device(device_id, std::forward<Fn>(fn)); });
}
template <typename Tag = void, std::invocable Fn>
void init_per_device(MaybeDevice device, Fn&& fn) {
  init_per_device<Tag>(device.device_id, true, std::forward<Fn>(fn));
}

/// `set_max_dynamic_smem` for a kernel that is a template argument.
template <auto kernel>
void set_max_dynamic_smem_per_device(MaybeDevice device, std::size_t dyn_smem_bytes) {
  set_max_dynamic_smem(kernel, dyn_smem_bytes, device.device_id);
}

}  // namespace kjit::host::runtime

#ifndef KJIT_PRECOMPILED
#include <kjit/runtime.cpp>
#endif
