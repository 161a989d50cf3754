// The prefix of every simulator unit: what nvcc would define.
//
//   g++ -std=c++20 -DKJIT_SIM=1 -include kjit_sim/sim.h -I kjit/include/kjit_sim/cuda -I kjit/include -x c++ unit.cuh
//   __global__ void k(float* x) { __shared__ float s[32]; ... __syncthreads(); ... }  // then compiles as C++
//   x[threadIdx.x] = __shfl_xor_sync(0xffffffff, value, 1);                           // and runs on the CPU
//
// A kernel is a plain function that is called once for each thread of the grid, on a stack of its own. An OS thread
// runs one block at a time, so thread-local storage serves as shared memory. kjit/csrc/sim/ has the scheduler and the
// runtime API. What macros cannot express (`<<<...>>>`, `extern __shared__`) is rewritten by the build.

#pragma once

#include <kjit/language.h>

#include <cstddef>

#ifdef KJIT_SIM_UNIT
// In a kernel these are the simulator's: they fail the launch where the C library would end the process, or keep a lock
// that an abandoned thread holds (kjit/csrc/sim/heap.cpp). Elsewhere they are the C library's.
extern "C" {
void* malloc(std::size_t) noexcept __asm__("kjit_sim_malloc");
void free(void*) noexcept __asm__("kjit_sim_free");
[[noreturn]] void abort() noexcept __asm__("kjit_sim_abort");
__attribute__((__format__(__printf__, 1, 2))) int printf(const char*, ...) __asm__("kjit_sim_printf");
}
#endif

#if defined(__has_feature) && !defined(__SANITIZE_THREAD__)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1  // clang 20 defines it as g++ does; earlier ones do not
#endif
#endif

#ifdef __SANITIZE_THREAD__
// Accesses are instrumented, but not those of these functions: they are redirected to the checker.
extern "C" {
void* memcpy(void*, const void*, std::size_t) noexcept __asm__("__tsan_memcpy");
void* memmove(void*, const void*, std::size_t) noexcept __asm__("__tsan_memmove");
void* memset(void*, int, std::size_t) noexcept __asm__("__tsan_memset");
}
#endif

// The API as host compilers see it; nvcc includes it before every unit.
#include <cuda_runtime.h>

// CUDA's headers define these as empty without a CUDA compiler.
#undef __device__
#undef __global__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __forceinline__
#undef __launch_bounds__
#undef __noinline__
#undef __maxnreg__
// Not defined, so that the build rejects them.
#undef __cluster_dims__
#undef __block_size__
#ifdef KJIT_SIM_UNIT  // rewritten by the build
#define __device__ __device__
#define __host__ __host__
#define __global__ __global__
#define __launch_bounds__(...) __launch_bounds__(__VA_ARGS__)
#define __noinline__ __noinline__
#else
#define __device__
#define __host__
#define __global__
#define __launch_bounds__(...)
#endif
#define __shared__ static thread_local
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __maxnreg__(...)

// Sources that test for a CUDA compiler find one; CUDA's own headers must not: see kjit_sim/cuda/.
#define __CUDACC__ 1

#include <kjit_sim/atomics.h>
#include <kjit_sim/intrinsics.h>
#include <kjit_sim/launch.h>
#include <kjit_sim/math.h>
#include <kjit_sim/packed.h>
#include <kjit_sim/ptx.h>
#include <kjit_sim/threads.h>
