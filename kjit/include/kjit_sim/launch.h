// Kernel launches, compile-time side. The runtime API takes a kernel as an address; its parameter types are recorded
// here, where the type of the kernel is still known.
//
//   kernel<T>->*::kjit_sim::grid(blocks, threads, smem, stream)(x, n);   // replaces kernel<T><<<...>>>(x, n)
//   cudaLaunchKernelExC(&config, ::kjit_sim::known(kernel), pointers);

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Calls the kernel at an address with parameters read through pointers.
using Invoker = void (*)(const void* kernel, void** parameters);

/// Registers `kernel` with the runtime.
void know(const void* kernel, Invoker invoker);

/// Called by each thread at the start of a kernel: fails the launch if a block has more threads than `threads`.
void check_launch_bounds(std::uint64_t threads);
template <typename T, typename... Rest>
__attribute__((no_sanitize("thread"))) inline void launch_bounds(T threads, Rest...) {
  check_launch_bounds(static_cast<std::uint64_t>(threads));
}

/// A launch with `<<<...>>>`: throws if the kernel fails. An invalid configuration sets the last error, and in check
/// mode throws too.
void launch_or_throw(const void* kernel, dim3 grid, dim3 block, void** parameters, std::size_t smem,
                     cudaStream_t stream);

template <typename... P>
struct Signature {
  // The parameters belong to the launching thread: not an access of the kernel.
  __attribute__((no_sanitize("thread"))) static void invoke(const void* kernel, void** parameters) {
    call(reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel)), parameters, std::index_sequence_for<P...>{});
  }
  template <std::size_t... I>
  __attribute__((no_sanitize("thread"))) static void call(void (*kernel)(P...), [[maybe_unused]] void** parameters,
                                                          std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<P>*>(parameters[I])...);
  }
};

/// The address of a kernel, registered with the runtime.
template <typename... P>
const void* known(void (*kernel)(P...)) {
  const void* address = reinterpret_cast<const void*>(kernel);
  know(address, &Signature<P...>::invoke);
  return address;
}

/// A launch of a kernel template with deduced arguments.
template <typename F>
struct Deduced {
  F call;
};
template <typename F>
Deduced<F> deduced(F call) {
  return {call};
}
template <typename F, typename... A>
void call_deduced(const F* call, A... arguments) {
  (*call)(arguments...);
}

/// A launch configuration, and, called with arguments, the launch itself.
struct grid {
  dim3 blocks, threads;
  std::size_t smem;
  cudaStream_t stream;

  grid(dim3 blocks, dim3 threads, std::size_t smem = 0, cudaStream_t stream = nullptr)
      : blocks(blocks), threads(threads), smem(smem), stream(stream) {}

  template <typename Bound>
  struct Call {
    const grid& config;
    Bound bound;
  };
  template <typename... Args>
  auto operator()(Args&&... args) const {
    auto bound = [&](const grid& config, auto kernel) { config.run(kernel, std::forward<Args>(args)...); };
    return Call<decltype(bound)>{*this, bound};
  }

  template <typename... P, typename... Args>
  void run(void (*kernel)(P...), Args&&... args) const {
    static_assert(sizeof...(P) == sizeof...(Args), "the kernel takes a different number of arguments");
    run_converted(kernel, static_cast<P>(std::forward<Args>(args))...);
  }
  template <typename F, typename... Args>
  void run(Deduced<F> kernel, Args&&... args) const {
    run(&call_deduced<F, std::decay_t<Args>...>, &kernel.call, std::forward<Args>(args)...);
  }
  template <typename... P>
  void run_converted(void (*kernel)(P...), P... parameters) const {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
    launch_or_throw(known(kernel), blocks, threads, pointers, smem, stream);
  }
};

template <typename... P, typename Call>
  requires requires(const Call& call) { call.config.blocks; }
void operator->*(void (*kernel)(P...), const Call& call) {
  call.bound(call.config, kernel);
}
template <typename F, typename Call>
  requires requires(const Call& call) { call.config.blocks; }
void operator->*(Deduced<F> kernel, const Call& call) {
  call.bound(call.config, kernel);
}

}  // namespace kjit_sim

// The overloads of CUDA's C++ API that take kernels by type.
template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** parameters, std::size_t smem = 0,
                             cudaStream_t stream = nullptr) {
  return cudaLaunchKernel(kjit_sim::known(kernel), grid, block, parameters, smem, stream);
}
template <typename... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** parameters,
                                        std::size_t smem = 0, cudaStream_t stream = nullptr) {
  return cudaLaunchCooperativeKernel(kjit_sim::known(kernel), grid, block, parameters, smem, stream);
}
template <typename... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(P...), void** parameters) {
  return cudaLaunchKernelExC(config, kjit_sim::known(kernel), parameters);
}
template <typename... P, typename... Args>
  requires(sizeof...(P) == sizeof...(Args))
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), Args&&... args) {
  return [&](P... parameters) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
    return cudaLaunchKernelExC(config, kjit_sim::known(kernel), pointers);
  }(static_cast<P>(std::forward<Args>(args))...);
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaFuncSetCacheConfig(T* kernel, cudaFuncCache config) {
  return cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), config);
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* kernel, int block_size, std::size_t smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), block_size, smem);
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, T* kernel, const cudaLaunchConfig_t* config) {
  return cudaOccupancyMaxPotentialClusterSize(size, reinterpret_cast<const void*>(kernel), config);
}
template <typename T>
  requires std::is_function_v<T>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, T* kernel, const cudaLaunchConfig_t* config) {
  return cudaOccupancyMaxActiveClusters(clusters, reinterpret_cast<const void*>(kernel), config);
}
// A symbol is a variable of the module.
template <typename T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* source, std::size_t size, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(&symbol) + offset, source, size, kind);
}
template <typename T>
cudaError_t cudaMemcpyFromSymbol(void* target, const T& symbol, std::size_t size, std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(target, reinterpret_cast<const char*>(&symbol) + offset, size, kind);
}
template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* source, std::size_t size, std::size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync(reinterpret_cast<char*>(&symbol) + offset, source, size, kind, stream);
}
template <typename T>
cudaError_t cudaMemcpyFromSymbolAsync(void* target, const T& symbol, std::size_t size, std::size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync(target, reinterpret_cast<const char*>(&symbol) + offset, size, kind, stream);
}
template <typename T>
cudaError_t cudaGetSymbolSize(std::size_t* size, const T&) {
  *size = sizeof(T);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol) {
  *pointer = const_cast<void*>(static_cast<const void*>(&symbol));
  return cudaSuccess;
}

#pragma GCC visibility pop
