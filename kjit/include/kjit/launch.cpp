// The functions of kjit/launch.h that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/launch.h>
#include <kjit/once.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace kjit::host {

KJIT_IMPL const char* details::driver_error_string(int result) noexcept {
  void* symbol = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  // cuGetErrorString is in every driver. The newer call is missing from CUDA 12 runtimes before 12.5, which a module
  // may run on even if it was built with a later one.
#if CUDART_VERSION >= 13000
  const auto error = ::cudaGetDriverEntryPointByVersion("cuGetErrorString", &symbol, 12000, cudaEnableDefault, &found);
#else
  const auto error = ::cudaGetDriverEntryPoint("cuGetErrorString", &symbol, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) static_cast<void>(::cudaGetLastError());
  const char* text = nullptr;
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) {
    reinterpret_cast<int (*)(int, const char**)>(symbol)(result, &text);
  }
  return text != nullptr ? text : "an unknown error of the driver API";
}

KJIT_IMPL const char* details::take_cuda_error(cudaError_t error) noexcept {
  static_cast<void>(::cudaGetLastError());
  return ::cudaGetErrorString(error);
}

// A kernel's code is loaded when it is first queried or launched.
KJIT_IMPL void details::check_code(cudaError_t error, DebugInfo where) {
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidKernelImage) return;
  panic(where, "the kernel's machine code is for another GPU, or made by a newer CUDA than the driver knows (",
        take_cuda_error(error), ")");
}

KJIT_IMPL cudaError_t details::allow_dynamic_smem(const void* kernel, std::size_t bytes, int device, DebugInfo where) {
  struct Known {
    const void* kernel;
    int device;
    std::size_t bytes;
  };
  constexpr std::size_t kKnown = 16;
  static thread_local Known all_known[kKnown];
  Known& known = all_known[reinterpret_cast<std::uintptr_t>(kernel) / 16 % kKnown];
  if (known.kernel == kernel && known.device == device && bytes <= known.bytes) return cudaSuccess;

  constexpr std::size_t kSmemWithoutAsking = 48 * 1024;
  static FactoryMutex asking;  // a smaller size must not be set after a larger one
  const FactoryLock<true> lock(asking);
  const DeviceGuard guard(device, where);
  cudaFuncAttributes attributes{};
  const auto asked = ::cudaFuncGetAttributes(&attributes, kernel);
  check_code(asked, where);
  RuntimeDeviceCheck(asked, where);
  auto allowed = static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes);
  if (bytes > allowed || (allowed <= kSmemWithoutAsking && bytes + attributes.sharedSizeBytes > kSmemWithoutAsking)) {
    if (bytes > allowed) allowed = bytes;
    const auto error =
        ::cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(allowed));
    if (error != cudaSuccess) {
      static_cast<void>(::cudaGetLastError());
      return error;
    }
  }
  known = {kernel, device, allowed};
  return cudaSuccess;
}

using details::take_cuda_error;

KJIT_IMPL void RuntimeDeviceCheck(cudaError_t error, DebugInfo where) {
  if (error == cudaSuccess) return;
  panic(where, "CUDA error: ", take_cuda_error(error));
}

KJIT_IMPL DeviceGuard::DeviceGuard(int device, DebugInfo where) {
  int current = -1;
  RuntimeDeviceCheck(::cudaGetDevice(&current), where);
  if (current == device) return;
  RuntimeDeviceCheck(::cudaSetDevice(device), where);
  previous_ = current;
}

KJIT_IMPL DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) static_cast<void>(::cudaSetDevice(previous_));
}

KJIT_IMPL LaunchKernel::LaunchKernel(Extent grid, Extent block, DLDevice device, std::size_t dynamic_smem_bytes,
                                     DebugInfo where)
    : grid_(grid),
      block_(block),
      stream_(resolve_device(device)),
      dynamic_smem_bytes_(dynamic_smem_bytes),
      device_(device.device_id),
      where_(where) {
  if (device.device_type != kDLGPU) panic(where, "a kernel cannot be launched on ", device);
}

KJIT_IMPL LaunchKernel::LaunchKernel(Extent grid, Extent block, cudaStream_t stream, std::size_t dynamic_smem_bytes,
                                     DebugInfo where) noexcept
    : grid_(grid),
      block_(block),
      stream_(stream),
      dynamic_smem_bytes_(dynamic_smem_bytes),
      device_(-1),
      where_(where) {}

KJIT_IMPL cudaStream_t LaunchKernel::resolve_device(DLDevice device) {
  return static_cast<cudaStream_t>(::TVMFFIEnvGetStream(device.device_type, device.device_id));
}

// Limits of every architecture since sm_30: CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability".
KJIT_IMPL void LaunchKernel::check_limits() const {
  constexpr std::int64_t kMaxGridX = 2147483647, kMaxGridYZ = 65535, kMaxThreads = 1024, kMaxBlockZ = 64;
  const bool grid_fits = grid_.x >= 0 && grid_.y >= 0 && grid_.z >= 0 && grid_.x <= kMaxGridX &&
                         grid_.y <= kMaxGridYZ && grid_.z <= kMaxGridYZ;
  if (!grid_fits) {
    panic(where_, "a grid of ", grid_.x, " x ", grid_.y, " x ", grid_.z, " blocks exceeds the hardware's limit of ",
          kMaxGridX, " x ", kMaxGridYZ, " x ", kMaxGridYZ);
  }
  const bool each_fits = block_.x > 0 && block_.y > 0 && block_.z > 0 && block_.x <= kMaxThreads &&
                         block_.y <= kMaxThreads && block_.z <= kMaxBlockZ;
  if (!each_fits || block_.x * block_.y * block_.z > kMaxThreads) {
    panic(where_, "a block of ", block_.x, " x ", block_.y, " x ", block_.z, " threads is not possible: 1 to ",
          kMaxThreads, " threads in all, at most ", kMaxBlockZ, " in z");
  }
}

KJIT_IMPL void LaunchKernel::launch_pointers(const void* kernel, void** parameters) const {
  check_limits();
  if (grid_.x == 0 || grid_.y == 0 || grid_.z == 0) return;

  // Without a device of our own, the current one is set again, which is free.
  int device = device_;
  if (device < 0) RuntimeDeviceCheck(::cudaGetDevice(&device), where_);
  const DeviceGuard guard(device, where_);

  if (dynamic_smem_bytes_ > 0) {
    const auto error = details::allow_dynamic_smem(kernel, dynamic_smem_bytes_, device, where_);
    if (error != cudaSuccess) {
      int limit = 0;
      RuntimeDeviceCheck(::cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), where_);
      panic(where_, dynamic_smem_bytes_, " bytes of dynamic shared memory are not possible here: the GPU has ", limit,
            " bytes for a block, static shared memory included (", ::cudaGetErrorString(error), ")");
    }
  }

  cudaLaunchAttribute attributes[3];
  unsigned count = 0;
  if (config_.use_pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (config_.cluster_dim.x != 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = config_.cluster_dim.x;
    attributes[count].val.clusterDim.y = config_.cluster_dim.y;
    attributes[count++].val.clusterDim.z = config_.cluster_dim.z;
  }
  if (config_.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }

  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(grid_.x), static_cast<unsigned>(grid_.y), static_cast<unsigned>(grid_.z));
  launch.blockDim =
      dim3(static_cast<unsigned>(block_.x), static_cast<unsigned>(block_.y), static_cast<unsigned>(block_.z));
  launch.dynamicSmemBytes = dynamic_smem_bytes_;
  launch.stream = stream_;
  launch.attrs = attributes;
  launch.numAttrs = count;
  const auto error = ::cudaLaunchKernelExC(&launch, kernel, parameters);
  if (error == cudaSuccess) return;
  details::check_code(error, where_);
  static_cast<void>(::cudaGetLastError());
  panic(where_, "CUDA error: ", ::cudaGetErrorString(error), " (launching ", grid_.x, " x ", grid_.y, " x ", grid_.z,
        " blocks of ", block_.x, " x ", block_.y, " x ", block_.z, " threads with ", dynamic_smem_bytes_,
        " bytes of dynamic shared memory)");
}

}  // namespace kjit::host
