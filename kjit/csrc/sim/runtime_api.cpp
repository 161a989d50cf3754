// The CUDA runtime's C API for the simulated device: one H200, whose memory is host memory. All calls are synchronous,
// so streams and events are trivially ordered.

#include <kjit_sim/launch.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <type_traits>

#include "places.h"
#include "scheduler.h"

namespace kjit_sim {

namespace {

constexpr std::size_t kSharedWithoutAsking = 48 * 1024;
constexpr std::size_t kSharedPerSm = 228 * 1024;
constexpr std::size_t kSharedReserved = 1024;  // per block, by the system
constexpr int kThreadsPerSm = 2048;
constexpr int kBlocksPerSm = 32;
constexpr int kSmCount = 132;
constexpr std::uint32_t kPortableCluster = 8;  // blocks

/// A registered kernel: how to call it, and its attributes.
struct Kernel {
  const void* address;
  Invoker invoker;
  int max_dynamic_shared;
  int carveout;
  bool may_have_large_clusters;
};

// Open addressing; kernels are never removed, and a table of this size does not fill in practice.
constexpr std::size_t kMaxKernels = 1 << 14;
Kernel kernels[kMaxKernels];
pthread_mutex_t kernels_mutex = PTHREAD_MUTEX_INITIALIZER;

/// The entry of a kernel, created if necessary; with `kernels_mutex` held.
Kernel* entry_of(const void* address) {
  std::size_t place = reinterpret_cast<std::size_t>(address) / 16 * 0x9e3779b97f4a7c15 >> 50;
  for (std::size_t tries = 0; tries < kMaxKernels; ++tries, place = (place + 1) % kMaxKernels) {
    Kernel& kernel = kernels[place];
    if (kernel.address == address) return &kernel;
    if (kernel.address != nullptr) continue;
    kernel = {address, nullptr, static_cast<int>(kSharedWithoutAsking), cudaSharedmemCarveoutDefault, false};
    return &kernel;
  }
  return nullptr;
}

Kernel find_kernel(const void* address) {
  pthread_mutex_lock(&kernels_mutex);
  Kernel* const entry = address != nullptr ? entry_of(address) : nullptr;
  const Kernel kernel = entry != nullptr ? *entry : Kernel{};
  pthread_mutex_unlock(&kernels_mutex);
  return kernel;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local char last_report[sizeof(Launch::report) + 64];

cudaError_t set_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// Writes a result.
template <typename T>
cudaError_t give(T* result, std::type_identity_t<T> value) {
  *result = value;
  return cudaSuccess;
}

/// An error with a custom text, which `cudaGetErrorString` returns for it.
cudaError_t set_report(const char* text) {
  std::snprintf(last_report, sizeof(last_report), "%s", text);
  return set_error(cudaErrorLaunchFailure);
}

class LaunchError : public std::exception {
 public:
  explicit LaunchError(const char* text) { std::snprintf(text_, sizeof(text_), "%s", text); }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[sizeof(last_report)];
};

bool is_possible(dim3 grid, dim3 block) {
  const std::uint64_t threads = count_of(block);
  return threads > 0 && threads <= kMaxThreads && block.z <= 64 && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
         grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
}

int blocks_per_sm(int threads, std::size_t smem) {
  if (threads <= 0 || threads > static_cast<int>(kMaxThreads) || smem > kMaxDynamicShared) return 0;
  const int whole_warps = (threads + 31) / 32 * 32;
  int blocks = kThreadsPerSm / whole_warps;
  const auto by_shared = static_cast<int>(kSharedPerSm / (smem + kSharedReserved));
  if (by_shared < blocks) blocks = by_shared;
  return blocks < kBlocksPerSm ? blocks : kBlocksPerSm;
}

/// The largest cluster size of a kernel, in blocks.
std::uint64_t max_cluster(const Kernel& kernel) {
  return kernel.may_have_large_clusters ? kMaxCluster : kPortableCluster;
}

cudaError_t launch_kernel(const void* address, dim3 grid, dim3 block, void** parameters, std::size_t smem,
                          bool cooperative = false, dim3 cluster = dim3()) {
  if (is_in_kernel()) {
    const Inside inside;
    fail_at("launches a kernel, which the simulator cannot run", own_caller());
  }
  const Kernel kernel = find_kernel(address);
  if (kernel.address == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  if (kernel.invoker == nullptr) {
    return set_report("the simulator does not know this kernel's parameters: launch it with its type, not as void*");
  }
  if (!is_possible(grid, block)) return set_error(cudaErrorInvalidConfiguration);
  if (smem > static_cast<std::size_t>(kernel.max_dynamic_shared)) return set_error(cudaErrorInvalidValue);
  const std::uint64_t blocks = count_of(grid);
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0) return set_error(cudaErrorInvalidValue);
  if (count_of(cluster) > max_cluster(kernel)) return set_error(cudaErrorInvalidClusterSize);
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return set_error(cudaErrorInvalidConfiguration);
  }
  if (cooperative) {
    const auto fit = static_cast<std::uint64_t>(blocks_per_sm(static_cast<int>(count_of(block)), smem));
    if (blocks > fit * kSmCount) return set_error(cudaErrorCooperativeLaunchTooLarge);
  }
  Launch launch;
  launch.kernel = address;
  launch.invoker = kernel.invoker;
  launch.parameters = parameters;
  launch.grid = grid;
  launch.block = block;
  launch.cluster = cluster;
  launch.smem = smem;
  launch.cooperative = cooperative;
  return run(launch) ? cudaSuccess : set_report(launch.report);
}

/// The cluster size that a launch requests.
dim3 cluster_of(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& dim = config.attrs[i].val.clusterDim;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) return dim3(dim.x, dim.y, dim.z);
  }
  return dim3();
}

}  // namespace

void know(const void* address, Invoker invoker) {
  pthread_mutex_lock(&kernels_mutex);
  if (Kernel* const kernel = entry_of(address)) kernel->invoker = invoker;
  pthread_mutex_unlock(&kernels_mutex);
}

void launch_or_throw(const void* kernel, dim3 grid, dim3 block, void** parameters, std::size_t smem, cudaStream_t) {
  const cudaError_t error = launch_kernel(kernel, grid, block, parameters, smem);
  if (error == cudaErrorLaunchFailure) {
    last_error = cudaSuccess;
    throw LaunchError(last_report);
  }
  if (error == cudaSuccess || hooks.launch_begin == nullptr) return;
  // In check mode, an unchecked launch error is thrown.
  last_error = cudaSuccess;
  char name[200], line[260];
  name_of_kernel(kernel, name, sizeof(name));
  place_of(own_caller(), line, sizeof(line));
  std::snprintf(last_report, sizeof(last_report),
                "CUDA error: %s: kernel %s is not launched (%u x %u x %u blocks of %u x %u x %u threads with %zu bytes "
                "of dynamic "
                "shared memory), at %s",
                cudaGetErrorString(error), name, grid.x, grid.y, grid.z, block.x, block.y, block.z, smem, line);
  throw LaunchError(last_report);
}

}  // namespace kjit_sim

using kjit_sim::give;
using kjit_sim::set_error;

extern "C" {

#define KJIT_SIM_API(name, parameters, ...) \
  cudaError_t name parameters {             \
    return __VA_ARGS__;                     \
  }
KJIT_SIM_API(cudaLaunchKernel,
             (const void* kernel, dim3 grid, dim3 block, void** parameters, size_t smem, cudaStream_t),
             kjit_sim::launch_kernel(kernel, grid, block, parameters, smem))
KJIT_SIM_API(cudaLaunchCooperativeKernel,
             (const void* kernel, dim3 grid, dim3 block, void** parameters, size_t smem, cudaStream_t),
             kjit_sim::launch_kernel(kernel, grid, block, parameters, smem, true))
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** parameters) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) cooperative = attribute.val.cooperative != 0;
  }
  return kjit_sim::launch_kernel(kernel, config->gridDim, config->blockDim, parameters, config->dynamicSmemBytes,
                                 cooperative, kjit_sim::cluster_of(*config));
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = kjit_sim::last_error;
  kjit_sim::last_error = cudaSuccess;
  return error;
}
KJIT_SIM_API(cudaPeekAtLastError, (), kjit_sim::last_error)

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define KJIT_SIM_ERROR(name, text) \
  case name:                       \
    return #name;
#include "errors.inc"
#undef KJIT_SIM_ERROR
    default:
      return "unrecognized error code";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure && kjit_sim::last_report[0] != '\0') return kjit_sim::last_report;
  switch (error) {
#define KJIT_SIM_ERROR(name, text) \
  case name:                       \
    return text;
#include "errors.inc"
#undef KJIT_SIM_ERROR
    default:
      return "unrecognized error code";
  }
}

KJIT_SIM_API(cudaGetDeviceCount, (int* count), give(count, 1))
KJIT_SIM_API(cudaGetDevice, (int* device), give(device, 0))
KJIT_SIM_API(cudaSetDevice, (int device), device == 0 ? cudaSuccess : set_error(cudaErrorInvalidDevice))
KJIT_SIM_API(cudaRuntimeGetVersion, (int* version), give(version, CUDART_VERSION))
KJIT_SIM_API(cudaDriverGetVersion, (int* version), give(version, CUDART_VERSION))
KJIT_SIM_API(cudaDeviceSynchronize, (), cudaSuccess)
KJIT_SIM_API(cudaDeviceReset, (), cudaSuccess)
KJIT_SIM_API(cudaDeviceSetLimit, (cudaLimit, size_t), cudaSuccess)
KJIT_SIM_API(cudaDeviceCanAccessPeer, (int* can, int, int), give(can, 0))

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice);
  // Those of an NVIDIA H200; others are 0.
  static constexpr struct {
    cudaDeviceAttr attribute;
    int value;
  } kAttributes[] = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 0x7fffffff},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, kjit_sim::kSharedWithoutAsking},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, kjit_sim::kMaxDynamicShared},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kjit_sim::kSharedPerSm},
      {cudaDevAttrReservedSharedMemoryPerBlock, kjit_sim::kSharedReserved},
      {cudaDevAttrTotalConstantMemory, 65536},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrMultiProcessorCount, kjit_sim::kSmCount},
      {cudaDevAttrMaxThreadsPerMultiProcessor, kjit_sim::kThreadsPerSm},
      {cudaDevAttrMaxBlocksPerMultiprocessor, kjit_sim::kBlocksPerSm},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrL2CacheSize, 60 << 20},
      {cudaDevAttrClockRate, 1980000},
      {cudaDevAttrMemoryClockRate, 3201000},
      {cudaDevAttrGlobalMemoryBusWidth, 6144},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrClusterLaunch, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrManagedMemory, 1},
      {cudaDevAttrConcurrentManagedAccess, 1},
      {cudaDevAttrPageableMemoryAccess, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
  };
  *value = 0;
  for (const auto& each : kAttributes) {
    if (each.attribute == attribute) *value = each.value;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  const bool is_shared = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (is_shared && (value < 0 || static_cast<std::size_t>(value) > kjit_sim::kMaxDynamicShared)) {
    return set_error(cudaErrorInvalidValue);
  }
  const bool is_carveout = attribute == cudaFuncAttributePreferredSharedMemoryCarveout;
  if (is_carveout && (value < -1 || value > 100)) return set_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&kjit_sim::kernels_mutex);
  kjit_sim::Kernel* const entry = kjit_sim::entry_of(kernel);
  if (is_shared && entry != nullptr) entry->max_dynamic_shared = value;
  if (is_carveout && entry != nullptr) entry->carveout = value;
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed && entry != nullptr) {
    entry->may_have_large_clusters = value != 0;
  }
  pthread_mutex_unlock(&kjit_sim::kernels_mutex);
  return cudaSuccess;
}
KJIT_SIM_API(cudaFuncSetCacheConfig, (const void*, cudaFuncCache), cudaSuccess)
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* address) {
  const kjit_sim::Kernel kernel = kjit_sim::find_kernel(address);
  if (kernel.address == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = kernel.max_dynamic_shared;
  attributes->preferredShmemCarveout = kernel.carveout;
  attributes->nonPortableClusterSizeAllowed = kernel.may_have_large_clusters ? 1 : 0;
  return cudaSuccess;
}

// Occupancy by threads and shared memory: a kernel's registers and its static shared memory are unknown.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t smem) {
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  const int carveout = kjit_sim::find_kernel(kernel).carveout;
  *blocks = kjit_sim::blocks_per_sm(threads, smem);
  if (carveout >= 0) {
    // Shared memory capacities of sm_90 in KiB: CUDA C++ Programming Guide, "Compute Capability 9.0, Shared Memory".
    static constexpr std::size_t kCapacities[] = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
    const std::size_t asked = kjit_sim::kSharedPerSm / 100 * static_cast<std::size_t>(carveout);
    for (const std::size_t capacity : kCapacities) {
      if (capacity * 1024 < asked) continue;
      // One block always fits: the carveout is a hint.
      auto fit = static_cast<int>(capacity * 1024 / (smem + kjit_sim::kSharedReserved));
      if (fit < 1) fit = 1;
      if (fit < *blocks) *blocks = fit;
      break;
    }
  }
  return cudaSuccess;
}
KJIT_SIM_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
             (int* blocks, const void* kernel, int threads, size_t smem, unsigned),
             cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, smem))
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* kernel, int blocks, int) {
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  if (blocks <= 0) return set_error(cudaErrorInvalidValue);
  const std::size_t each = kjit_sim::kSharedPerSm / static_cast<std::size_t>(blocks) - kjit_sim::kSharedReserved;
  *bytes = each < kjit_sim::kMaxDynamicShared ? each : kjit_sim::kMaxDynamicShared;
  return cudaSuccess;
}

// An H200 supports clusters of every size, as many as fit.
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* kernel, const cudaLaunchConfig_t*) {
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  *size = static_cast<int>(kjit_sim::max_cluster(kjit_sim::find_kernel(kernel)));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel, const cudaLaunchConfig_t* config) {
  if (kernel == nullptr) return set_error(cudaErrorInvalidDeviceFunction);
  const auto threads = static_cast<int>(kjit_sim::count_of(config->blockDim));
  const int blocks = kjit_sim::kSmCount * kjit_sim::blocks_per_sm(threads, config->dynamicSmemBytes);
  *clusters = blocks / static_cast<int>(kjit_sim::count_of(kjit_sim::cluster_of(*config)));
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t size) {
  *pointer = size == 0 ? nullptr : std::aligned_alloc(256, (size + 255) / 256 * 256);
  if (*pointer != nullptr && kjit_sim::hooks.allocated != nullptr) kjit_sim::hooks.allocated(*pointer, size);
  return size == 0 || *pointer != nullptr ? cudaSuccess : set_error(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr && kjit_sim::hooks.freed != nullptr) kjit_sim::hooks.freed(pointer);
  std::free(pointer);
  return cudaSuccess;
}
KJIT_SIM_API(cudaMallocAsync, (void** pointer, size_t size, cudaStream_t), cudaMalloc(pointer, size))
KJIT_SIM_API(cudaFreeAsync, (void* pointer, cudaStream_t), cudaFree(pointer))
KJIT_SIM_API(cudaMallocHost, (void** pointer, size_t size), cudaMalloc(pointer, size))
KJIT_SIM_API(cudaHostAlloc, (void** pointer, size_t size, unsigned), cudaMalloc(pointer, size))
KJIT_SIM_API(cudaFreeHost, (void* pointer), cudaFree(pointer))
KJIT_SIM_API(cudaMallocManaged, (void** pointer, size_t size, unsigned), cudaMalloc(pointer, size))
KJIT_SIM_API(cudaHostRegister, (void*, size_t, unsigned), cudaSuccess)
KJIT_SIM_API(cudaHostUnregister, (void*), cudaSuccess)
KJIT_SIM_API(cudaHostGetDevicePointer, (void** device, void* host, unsigned), give(device, host))
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *available = *total = std::size_t{141} << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t size, cudaMemcpyKind) {
  if (size > 0) std::memmove(target, source, size);
  return cudaSuccess;
}
KJIT_SIM_API(cudaMemcpyAsync, (void* target, const void* source, size_t size, cudaMemcpyKind kind, cudaStream_t),
             cudaMemcpy(target, source, size, kind))
cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                         size_t height, cudaMemcpyKind) {
  for (size_t row = 0; row < height; ++row) {
    std::memcpy(static_cast<char*>(target) + row * target_pitch, static_cast<const char*>(source) + row * source_pitch,
                width);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy2D(target, target_pitch, source, source_pitch, width, height, kind);
}
cudaError_t cudaMemset(void* target, int value, size_t size) {
  if (size > 0) std::memset(target, value, size);
  return cudaSuccess;
}
KJIT_SIM_API(cudaMemsetAsync, (void* target, int value, size_t size, cudaStream_t), cudaMemset(target, value, size))

KJIT_SIM_API(cudaStreamCreate, (cudaStream_t * stream), give(stream, static_cast<cudaStream_t>(std::malloc(1))))
KJIT_SIM_API(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned), cudaStreamCreate(stream))
KJIT_SIM_API(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned, int), cudaStreamCreate(stream))
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  return cudaSuccess;
}
KJIT_SIM_API(cudaStreamSynchronize, (cudaStream_t), cudaSuccess)
KJIT_SIM_API(cudaStreamQuery, (cudaStream_t), cudaSuccess)
KJIT_SIM_API(cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned), cudaSuccess)
KJIT_SIM_API(cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus* status),
             give(status, cudaStreamCaptureStatusNone))

// An event is the time at which it was recorded.
KJIT_SIM_API(cudaEventCreate, (cudaEvent_t * event),
             give(event, static_cast<cudaEvent_t>(std::calloc(1, sizeof(timespec)))))
KJIT_SIM_API(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned), cudaEventCreate(event))
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (event == nullptr) return set_error(cudaErrorInvalidResourceHandle);
  clock_gettime(CLOCK_MONOTONIC, reinterpret_cast<timespec*>(event));
  return cudaSuccess;
}
KJIT_SIM_API(cudaEventSynchronize, (cudaEvent_t event),
             event != nullptr ? cudaSuccess : set_error(cudaErrorInvalidResourceHandle))
KJIT_SIM_API(cudaEventQuery, (cudaEvent_t event), cudaEventSynchronize(event))
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin == nullptr || end == nullptr) return set_error(cudaErrorInvalidResourceHandle);
  const auto& from = *reinterpret_cast<timespec*>(begin);
  const auto& to = *reinterpret_cast<timespec*>(end);
  *milliseconds =
      static_cast<float>(to.tv_sec - from.tv_sec) * 1e3f + static_cast<float>(to.tv_nsec - from.tv_nsec) / 1e6f;
  return cudaSuccess;
}

// Its properties, pitched memory, copies between devices, and settings that have no effect.
static int attribute_of(cudaDeviceAttr which) {
  int value = 0;
  cudaDeviceGetAttribute(&value, which, 0);
  return value;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "NVIDIA H200 (kjit's simulator)");
  size_t available;
  cudaMemGetInfo(&available, &properties->totalGlobalMem);
  properties->major = attribute_of(cudaDevAttrComputeCapabilityMajor);
  properties->minor = attribute_of(cudaDevAttrComputeCapabilityMinor);
  properties->warpSize = attribute_of(cudaDevAttrWarpSize);
  properties->multiProcessorCount = attribute_of(cudaDevAttrMultiProcessorCount);
  properties->maxThreadsPerBlock = attribute_of(cudaDevAttrMaxThreadsPerBlock);
  properties->maxThreadsPerMultiProcessor = attribute_of(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties->maxBlocksPerMultiProcessor = attribute_of(cudaDevAttrMaxBlocksPerMultiprocessor);
  properties->maxThreadsDim[0] = attribute_of(cudaDevAttrMaxBlockDimX);
  properties->maxThreadsDim[1] = attribute_of(cudaDevAttrMaxBlockDimY);
  properties->maxThreadsDim[2] = attribute_of(cudaDevAttrMaxBlockDimZ);
  properties->maxGridSize[0] = attribute_of(cudaDevAttrMaxGridDimX);
  properties->maxGridSize[1] = attribute_of(cudaDevAttrMaxGridDimY);
  properties->maxGridSize[2] = attribute_of(cudaDevAttrMaxGridDimZ);
  properties->regsPerBlock = attribute_of(cudaDevAttrMaxRegistersPerBlock);
  properties->regsPerMultiprocessor = attribute_of(cudaDevAttrMaxRegistersPerMultiprocessor);
  properties->sharedMemPerBlock = attribute_of(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->sharedMemPerBlockOptin = attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties->sharedMemPerMultiprocessor = attribute_of(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties->reservedSharedMemPerBlock = attribute_of(cudaDevAttrReservedSharedMemoryPerBlock);
  properties->totalConstMem = attribute_of(cudaDevAttrTotalConstantMemory);
  properties->l2CacheSize = attribute_of(cudaDevAttrL2CacheSize);
  properties->memoryBusWidth = attribute_of(cudaDevAttrGlobalMemoryBusWidth);
#if CUDART_VERSION < 13000
  properties->clockRate = attribute_of(cudaDevAttrClockRate);
  properties->memoryClockRate = attribute_of(cudaDevAttrMemoryClockRate);
#endif
  properties->cooperativeLaunch = attribute_of(cudaDevAttrCooperativeLaunch);
  properties->clusterLaunch = attribute_of(cudaDevAttrClusterLaunch);
  properties->concurrentKernels = attribute_of(cudaDevAttrConcurrentKernels);
  properties->unifiedAddressing = attribute_of(cudaDevAttrUnifiedAddressing);
  properties->managedMemory = attribute_of(cudaDevAttrManagedMemory);
  properties->concurrentManagedAccess = attribute_of(cudaDevAttrConcurrentManagedAccess);
  properties->pageableMemoryAccess = attribute_of(cudaDevAttrPageableMemoryAccess);
  properties->canMapHostMemory = attribute_of(cudaDevAttrCanMapHostMemory);
  properties->memoryPoolsSupported = attribute_of(cudaDevAttrMemoryPoolsSupported);
  return cudaSuccess;
}
KJIT_SIM_API(cudaChooseDevice, (int* device, const cudaDeviceProp*), give(device, 0))

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}
cudaError_t cudaMemset2D(void* target, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) cudaMemset(static_cast<char*>(target) + row * pitch, value, width);
  return cudaSuccess;
}
KJIT_SIM_API(cudaMemset2DAsync, (void* target, size_t pitch, int value, size_t width, size_t height, cudaStream_t),
             cudaMemset2D(target, pitch, value, width, height))
cudaError_t cudaMemcpyPeer(void* target, int to, const void* source, int from, size_t size) {
  if (to != 0 || from != 0) return cudaErrorInvalidDevice;
  return cudaMemcpy(target, source, size, cudaMemcpyDeviceToDevice);
}
KJIT_SIM_API(cudaMemcpyPeerAsync, (void* target, int to, const void* source, int from, size_t size, cudaStream_t),
             cudaMemcpyPeer(target, to, source, from, size))
#if CUDART_VERSION >= 13000
KJIT_SIM_API(cudaMemPrefetchAsync, (const void*, size_t, cudaMemLocation, unsigned, cudaStream_t), cudaSuccess)
KJIT_SIM_API(cudaMemAdvise, (const void*, size_t, cudaMemoryAdvise, cudaMemLocation), cudaSuccess)
#else
KJIT_SIM_API(cudaMemPrefetchAsync, (const void*, size_t, int, cudaStream_t), cudaSuccess)
KJIT_SIM_API(cudaMemAdvise, (const void*, size_t, cudaMemoryAdvise, int), cudaSuccess)
#endif
KJIT_SIM_API(cudaStreamAttachMemAsync, (cudaStream_t, void*, size_t, unsigned), cudaSuccess)

// Launches and copies have ended when they return, and so has what a function of the host waits for.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
KJIT_SIM_API(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned),
             cudaEventRecord(event, stream))

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
KJIT_SIM_API(cudaStreamGetPriority, (cudaStream_t, int* priority), give(priority, 0))
KJIT_SIM_API(cudaStreamGetFlags, (cudaStream_t, unsigned* flags), give(flags, cudaStreamDefault))
KJIT_SIM_API(cudaSetDeviceFlags, (unsigned), cudaSuccess)
KJIT_SIM_API(cudaGetDeviceFlags, (unsigned* flags), give(flags, cudaDeviceScheduleAuto))
KJIT_SIM_API(cudaDeviceSetCacheConfig, (cudaFuncCache), cudaSuccess)
KJIT_SIM_API(cudaDeviceGetCacheConfig, (cudaFuncCache * config), give(config, cudaFuncCachePreferNone))
// No device is a peer of itself.
KJIT_SIM_API(cudaDeviceEnablePeerAccess, (int, unsigned), cudaErrorInvalidDevice)
KJIT_SIM_API(cudaDeviceDisablePeerAccess, (int device),
             device == 0 ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice)

// The only driver function: descriptions of errors, which have the runtime's numbers.
static int driver_error_string(int result, const char** text) {
  *text = nullptr;
  switch (result) {
#define KJIT_SIM_ERROR(name, words) \
  case name:                        \
    *text = words;                  \
    return 0;
#include "errors.inc"
#undef KJIT_SIM_ERROR
    default:
      return cudaErrorInvalidValue;
  }
}
static cudaError_t find_driver_function(const char* name, void** function, cudaDriverEntryPointQueryResult* status) {
  const bool is_known = std::strcmp(name, "cuGetErrorString") == 0;
  *function = is_known ? reinterpret_cast<void*>(&driver_error_string) : nullptr;
  if (status != nullptr) *status = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
KJIT_SIM_API(cudaGetDriverEntryPoint,
             (const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* status),
             find_driver_function(name, function, status))
KJIT_SIM_API(cudaGetDriverEntryPointByVersion,
             (const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status),
             find_driver_function(name, function, status))

#undef KJIT_SIM_API

}  // extern "C"
