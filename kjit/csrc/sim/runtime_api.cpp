// The CUDA runtime's C API for the simulated device: one H200, whose memory is host memory. All calls are synchronous,
// so streams and events are trivially ordered.

#include <kjit_sim/launch.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>

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
    accuse("launches a kernel, which the simulator cannot run", own_caller());
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

using kjit_sim::set_error;

extern "C" {

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** parameters, size_t smem, cudaStream_t) {
  return kjit_sim::launch_kernel(kernel, grid, block, parameters, smem);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** parameters, size_t smem,
                                        cudaStream_t) {
  return kjit_sim::launch_kernel(kernel, grid, block, parameters, smem, true);
}
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
cudaError_t cudaPeekAtLastError() {
  return kjit_sim::last_error;
}

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

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : set_error(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

// The attributes of an NVIDIA H200.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7fffffff;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kjit_sim::kSharedWithoutAsking;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kjit_sim::kMaxDynamicShared;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kjit_sim::kSharedPerSm;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = kjit_sim::kSharedReserved;
      break;
    case cudaDevAttrTotalConstantMemory:
      *value = 65536;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = 65536;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = kjit_sim::kSmCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kjit_sim::kThreadsPerSm;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = kjit_sim::kBlocksPerSm;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 60 << 20;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 3201000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 6144;
      break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      *value = 0;
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
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
  return cudaSuccess;
}
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
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t smem, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, smem);
}
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
cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t) {
  return cudaMalloc(pointer, size);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  return cudaFree(pointer);
}
cudaError_t cudaMallocHost(void** pointer, size_t size) {
  return cudaMalloc(pointer, size);
}
cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  return cudaMalloc(pointer, size);
}
cudaError_t cudaFreeHost(void* pointer) {
  return cudaFree(pointer);
}
cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned) {
  return cudaMalloc(pointer, size);
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) {
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
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
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t size, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(target, source, size, kind);
}
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
cudaError_t cudaMemsetAsync(void* target, int value, size_t size, cudaStream_t) {
  return cudaMemset(target, value, size);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = static_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

// An event is the time at which it was recorded.
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = static_cast<cudaEvent_t>(std::calloc(1, sizeof(timespec)));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (event == nullptr) return set_error(cudaErrorInvalidResourceHandle);
  clock_gettime(CLOCK_MONOTONIC, reinterpret_cast<timespec*>(event));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event != nullptr ? cudaSuccess : set_error(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cudaEventSynchronize(event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin == nullptr || end == nullptr) return set_error(cudaErrorInvalidResourceHandle);
  const auto& from = *reinterpret_cast<timespec*>(begin);
  const auto& to = *reinterpret_cast<timespec*>(end);
  *milliseconds =
      static_cast<float>(to.tv_sec - from.tv_sec) * 1e3f + static_cast<float>(to.tv_nsec - from.tv_nsec) / 1e6f;
  return cudaSuccess;
}

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
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return find_driver_function(name, function, status);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return find_driver_function(name, function, status);
}

}  // extern "C"
