// Checked launches of CUDA kernels: the right stream, the right device, a grid within the hardware's limits.
//
//   LaunchKernel(div_ceil(n, 256), 256, device)(my_kernel<T>, out, in, n);  // on torch's stream of `device`
//   LaunchKernel(grid, block, stream, smem).enable_pdl(true)(my_kernel<T>, out, in);
//   RuntimeDeviceCheck(cudaMemcpyAsync(...));
//   CHECK_CUDA(cudaEventRecord(e)) << "while timing";                       // CUresult too, with <cuda.h>
//
// Needs only the CUDA runtime's C header: plain C++ units may include it.

#pragma once

#include <cuda_runtime_api.h>
#include <dlpack/dlpack.h>
#include <kjit/utils.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace kjit {

/// The device type that kernels run on, and that of host memory which it accesses directly.
inline constexpr DLDeviceType kDLGPU = kDLCUDA;
inline constexpr DLDeviceType kDLGPUHost = kDLCUDAHost;

namespace host {

namespace runtime {

/// A result of CUDA's driver API, `CUresult`: only in a unit that includes <cuda.h>.
template <typename T>
concept DriverResult = std::is_enum_v<T> && !std::same_as<T, cudaError_t> &&
                       requires(T result, const char** text) { cuGetErrorString(result, text); };

inline bool is_cuda_error(cudaError_t error) noexcept {
  return error != cudaSuccess;
}
template <DriverResult T>
bool is_cuda_error(T result) noexcept {
  return static_cast<int>(result) != 0;
}

/// The description of an error of the runtime or driver API.
inline const char* get_cuda_error_string(cudaError_t error) noexcept {
  return ::cudaGetErrorString(error);
}

}  // namespace runtime

namespace details {

/// The description of a `CUresult`. The driver is called through the runtime, so that nothing links against libcuda.
KJIT_COLD const char* driver_error_string(int result) noexcept;

/// Allows `kernel` to be launched with `bytes` bytes of dynamic shared memory on `device`. By default a block may use
/// 48 KiB, static shared memory included. The limit stays raised and is cached per thread: asking again costs next to
/// nothing. Thread-safe.
///
/// Returns an error if the GPU has less; the error is cleared.
cudaError_t allow_dynamic_smem(const void* kernel, std::size_t bytes, int device, DebugInfo where);

/// Panics if a kernel's machine code does not run on this GPU, which CUDA reports when it loads the kernel.
void check_code(cudaError_t error, DebugInfo where);

/// `get_cuda_error_string`; also clears the runtime's pending error, so that no later check reports it.
KJIT_COLD const char* take_cuda_error(cudaError_t error) noexcept;
template <runtime::DriverResult T>
const char* take_cuda_error(T result) noexcept {
  return driver_error_string(static_cast<int>(result));
}

}  // namespace details

namespace runtime {

template <DriverResult T>
const char* get_cuda_error_string(T result) noexcept {
  return host::details::driver_error_string(static_cast<int>(result));
}

}  // namespace runtime

/// Throws if `error` is an error; clears the pending CUDA error, so that no later check reports it.
void RuntimeDeviceCheck(cudaError_t error, DebugInfo where = {});
/// The same for a result of the driver API, in a unit that includes <cuda.h>.
template <runtime::DriverResult T>
void RuntimeDeviceCheck(T result, DebugInfo where = {}) {
  if (runtime::is_cuda_error(result)) [[unlikely]] {
    panic(where, "CUDA error: ", details::take_cuda_error(result));
  }
}
/// Checks the last error of a launch (`cudaGetLastError`).
inline void RuntimeDeviceCheck(DebugInfo where = {}) {
  RuntimeDeviceCheck(::cudaGetLastError(), where);
}

/// `CHECK_CUDA(call) << "what for";`, for both APIs; the message is formatted only on failure.
#define CHECK_CUDA(...)                                                                                      \
  if (const auto kjit_error = (__VA_ARGS__); !::kjit::host::runtime::is_cuda_error(kjit_error)) [[likely]] { \
  } else /* NOLINT(readability-*) */                                                                         \
    KJIT_PANIC << "CUDA error: " << ::kjit::host::details::take_cuda_error(kjit_error) << ". "

/// The size of a grid or block: one to three integers of any type, or a dim3. Kept in 64 bits, so that a size beyond
/// the hardware's limits is detected, not truncated.
struct Extent {
  std::int64_t x = 1, y = 1, z = 1;

  Extent(dim3 sizes) noexcept : x(sizes.x), y(sizes.y), z(sizes.z) {}
  template <std::integral X, std::integral Y = int, std::integral Z = int>
  Extent(X size_x, Y size_y = 1, Z size_z = 1) noexcept
      : x(static_cast<std::int64_t>(size_x)),
        y(static_cast<std::int64_t>(size_y)),
        z(static_cast<std::int64_t>(size_z)) {}
};

/// Makes `device` the current device during its lifetime.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device, DebugInfo where = {});
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

/// One launch: configured by the constructor and chained calls, performed by the call operator.
///
/// An empty grid launches nothing. A grid or block beyond the hardware's limits is an error before the launch. If a
/// block needs more than 48 KiB of shared memory, static plus dynamic, that is enabled for the kernel. With a
/// `DLDevice`, the device is made current for the launch, on PyTorch's current stream of that device.
class LaunchKernel {
 public:
  struct Config {
    bool use_pdl = false;
    dim3 cluster_dim = dim3(0, 0, 0);  // none
    bool cooperative = false;
  };

  LaunchKernel(Extent grid, Extent block, DLDevice device, std::size_t dynamic_smem_bytes = 0, DebugInfo where = {});
  LaunchKernel(Extent grid, Extent block, cudaStream_t stream, std::size_t dynamic_smem_bytes = 0,
               DebugInfo where = {}) noexcept;
  LaunchKernel(const LaunchKernel&) = delete;
  LaunchKernel& operator=(const LaunchKernel&) = delete;

  /// PyTorch's current stream of `device`.
  static cudaStream_t resolve_device(DLDevice device);

  /// Lets the kernel start before the previous one in the stream has ended (programmatic dependent launch). The kernel
  /// must call `PDLBegin` or `PDLWaitPrimary` (kjit/device.cuh) before it accesses any memory that the other kernel
  /// uses. No effect in units compiled for GPUs before sm_90, where those calls have none either.
  LaunchKernel& enable_pdl(bool enabled = true) noexcept {
#if defined(KJIT_CUDA_ARCH) && KJIT_CUDA_ARCH >= 900
    config_.use_pdl = enabled;
#else
    static_cast<void>(enabled);
#endif
    return *this;
  }
  /// Blocks run in clusters of this size (sm_90 and later).
  LaunchKernel& enable_cluster(dim3 cluster_dim) noexcept {
    config_.cluster_dim = cluster_dim;
    return *this;
  }
  /// All blocks are resident at the same time, so that they may wait for each other.
  LaunchKernel& cooperative(bool enabled = true) noexcept {
    config_.cooperative = enabled;
    return *this;
  }
  /// All options at once: `.config({.use_pdl = true, .cluster_dim = dim3(2)})`.
  LaunchKernel& config(const Config& config) noexcept {
    config_ = config;
    return *this;
  }

  /// Launches `kernel`; the arguments are converted to the kernel's parameters.
  template <typename... Parameters, typename... Args>
  void operator()(void (*kernel)(Parameters...), Args&&... args) const {
    static_assert(sizeof...(Parameters) == sizeof...(Args), "the kernel takes a different number of arguments");
    launch_converted(kernel, static_cast<Parameters>(std::forward<Args>(args))...);
  }
  template <typename Kernel, typename... Args>
  void launch(Kernel kernel, Args&&... args) const {
    (*this)(kernel, std::forward<Args>(args)...);
  }

 private:
  template <typename... Parameters>
  void launch_converted(void (*kernel)(Parameters...), Parameters... parameters) const {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
#if KJIT_SIM
    launch_pointers(::kjit_sim::known(kernel), pointers);
#else
    launch_pointers(reinterpret_cast<const void*>(kernel), pointers);
#endif
  }
  void launch_pointers(const void* kernel, void** parameters) const;
  void check_limits() const;

  Extent grid_;
  Extent block_;
  cudaStream_t stream_;
  std::size_t dynamic_smem_bytes_;
  int device_;  // -1: the current device
  Config config_;
  DebugInfo where_;
};

}  // namespace host

}  // namespace kjit

#ifndef KJIT_PRECOMPILED
#include <kjit/launch.cpp>
#endif
