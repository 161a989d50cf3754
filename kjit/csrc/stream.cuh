// A stream waits until a word of GPU memory has a value, or writes one: by the driver if it supports it
// (cuStreamWaitValue32), otherwise by a kernel with one thread.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/atomic.cuh>
#include <kjit/device.cuh>

#include <cstdint>

namespace {

using namespace kjit;

__global__ void wait_kernel(uint32_t* flag, uint32_t value, uint64_t nanoseconds, int32_t* timed_out) {
  const auto now = [] {
#if KJIT_SIM
    return globaltimer();
#else
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#endif
  };
  device::PDLBegin();
  const uint64_t start = now();
  while (device::atomic::ptx::load_acquire_u32(flag) != value) {
    if (nanoseconds > 0 && now() - start > nanoseconds) {
      *timed_out = 1;
      return;
    }
    __nanosleep(200);
  }
}

__global__ void write_kernel(uint32_t* flag, uint32_t value) {
  device::PDLBegin();
  __threadfence();
  *reinterpret_cast<volatile uint32_t*>(flag) = value;
}

using StreamValue = int (*)(cudaStream_t, unsigned long long, uint32_t, unsigned);

/// The driver's function with this name; null if it has none.
StreamValue driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const auto error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
#else
  const auto error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
  host::RuntimeDeviceCheck(error);
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<StreamValue>(function) : nullptr;
}

uint32_t* checked(TensorView flag, host::SymbolicDevice& gpu) {
  host::TensorMatcher({1}).with_device<kDLCUDA>(gpu).with_dtype<int32_t>().verify(flag, "flag");
  return host::data_of<uint32_t>(flag);
}

/// Whether the driver supports and has enqueued the operation.
bool by_driver(StreamValue function, DLDevice device, uint32_t* word, int64_t value, unsigned flags) {
  if (function == nullptr) return false;
  const int error = function(host::LaunchKernel::resolve_device(device), reinterpret_cast<unsigned long long>(word),
                             static_cast<uint32_t>(value), flags);
  constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
  host::RuntimeCheck(error == 0 || error == kNotSupported, "the driver refuses it: CUDA error ", error);
  return error == 0;
}

void stream_wait_value(TensorView flag, int64_t value, double timeout, Optional<TensorView> timed_out) {
  using namespace host;
  SymbolicDevice gpu;
  uint32_t* const word = checked(flag, gpu);
  RuntimeCheck(timeout >= 0, "timeout is ", timeout, ", and must not be negative");
  RuntimeCheck((timeout > 0) == timed_out.has_value(), "timeout and timed_out are given together, or neither");
  if (timed_out.has_value()) {
    TensorMatcher({1}).with_device(gpu).with_dtype<int32_t>().verify(*timed_out, "timed_out");
  } else {
    static const StreamValue kWait = driver_function("cuStreamWaitValue32");
    constexpr unsigned kEqual = 1;  // CU_STREAM_WAIT_VALUE_EQ
    if (by_driver(kWait, gpu.unwrap(), word, value, kEqual)) return;
  }
  LaunchKernel(1, 1, gpu.unwrap())(wait_kernel, word, static_cast<uint32_t>(value),
                                   static_cast<uint64_t>(timeout * 1e9),
                                   timed_out.has_value() ? static_cast<int32_t*>(timed_out->data_ptr()) : nullptr);
}

void stream_write_value(TensorView flag, int64_t value) {
  using namespace host;
  SymbolicDevice gpu;
  uint32_t* const word = checked(flag, gpu);
  static const StreamValue kWrite = driver_function("cuStreamWriteValue32");
  if (by_driver(kWrite, gpu.unwrap(), word, value, 0)) return;
  LaunchKernel(1, 1, gpu.unwrap())(write_kernel, word, static_cast<uint32_t>(value));
}

}  // namespace
