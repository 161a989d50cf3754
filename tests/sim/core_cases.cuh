// Exports for test_core.py: kernels as users write them, with CUDA features that kjit's headers do not use.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <kjit/tensor.h>
#include <cuda/atomic>
#include <cuda/functional>
#include <cuda/std/array>
#include <kjit/device.cuh>
#include <kjit/utils.cuh>

#include <cassert>
#include <cstdint>
#include <type_traits>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT
namespace cg = cooperative_groups;

template <typename T>
T* data(TensorView x) {
  return data_of<T>(x);
}

// GPU code selected by `__CUDA_ARCH__`.

#ifdef __CUDA_ARCH__
constexpr int kSide = 1;
#define SIDE 1
#else
constexpr int kSide = 2;
#define SIDE 2
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ int newer() {
  return 80;
}
#else
__device__ int newer() {
  return 75;
}
#endif

__host__ __device__ int architecture() {
#ifdef __CUDA_ARCH__
  return __CUDA_ARCH__;
#else
  return 0;
#endif
}

struct Initialized {
  int value = 0;
  __device__ Initialized() : value{1} {
#ifndef __CUDA_ARCH__
    value = 2;
#endif
  }
};

__global__ void sides_kernel(int* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  out[0] = 1;
#else
  assert(false);
#endif
  out[1] = SIDE;
  out[2] = newer();
  out[3] = architecture();
  out[4] = Initialized().value;
  out[5] = __LINE__;
}
void sides(TensorView out) {
#ifdef __CUDA_ARCH__
  assert(false);
#endif
  int* values = data<int>(out);
  values[6] = SIDE;
  values[7] = kSide;
  values[8] = __LINE__;
  sides_kernel<<<1, 1>>>(values);
}

// The execution model: indices, shared memory, barriers.

__global__ void indices_kernel(int* out) {
  const int block = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  const int thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const int threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  out[block * threads + thread] += 1000 * block + thread;
}
void indices(TensorView out, std::int64_t gx, std::int64_t gy, std::int64_t gz, std::int64_t x, std::int64_t y,
             std::int64_t z) {
  const dim3 grid(static_cast<unsigned>(gx), static_cast<unsigned>(gy), static_cast<unsigned>(gz));
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
  indices_kernel<<<grid, block>>>(data<int>(out));
}

/// Reverses each block of elements through shared memory, static and dynamic, `rounds` times.
template <int kThreads>
__global__ void reverse_kernel(int* values, int rounds) {
  __shared__ int first[kThreads];
  extern __shared__ int second[];
  const auto thread = threadIdx.x;
  int value = values[blockIdx.x * kThreads + thread];
  for (int round = 0; round < rounds; ++round) {
    first[thread] = value;
    __syncthreads();
    second[kThreads - 1 - thread] = first[thread];
    __syncthreads();
    value = second[thread];
  }
  values[blockIdx.x * kThreads + thread] = value;
}
template <int kThreads>
void reverse(TensorView values, std::int64_t rounds) {
  LaunchKernel(values.numel() / kThreads, kThreads, values.device(), kThreads * sizeof(int))(
      reverse_kernel<kThreads>, data<int>(values), static_cast<int>(rounds));
}

/// The results of the counting barriers for `predicates`; threads past `active` have exited by then. `out` is
/// [3][threads].
__global__ void votes_kernel(int* out, const int* predicates, int active) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (thread >= active) return;
  out[thread] = __syncthreads_count(predicates[thread]);
  out[threads + thread] = __syncthreads_and(predicates[thread]) != 0;
  out[2 * threads + thread] = __syncthreads_or(predicates[thread]) != 0;
}
void votes(TensorView out, TensorView predicates, std::int64_t active) {
  LaunchKernel(1, predicates.numel(), out.device())(votes_kernel, data<int>(out), data<const int>(predicates),
                                                    static_cast<int>(active));
}

// Warps. `out` is [14][32].
__global__ void warp_kernel(int* out, const int* in) {
  constexpr unsigned kAll = 0xffffffff;
  const int lane = static_cast<int>(threadIdx.x), x = in[lane];
  int all_match = 0;
  const int results[] = {
      __shfl_sync(kAll, x, 5),
      __shfl_sync(kAll, x, lane + 1, 8),
      __shfl_up_sync(kAll, x, 3, 16),
      __shfl_down_sync(kAll, x, 3, 16),
      __shfl_xor_sync(kAll, x, 12, 8),
      static_cast<int>(__ballot_sync(kAll, x % 2)),
      __any_sync(kAll, x == 7),
      __all_sync(kAll, x < 100),
      static_cast<int>(__match_any_sync(kAll, x % 3)),
      static_cast<int>(__match_all_sync(kAll, x, &all_match)),
      __reduce_add_sync(kAll, x),
      __reduce_min_sync(kAll, -x),
      static_cast<int>(__reduce_xor_sync(kAll, static_cast<unsigned>(x))),
      static_cast<int>(__activemask()),
  };
  for (int i = 0; i < 14; ++i) out[i * 32 + lane] = results[i];
}
void warp(TensorView out, TensorView in) {
  LaunchKernel(1, 32, out.device())(warp_kernel, data<int>(out), data<const int>(in));
}

/// Half of the warp queries the active mask.
__global__ void active_kernel(unsigned* out) {
  out[threadIdx.x] = threadIdx.x % 2 == 0 ? __activemask() : 7;
}
void active(TensorView out) {
  LaunchKernel(1, 32, out.device())(active_kernel, data<unsigned>(out));
}

// Cooperative groups. `out` is [blocks][threads].
__global__ void tiles_kernel(int* out) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  int sum = static_cast<int>(block.thread_rank());
  for (unsigned i = tile.size() / 2; i > 0; i /= 2) sum += tile.shfl_xor(sum, static_cast<int>(i));
  const int largest = cg::reduce(tile, static_cast<int>(block.thread_rank()), cg::greater<int>());
  out[block.thread_rank()] = 1000 * sum + largest;
}
/// For groups by a label, by a predicate, and of five lanes: size, rank, inclusive and exclusive sums.
__global__ void partitions_kernel(int* out) {
  const auto value = static_cast<int>(threadIdx.x);
  const auto labeled = cg::labeled_partition(cg::coalesced_threads(), value % 3);
  const auto odd = cg::binary_partition(cg::coalesced_threads(), value % 2 != 0);
  const auto five = cg::tiled_partition(cg::this_thread_block(), 5);
  int* const to = out + 6 * threadIdx.x;
  to[0] = static_cast<int>(labeled.size());
  to[1] = static_cast<int>(labeled.thread_rank());
  to[2] = cg::inclusive_scan(labeled, value);
  to[3] = cg::exclusive_scan(odd, value);
  to[4] = static_cast<int>(five.size());
  to[5] = cg::inclusive_scan(five, -value, cg::greater<int>());
}
void partitions(TensorView out) {
  LaunchKernel(1, 32, out.device())(partitions_kernel, data<int>(out));
}
void tiles(TensorView out) {
  LaunchKernel(1, out.numel(), out.device())(tiles_kernel, data<int>(out));
}

/// Every block sums what all blocks have written before.
__global__ void grid_kernel(int* out, int* parts, int rounds) {
  const auto grid = cg::this_grid();
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) parts[blockIdx.x] = static_cast<int>(blockIdx.x) + round;
    grid.sync();
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
    grid.sync();
  }
  out[grid.thread_rank()] = sum;
}
void grid(TensorView out, TensorView parts, std::int64_t rounds) {
  LaunchKernel(parts.numel(), out.numel() / parts.numel(), out.device())
      .cooperative()(grid_kernel, data<int>(out), data<int>(parts), static_cast<int>(rounds));
}

// Atomics: `counts` is a histogram, and a lock guards a sum that is not atomic.
__device__ int lock_word = 0;
__constant__ int weights[4] = {1, 2, 3, 4};

__global__ void histogram_kernel(int* counts, float* sum, long long* guarded, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  atomicAdd(&counts[i % 10], weights[i % 4]);
  atomicAdd(sum, 0.5f);
  for (bool done = false; !done;) {
    if (atomicCAS(&lock_word, 0, 1) == 0) {
      __threadfence();
      *guarded += i;
      __threadfence();
      atomicExch(&lock_word, 0);
      done = true;
    }
  }
}
void histogram(TensorView counts, TensorView sum, TensorView guarded, std::int64_t n) {
  LaunchKernel(div_ceil(n, 256), 256, counts.device())(histogram_kernel, data<int>(counts), data<float>(sum),
                                                       data<long long>(guarded), static_cast<int>(n));
}

/// A thread polls a flag that a later one sets, yielding while it polls. Each thread waits for the next one: by CUDA's
/// atomic functions, libcu++'s, volatile memory.
__global__ void flag_kernel(int* flags, int how) {
  const int thread = static_cast<int>(threadIdx.x);
  ::cuda::atomic_ref<int, ::cuda::thread_scope_block> own(flags[thread]), next(flags[thread + 1]);
  volatile int* const plain = flags;
  if (thread + 1 < static_cast<int>(blockDim.x)) {
    if (how == 0) {
      while (atomicAdd(&flags[thread + 1], 0) == 0) {
      }
    } else if (how == 1) {
      int seen;
      do {
        seen = next.load(::cuda::memory_order_acquire);
      } while (seen == 0);
    } else {
      while (plain[thread + 1] == 0);
    }
  }
  own.store(1, ::cuda::memory_order_release);
}
void flags(TensorView flags, int how) {
  LaunchKernel(1, flags.numel() - 1, flags.device())(flag_kernel, data<int>(flags), how);
}

// Intrinsic functions. `out` is [12] and [8].
__global__ void integers_kernel(std::int64_t* out, int a, int b) {
  __builtin_assume((std::is_same_v<int, unsigned>) || ++a > 0);  // not evaluated
  __assume(b != 0);
  const std::int64_t results[] = {
      __clz(a),
      __ffs(a),
      __popc(static_cast<unsigned>(a)),
      __brev(1u),
      __byte_perm(0x44332211, 0x88776655, 0x7520),
      __umulhi(0xffffffffu, 0xfffffffeu),
      __mulhi(a, b),
      __funnelshift_l(0x80000001u, 0x2u, 4),
      __dp4a(0x01020304, static_cast<int>(0xff020304), 10),
      __float2int_rn(2.5f) + 10 * __float2int_ru(2.1f) + 100 * __float2int_rz(-7.9f),
      __float2int_rz(1e20f),
      max(a, b) * std::int64_t{1000} + min(a, b),
  };
  for (int i = 0; i < 12; ++i) out[i] = results[i];
}
void integers(TensorView out, std::int64_t a, std::int64_t b) {
  LaunchKernel(1, 1, out.device())(integers_kernel, data<std::int64_t>(out), static_cast<int>(a), static_cast<int>(b));
}
__global__ void reals_kernel(double* out, double x) {
  const float f = static_cast<float>(x);
  const double results[] = {static_cast<double>(__fadd_ru(1.0f, 1e-10f)),
                            static_cast<double>(__fadd_rn(1.0f, 1e-10f)),
                            static_cast<double>(__fdiv_rd(1.0f, 3.0f)),
                            static_cast<double>(rsqrtf(f)),
                            normcdf(x),
                            erfinv(erf(x)),
                            sinpi(x),
                            static_cast<double>(__saturatef(f * 10.0f))};
  for (int i = 0; i < 8; ++i) out[i] = results[i];
}
void reals(TensorView out, double x) {
  LaunchKernel(1, 1, out.device())(reals_kernel, data<double>(out), x);
}
/// a * b + c of half types, rounded once.
template <typename T>
__global__ void fused_kernel(T* out, const T* a, const T* b, const T* c) {
  out[threadIdx.x] = __hfma(a[threadIdx.x], b[threadIdx.x], c[threadIdx.x]);
}
template <typename T>
void fused(TensorView out, TensorView a, TensorView b, TensorView c) {
  LaunchKernel(1, out.numel(), out.device())(fused_kernel<T>, data<T>(out), data<const T>(a), data<const T>(b),
                                             data<const T>(c));
}

/// A discarded branch is never compiled.
template <bool kOnGpu>
KJIT_DEVICE unsigned chosen() {
  if constexpr (kOnGpu) {
    unsigned clock;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(clock));
    return clock;
  } else {
    return cuda::std::array{3u, cuda::maximum<unsigned>{}(7, 2)}[1];  // a host-compatible part of libcu++
  }
}
/// Named operands, special registers, a function of three bits. `out` is [32][3].
__global__ void ptx_kernel(unsigned* out) {
  unsigned lane, below, bits;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %[mask], %%lanemask_lt;" : [mask] "=r"(below));
  asm("lop3.b32 %[out], %[a], %[b], %[c], 0xca;"
      : [out] "=r"(bits)
      : [c] "r"(0xaaaau), [b] "r"(0xf000u), [a] "r"(0xff00u));
  unsigned* const to = out + 3 * lane;
  to[0] = below;
  to[1] = bits + lane;
  to[2] = chosen<false>();
}
void ptx(TensorView out) {
  LaunchKernel(1, 32, out.device())(ptx_kernel, data<unsigned>(out));
}

#if KJIT_SIM  // Errors that would break the CUDA context of a GPU.

__global__ void barrier_for_some_kernel(int some) {
  if (static_cast<int>(threadIdx.x) < some) {
    __syncthreads();
  } else {
    __syncwarp(0xffffffff);
  }
}
void barrier_for_some(DLDevice device, std::int64_t some) {
  LaunchKernel(3, 64, device)(barrier_for_some_kernel, static_cast<int>(some));
}

__global__ void foreign_mask_kernel() {
  if (threadIdx.x == 9) __shfl_sync(0x000000ff, 1, 0);
}
void foreign_mask(DLDevice device) {
  LaunchKernel(1, 32, device)(foreign_mask_kernel);
}

__global__ void different_kernel() {
  if (threadIdx.x % 2 == 0) {
    __shfl_sync(0xffffffff, 1, 0);
  } else {
    __ballot_sync(0xffffffff, 1);
  }
}
void different(DLDevice device) {
  LaunchKernel(1, 32, device)(different_kernel);
}

__global__ void trap_kernel() {
  if (blockIdx.x == 2 && threadIdx.x == 5) __trap();
}
void trap(DLDevice device) {
  LaunchKernel(4, 32, device)(trap_kernel);
}
void trap_with_brackets() {
  trap_kernel<<<4, 32>>>();
}

__global__ void assert_kernel(int n) {
  assert(static_cast<int>(threadIdx.x) < n && "too many threads");
}
void check(DLDevice device, std::int64_t n) {
  LaunchKernel(1, 32, device)(assert_kernel, static_cast<int>(n));
}

__global__ void move_four_kernel(float4* out, const float* x) {
  out[threadIdx.x] = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
}
void move_four(TensorView out, TensorView x) {
  LaunchKernel(1, 8, x.device())(move_four_kernel, data_of<float4>(out), data_of<const float>(x));
}

__global__ void move_vector_kernel(void* out, const void* x) {
  device::AlignedVector<fp16_t, 8> vector;
  vector.load(x, threadIdx.x);
  vector.store(out, threadIdx.x);
}
void move_vector(TensorView out, TensorView x) {
  LaunchKernel(1, 4, x.device())(move_vector_kernel, out.data_ptr(), x.data_ptr());
}

__global__ void half_a_grid_kernel() {
  if (blockIdx.x > 0) cg::this_grid().sync();
}
void half_a_grid(DLDevice device) {
  LaunchKernel(4, 32, device).cooperative()(half_a_grid_kernel);
}

#endif

}  // namespace
