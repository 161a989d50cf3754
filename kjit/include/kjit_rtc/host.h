// What is included ahead of everything in the host half of a CUDA unit that NVRTC compiles (kjit/build/halves.py): what
// nvcc includes, but for declarations that device code alone uses. And launches in angle brackets, as calls.

#pragma once

// Device functions; the headers of the C library that come with them are included below.
#define __COMMON_FUNCTIONS_H__
#define __DEVICE_FUNCTIONS_H__

#include <assert.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kjit_rtc {

/// A launch's configuration with its arguments.
template <typename... Args>
struct Launch {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;
  std::tuple<Args&&...> args;
};

/// `grid(...)(args...)` for `<<<...>>>(args...)`.
struct Configuration {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;

  template <typename... Args>
  Launch<Args...> operator()(Args&&... args) const {
    return {grid, block, smem, stream, std::tuple<Args&&...>(std::forward<Args>(args)...)};
  }
};

inline Configuration grid(dim3 grid, dim3 block, std::size_t smem = 0, cudaStream_t stream = nullptr) {
  return {grid, block, smem, stream};
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), const Configuration& config, Parameters... parameters) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
  // As with nvcc: whoever wants to know of an error asks for the last one.
  static_cast<void>(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), config.grid, config.block, pointers,
                                     config.smem, config.stream));
}

template <typename... Parameters, typename... Args>
void operator->*(void (*kernel)(Parameters...), Launch<Args...>&& given) {
  std::apply(
      [&](auto&&... args) {
        launch<Parameters...>(kernel, {given.grid, given.block, given.smem, given.stream},
                              static_cast<Parameters>(std::forward<decltype(args)>(args))...);
      },
      std::move(given.args));
}

}  // namespace kjit_rtc
