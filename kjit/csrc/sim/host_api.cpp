// The rest of the CUDA runtime API that host code calls on the simulated GPU, on top of runtime_api.cpp: its properties,
// pitched memory, copies between devices, and settings that have no effect.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  cudaDeviceGetAttribute(&value, which, 0);
  return value;
}

cudaError_t only_device(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return only_device(device);
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "NVIDIA H200 (kjit's simulator)");
  std::size_t available;
  cudaMemGetInfo(&available, &properties->totalGlobalMem);
  properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
  properties->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  properties->warpSize = attribute(cudaDevAttrWarpSize);
  properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  properties->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  properties->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
  properties->maxThreadsDim[0] = attribute(cudaDevAttrMaxBlockDimX);
  properties->maxThreadsDim[1] = attribute(cudaDevAttrMaxBlockDimY);
  properties->maxThreadsDim[2] = attribute(cudaDevAttrMaxBlockDimZ);
  properties->maxGridSize[0] = attribute(cudaDevAttrMaxGridDimX);
  properties->maxGridSize[1] = attribute(cudaDevAttrMaxGridDimY);
  properties->maxGridSize[2] = attribute(cudaDevAttrMaxGridDimZ);
  properties->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
  properties->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
  properties->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties->reservedSharedMemPerBlock = attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  properties->totalConstMem = attribute(cudaDevAttrTotalConstantMemory);
  properties->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
  properties->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
#if CUDART_VERSION < 13000
  properties->clockRate = attribute(cudaDevAttrClockRate);
  properties->memoryClockRate = attribute(cudaDevAttrMemoryClockRate);
#endif
  properties->cooperativeLaunch = attribute(cudaDevAttrCooperativeLaunch);
  properties->clusterLaunch = attribute(cudaDevAttrClusterLaunch);
  properties->concurrentKernels = attribute(cudaDevAttrConcurrentKernels);
  properties->unifiedAddressing = attribute(cudaDevAttrUnifiedAddressing);
  properties->managedMemory = attribute(cudaDevAttrManagedMemory);
  properties->concurrentManagedAccess = attribute(cudaDevAttrConcurrentManagedAccess);
  properties->pageableMemoryAccess = attribute(cudaDevAttrPageableMemoryAccess);
  properties->canMapHostMemory = attribute(cudaDevAttrCanMapHostMemory);
  properties->memoryPoolsSupported = attribute(cudaDevAttrMemoryPoolsSupported);
  return cudaSuccess;
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}
cudaError_t cudaMemset2D(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  for (std::size_t row = 0; row < height; ++row) cudaMemset(static_cast<char*>(target) + row * pitch, value, width);
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t) {
  return cudaMemset2D(target, pitch, value, width, height);
}
cudaError_t cudaMemcpyPeer(void* target, int to, const void* source, int from, std::size_t size) {
  if (to != 0 || from != 0) return cudaErrorInvalidDevice;
  return cudaMemcpy(target, source, size, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void* target, int to, const void* source, int from, std::size_t size, cudaStream_t) {
  return cudaMemcpyPeer(target, to, source, from, size);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}
#else
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) {
  return cudaSuccess;
}
#endif
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, std::size_t, unsigned) {
  return cudaSuccess;
}

// Launches and copies have ended when they return, and so has what a function of the host waits for.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) {
  *flags = cudaStreamDefault;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = cudaDeviceScheduleAuto;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned) {
  return device == 0 ? cudaErrorInvalidDevice : only_device(device);  // no device is a peer of itself
}
cudaError_t cudaDeviceDisablePeerAccess(int device) {
  return device == 0 ? cudaErrorPeerAccessNotEnabled : only_device(device);
}

}  // extern "C"
