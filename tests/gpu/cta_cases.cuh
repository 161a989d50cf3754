// Exports for test_cta.py.

#include <kjit/ffi.h>
#include <kjit/tensor.h>
#include <kjit/atomic.cuh>
#include <kjit/cta.cuh>
#include <kjit/mbarrier.cuh>
#include <kjit/utils.cuh>

#include <cstdint>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT
using device::ReductionOp;
namespace cta = device::cta;

__device__ std::uint32_t thread_of() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ std::uint32_t threads_of() {
  return blockDim.x * blockDim.y * blockDim.z;
}

/// `kThreads` 0 selects the form for any block size.
template <ReductionOp kOp, int kThreads, typename T, typename S>
__device__ S reduce_once(T value, S* smem) {
  if constexpr (kThreads == 0) {
    if constexpr (kOp == ReductionOp::SUM) return cta::reduce_sum(value, smem);
    if constexpr (kOp == ReductionOp::MAX) return cta::reduce_max(value, smem);
    if constexpr (kOp == ReductionOp::MIN) return cta::reduce_min(value, smem);
  } else {
    if constexpr (kOp == ReductionOp::SUM) return cta::reduce_sum<kThreads>(value, smem);
    if constexpr (kOp == ReductionOp::MAX) return cta::reduce_max<kThreads>(value, smem);
    if constexpr (kOp == ReductionOp::MIN) return cta::reduce_min<kThreads>(value, smem);
  }
}

// `in` is [2][blocks][threads], `out` [5][blocks][threads]: for the first values the result of the call and smem[0]
// right after it; for the second the result of an immediate call with the same memory; what a thread read from the
// memory after it was overwritten at once; and whether the elements around it are untouched.
template <ReductionOp kOp, int kThreads, typename T, typename S>
__global__ void reduce_kernel(S* out, const T* in) {
  // An element for each warp, and one before and after: bytes, as not every type can be constructed here.
  __shared__ alignas(16) unsigned char memory[34 * sizeof(S)];
  const std::uint32_t thread = thread_of();
  const std::uint32_t warps = (threads_of() + 31) / 32;
  S* const guards[] = {reinterpret_cast<S*>(memory), reinterpret_cast<S*>(memory) + warps + 1};
  S* const smem = guards[0] + 1;
  if (thread == 0) *guards[0] = *guards[1] = static_cast<S>(77.0f);
  __syncthreads();

  const std::int64_t place = std::int64_t{blockIdx.x} * threads_of() + thread;
  const std::int64_t values = std::int64_t{gridDim.x} * threads_of();
  out[place] = reduce_once<kOp, kThreads>(in[place], smem);
  out[values + place] = smem[0];
  out[2 * values + place] = reduce_once<kOp, kThreads>(in[values + place], smem);
  if (thread < warps) smem[thread] = static_cast<S>(static_cast<float>(thread));
  __syncthreads();
  out[3 * values + place] = smem[thread / 32];
  const bool untouched = static_cast<float>(*guards[0]) == 77.0f && static_cast<float>(*guards[1]) == 77.0f;
  out[4 * values + place] = static_cast<S>(untouched ? 1.0f : 0.0f);
}

template <ReductionOp kOp, typename T, typename S = T, int kThreads = 0>
void reduce(TensorView out, TensorView in, std::int64_t blocks, std::int64_t x, std::int64_t y, std::int64_t z) {
  RuntimeCheck(kThreads == 0 || x * y * z == kThreads, "this case is for blocks of ", kThreads, " threads");
  LaunchKernel(blocks, {x, y, z}, in.device())(reduce_kernel<kOp, kThreads, T, S>, data_of<S>(out),
                                               data_of<const T>(in));
}

/// Kernels that read smem[0] after a synchronisation of their own; `out` is [threads].
__global__ void max_from_kernel(float* out, const float* in, float min_value) {
  __shared__ float smem[32];
  cta::reduce_max(in[threadIdx.x], smem, min_value);
  __syncthreads();
  out[threadIdx.x] = smem[0];
}
void max_from(TensorView out, TensorView in, double min_value) {
  LaunchKernel(1, in.numel(), in.device())(max_from_kernel, data_of<float>(out), data_of<const float>(in), min_value);
}

/// Pairs of half types are reduced element by element.
template <typename T>
__global__ void reduce_pairs_kernel(T* out, const T* in) {
  __shared__ T smem[32];
  const T value = in[threadIdx.x];
  out[threadIdx.x] = cta::reduce_sum(value, smem);
  out[blockDim.x + threadIdx.x] = cta::reduce_max(value, smem);
}
template <typename T>
void reduce_pairs(TensorView out, TensorView in, std::int64_t threads) {
  LaunchKernel(1, threads, in.device())(reduce_pairs_kernel<T>, data_of<T>(out), data_of<const T>(in));
}

namespace atomic = device::atomic;

/// Each thread updates a word of its own once: `old` gets the old value, `memory` has the result.
template <typename T>
__global__ void update_kernel(T* memory, const T* values, T* old, bool larger) {
  old[threadIdx.x] = larger ? atomic::max(memory + threadIdx.x, values[threadIdx.x])
                            : atomic::min(memory + threadIdx.x, values[threadIdx.x]);
}
template <typename T>
void update(TensorView memory, TensorView values, TensorView old, bool larger) {
  LaunchKernel(1, values.numel(), values.device())(update_kernel<T>, data_of<T>(memory), data_of<const T>(values),
                                                   data_of<T>(old), larger);
}

/// All threads of all blocks update one pair of words: first in shared memory, and from there in global memory.
/// `extremes` is {largest, smallest}, first through shared memory and then directly.
template <typename T>
__global__ void contend_kernel(T* extremes, const T* values, T start_of_max, T start_of_min) {
  __shared__ T largest, smallest;
  if (threadIdx.x == 0) {
    largest = start_of_max;
    smallest = start_of_min;
  }
  __syncthreads();
  const T value = values[std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x];
  atomic::max(&largest, value);
  atomic::min(&smallest, value);
  atomic::max(extremes + 2, value);
  atomic::min(extremes + 3, value);
  __syncthreads();
  if (threadIdx.x == 0) {
    atomic::max(extremes, largest);
    atomic::min(extremes + 1, smallest);
  }
}
template <typename T>
void contend(TensorView extremes, TensorView values, double start_of_max, double start_of_min) {
  LaunchKernel(values.numel() / 256, 256, values.device())(contend_kernel<T>, data_of<T>(extremes),
                                                           data_of<const T>(values), start_of_max, start_of_min);
}

/// The PTX instructions on one word; `seen` gets their results.
__global__ void words_kernel(std::uint32_t* word, std::uint32_t* seen) {
  namespace ptx = atomic::ptx;
  seen[0] = ptx::load_acquire_u32(word);
  ptx::red_release_add_u32(word, 5);
  seen[1] = ptx::atom_acquire_add_u32(word, 10);
  ptx::red_relaxed_add_u32(word, 0xfffffffe);
  seen[2] = ptx::atom_acquire_cas_b32(word, 1, 99);
  seen[3] = ptx::atom_acquire_cas_b32(word, 13, 1000);
  seen[4] = ptx::load_acquire_u32(word);
}
void words(TensorView word, TensorView seen) {
  LaunchKernel(1, 1, word.device())(words_kernel, data_of<std::uint32_t>(word), data_of<std::uint32_t>(seen));
}

// The first `producers` blocks each write 256 numbers and arrive; the others wait and sum all of them.
template <std::uint32_t kConsumerBits>
__global__ void event_kernel(atomic::Event* event, std::int64_t* data, std::int64_t* sums, int producers, bool single,
                             std::int64_t base) {
  const auto consumers = gridDim.x - static_cast<std::uint32_t>(producers);
  if (blockIdx.x < static_cast<std::uint32_t>(producers)) {
    const std::int64_t place = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    data[place] = base + place;
    __syncthreads();
    if (threadIdx.x == 0) event->arrive();
    return;
  }
  if (threadIdx.x == 0) {
    if (single) {
      event->wait(static_cast<std::uint32_t>(producers));
    } else if (consumers == 1) {
      event->wait_multi(static_cast<std::uint32_t>(producers), 1);
    } else {
      // One call may count for two: the first waiting block does.
      const std::uint32_t n = static_cast<int>(blockIdx.x) == producers ? 2 : 1;
      event->wait_multi<kConsumerBits>(static_cast<std::uint32_t>(producers), consumers + 1, n);
    }
  }
  __syncthreads();
  std::int64_t sum = 0;
  for (int block = 0; block < producers; ++block) sum += data[std::int64_t{block} * blockDim.x + threadIdx.x];
  __shared__ std::int64_t smem[8];
  sum = cta::reduce_sum<256>(sum, smem);
  if (threadIdx.x == 0) sums[static_cast<int>(blockIdx.x) - producers] = sum;
}
template <std::uint32_t kConsumerBits>
void event(TensorView word, TensorView data, TensorView sums, std::int64_t producers, bool single, std::int64_t base) {
  static_assert(sizeof(atomic::Event) == sizeof(atomic::Event::handle_type));
  LaunchKernel(producers + sums.numel(), 256, word.device())
      .cooperative()(event_kernel<kConsumerBits>, data_of<atomic::Event>(word), data_of<std::int64_t>(data),
                     data_of<std::int64_t>(sums), producers, single, base);
}

__global__ void handle_kernel(atomic::Event* event, std::uint32_t* seen) {
  event->arrive(3);
  event->arrive();
  __threadfence();
  *seen = event->unsafe_get_handle();
}
void handle(TensorView word, TensorView seen) {
  LaunchKernel(1, 1, word.device())(handle_kernel, data_of<atomic::Event>(word), data_of<std::uint32_t>(seen));
}

// Warp 0 writes `rounds` rows of 32 numbers alternately into two buffers, and the other three warps each read and sum
// all of them: `full` signals that a buffer has been written, `empty` that all have read it. The buffers are in global
// memory, and `sums` is [3][32].
__global__ void pipeline_kernel(int* buffers, int* sums, int rounds, bool relaxed) {
  namespace ptx = device::ptx;
  __shared__ std::uint64_t full[2], empty[2];
  if (threadIdx.x < 2) {
    ptx::mbar_init(&full[threadIdx.x], 32);
    ptx::mbar_init(&empty[threadIdx.x], 96);
  }
  __syncthreads();
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const int slot = round % 2;
    const auto parity = static_cast<std::uint32_t>(round / 2 % 2);
    int* const element = buffers + slot * 32 + lane;
    if (warp == 0) {
      ptx::mbar_wait_parity(&empty[slot], parity ^ 1);
      *element = round * 100 + lane;
      ptx::mbar_arrive(&full[slot]);
    } else {
      ptx::mbar_wait_parity(&full[slot], parity);
      sum += *element;
      if (relaxed) {
        __threadfence_block();  // the number has been read before the buffer is released
        ptx::mbar_arrive_relaxed(&empty[slot]);
      } else {
        ptx::mbar_arrive(&empty[slot]);
      }
    }
  }
  if (warp > 0) sums[(warp - 1) * 32 + lane] = sum;
}
void pipeline(TensorView buffers, TensorView sums, std::int64_t rounds, bool relaxed) {
  LaunchKernel(1, 128, sums.device())(pipeline_kernel, data_of<int>(buffers), data_of<int>(sums), rounds, relaxed);
}

// `out` gets whether the phase had ended before the bytes arrived, and after; and the distance between two elements.
__global__ void bytes_kernel(int* out) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  namespace ptx = device::ptx;
  __shared__ std::uint64_t bar[2];
#if KJIT_SIM
  const auto has_ended = [&] { return static_cast<int>(kjit_sim::mbarrier_test(bar, 0)); };
  const auto report = [&](std::uint32_t bytes) { kjit_sim::mbarrier_complete(bar, bytes); };
#else
  const auto has_ended = [&] {
    std::uint32_t ended;
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  mbarrier.test_wait.parity.shared.b64 p, [%1], 0;\n"
        "  selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ended)
        : "r"(ptx::to_shared(bar))
        : "memory");
    return static_cast<int>(ended);
  };
  const auto report = [&](std::uint32_t bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(ptx::to_shared(bar)), "r"(bytes)
                 : "memory");
  };
#endif
  ptx::mbar_init(bar, 1);
  ptx::mbar_arrive_expect_tx(bar, 48);
  out[0] = has_ended();
  report(32);
  out[1] = has_ended();
  report(16);
  ptx::mbar_wait_parity(bar, 0);
  out[2] = has_ended();
  out[3] = static_cast<int>(ptx::to_shared(&bar[1]) - ptx::to_shared(&bar[0]));
#endif
}
void bytes(TensorView out) {
  LaunchKernel(1, 1, out.device())(bytes_kernel, data_of<int>(out));
}

}  // namespace
