// The prefix of the host half of a CUDA unit that NVRTC compiles (kjit/engine/compile/halves.py): what nvcc includes,
// without device functions, and without <math.h>, which takes longer to parse than most units; and launches with angle
// brackets, as calls.

#pragma once

// Device functions; the C library's headers that come with them are included below.
#define __COMMON_FUNCTIONS_H__
#define __DEVICE_FUNCTIONS_H__

#if !defined(KJIT_RTC_FULL)
// Functions of half and bfloat16: declared, but not defined (kjit/engine/compile/host_compiler.py).
#define __CUDA_FP16_HPP__
#define __CUDA_BF16_HPP__
#endif

#include <assert.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <type_traits>
#include <utility>

// As CUDA has them outside of `std`, for host code as well.
#define KJIT_MIN_MAX(T)                \
  constexpr T min(T a, T b) noexcept { \
    return b < a ? b : a;              \
  }                                    \
  constexpr T max(T a, T b) noexcept { \
    return a < b ? b : a;              \
  }
KJIT_MIN_MAX(int)
KJIT_MIN_MAX(unsigned)
KJIT_MIN_MAX(long)
KJIT_MIN_MAX(unsigned long)
KJIT_MIN_MAX(long long)
KJIT_MIN_MAX(unsigned long long)
KJIT_MIN_MAX(float)
KJIT_MIN_MAX(double)
#undef KJIT_MIN_MAX

namespace kjit_rtc {

/// A launch configuration with its arguments, with which `pass(f)` calls `f`.
template <typename Pass>
struct Launch {
  Pass pass;
};

/// The same with the argument types, for a template whose arguments are deduced: `fill<<<...>>>(x, 1.0f)`.
template <typename Pass, typename... Args>
struct LaunchOf : Launch<Pass> {};

/// `grid(...)(args...)` for `<<<...>>>(args...)`.
struct Configuration {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;

  template <typename... Args>
  auto operator()(Args&&... args) const {
    auto pass = [&, config = *this](auto&& f) { f(config, static_cast<Args&&>(args)...); };
    return LaunchOf<decltype(pass), std::decay_t<Args>...>{{pass}};
  }
};

inline Configuration grid(dim3 grid, dim3 block, std::size_t smem = 0, cudaStream_t stream = nullptr) {
  return {grid, block, smem, stream};
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), const Configuration& config, Parameters... parameters) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
  // As with nvcc, errors are reported by cudaGetLastError.
  static_cast<void>(::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), config.grid, config.block, pointers,
                                       config.smem, config.stream));
}

template <typename... Parameters, typename Pass>
void operator->*(void (*kernel)(Parameters...), Launch<Pass>&& given) {
  given.pass([&](const Configuration& config, auto&&... args) {
    constexpr bool kIsWhole = sizeof...(args) == sizeof...(Parameters);
    static_assert(kIsWhole,
                  "a launch with <<<>>> has too few or too many arguments; only nvcc takes defaults of a kernel");
    if constexpr (kIsWhole) {
      launch<Parameters...>(kernel, config, static_cast<Parameters>(static_cast<decltype(args)>(args))...);
    }
  });
}

template <typename T>
struct Itself {
  using type = T;
};

/// The overload of the kernel with exactly these parameters.
template <typename Pass, typename... Args>
void operator->*(typename Itself<void (*)(Args...)>::type kernel, LaunchOf<Pass, Args...>&& given) {
  kernel->*static_cast<Launch<Pass>&&>(given);
}

}  // namespace kjit_rtc
