// Small kernels with one mistake each, and next to each a correct version. The tests look for lines with "MISTAKE:
// <name>".

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>
#include <kjit/utils.cuh>

#include <cstdint>
#include <cstring>

namespace {

using namespace kjit;

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), TensorView out, int blocks, int threads, std::size_t smem,
            std::type_identity_t<Parameters>... parameters) {
  host::SymbolicDevice gpu;
  host::SymbolicSize size{"size"};
  host::TensorMatcher({size}).with_device<kDLCUDA>(gpu).with_dtype<fp32_t>().verify(out, "out");
  host::LaunchKernel(blocks, threads, gpu.unwrap(), smem)(kernel, parameters...);
}

inline int size_of(TensorView out) {
  return static_cast<int>(out.size(0));
}
inline float* data_of(TensorView out) {
  return static_cast<float*>(out.data_ptr());
}

/// A case, by whether its kernel is right.
#define PAIR(name, kernel, ...)                               \
  template <bool kIsRight>                                    \
  void name(TensorView out) {                                 \
    launch(kernel<kIsRight>, out __VA_OPT__(, ) __VA_ARGS__); \
  }
#define CASE(name, kernel, ...)                     \
  void name(TensorView out) {                       \
    launch(kernel, out __VA_OPT__(, ) __VA_ARGS__); \
  }

// One element too many.
template <bool kIsRight>
__global__ void fill(float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (kIsRight ? i < n : i <= n) {
    out[i] = 1.0f;  // MISTAKE: past_the_end
  }
}
PAIR(past_the_end, fill, size_of(out) / 32 + 1, 32, 0, data_of(out), size_of(out))

// Reads the previous element; the first thread has none.
template <bool kIsRight>
__global__ void shift(float* out, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= n) return;
  const int from = kIsRight && i == 0 ? 0 : i - 1;
  const float before = out[from];  // MISTAKE: negative_index
  __syncwarp();
  out[i] = before;
}
PAIR(negative_index, shift, 1, 32, 0, data_of(out), size_of(out))

// Vectors of four from the second element on.
template <bool kIsRight>
__global__ void fill_fours(float* out) {
  float* const from = out + (kIsRight ? 4 : 1);
  device::AlignedVector<float, 4> four;
  four.fill(1.0f);
  four.store(from, threadIdx.x);  // MISTAKE: misaligned
}
PAIR(misaligned, fill_fours, 1, size_of(out) / 4 - 1, 0, data_of(out))

template <bool kIsRight>
__global__ void store_through(float* out) {
  if (threadIdx.x == 3) out[threadIdx.x] = 1.0f;  // MISTAKE: null_pointer
}
PAIR(null_pointer, store_through, 1, 32, 0, kIsRight ? data_of(out) : nullptr)

template <bool kIsRight>
__global__ void store_far_away(float* out) {
  out[threadIdx.x] = 1.0f;  // MISTAKE: wild_pointer
}
PAIR(wild_pointer, store_far_away, 1, 32, 0, kIsRight ? data_of(out) : reinterpret_cast<float*>(0x123456789000))

template <bool kIsRight>
__global__ void stage_dynamic(float* out) {
  extern __shared__ float staged[];
  staged[threadIdx.x] = 1.0f;  // MISTAKE: past_dynamic_shared
  __syncthreads();
  out[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}
template <bool kIsRight>
void past_dynamic_shared(TensorView out) {
  const auto bytes = static_cast<std::size_t>(size_of(out)) * sizeof(float);
  launch(stage_dynamic<kIsRight>, out, 1, size_of(out), kIsRight ? bytes : bytes - 8, data_of(out));
}

// Two aligned variables, with padding between them.
template <bool kIsRight>
__global__ void stage_static(float* out) {
  __shared__ alignas(128) float row[40];
  __shared__ alignas(128) float other[40];
  if (kIsRight && threadIdx.x >= 40) return;
  for (float* each : {row, other}) {
    each[threadIdx.x] = 1.0f;  // MISTAKE: past_static_shared
  }
  __syncwarp();
  out[threadIdx.x] = row[threadIdx.x ^ 1] + other[threadIdx.x ^ 1];
}
PAIR(past_static_shared, stage_static, 1, 64, 0, data_of(out))

template <bool kIsRight>
__global__ void copy_rows(float* out, int row) {
  __shared__ float staged[32];
  staged[threadIdx.x] = 1.0f;
  __syncwarp();
  if (threadIdx.x < 3) memcpy(out + threadIdx.x * row, staged, 10 * sizeof(float));  // MISTAKE: past_the_end_at_once
}
PAIR(past_the_end_at_once, copy_rows, 1, 32, 0, data_of(out), kIsRight ? 10 : 11)

// Half of the tile is written, and all of it is read.
template <bool kIsRight>
__global__ void half_written(float* out) {
  __shared__ float tile[64];
  if (kIsRight || threadIdx.x < 32) tile[threadIdx.x] = 2.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // MISTAKE: unwritten
}
PAIR(unwritten, half_written, 2, 64, 0, data_of(out))

template <bool kIsRight>
__global__ void reverse(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // EARLIER: race
  if constexpr (kIsRight) __syncthreads();
  if (threadIdx.x >= 32) out[threadIdx.x] = tile[63 - threadIdx.x];  // MISTAKE: race
}
PAIR(race, reverse, 1, 64, 0, data_of(out))

// The tile is reused without a barrier after the last read.
template <bool kIsRight>
__global__ void use_again(float* out) {
  __shared__ float tile[64];
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    tile[threadIdx.x] = static_cast<float>(round);  // MISTAKE: race_with_read
    __syncthreads();
    sum += tile[(threadIdx.x + 1) % 64];  // EARLIER: race_with_read
    if constexpr (kIsRight) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
PAIR(race_with_read, use_again, 1, 64, 0, data_of(out))

// All threads write the flag; it needs atomics.
template <bool kIsRight>
__global__ void raise(float* out) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if constexpr (kIsRight) {
    atomicExch(&flag, 1);
  } else {
    flag = 1;  // MISTAKE: race_of_writes
  }
  __syncthreads();
  out[threadIdx.x] = static_cast<float>(flag);
}
PAIR(race_of_writes, raise, 1, 64, 0, data_of(out))

// Lanes exchange through shared memory.
template <bool kIsRight>
__global__ void exchange(float* out) {
  __shared__ float lanes[64];
  lanes[threadIdx.x] = static_cast<float>(threadIdx.x);  // EARLIER: race_in_warp
  if constexpr (kIsRight) __syncwarp();
  out[threadIdx.x] = lanes[threadIdx.x ^ 1];  // MISTAKE: race_in_warp
}
PAIR(race_in_warp, exchange, 1, 64, 0, data_of(out))

// A warp-level barrier orders nothing between warps.
template <bool kIsRight>
__global__ void exchange_between_warps(float* out) {
  __shared__ float lanes[64];
  lanes[threadIdx.x] = static_cast<float>(threadIdx.x);  // EARLIER: race_between_warps
  if constexpr (kIsRight) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = lanes[threadIdx.x ^ 32];  // MISTAKE: race_between_warps
}
PAIR(race_between_warps, exchange_between_warps, 1, 64, 0, data_of(out))

__global__ void half_waits(float* out) {
  __shared__ float first;
  if (threadIdx.x >= 16) return;
  if (threadIdx.x == 0) first = out[0];
  __syncthreads();
  out[threadIdx.x] = first + 1.0f;
}
CASE(correct_early_end, half_waits, 1, 64, 0, data_of(out))

// Half of the warp has exited.
template <bool kIsRight>
__global__ void sum_of_half(float* out) {
  if (!kIsRight && threadIdx.x >= 16) return;
  const float other = __shfl_down_sync(0xffffffff, 1.0f, 8);  // MISTAKE: exited_lane
  out[threadIdx.x] = other;
}
PAIR(exited_lane, sum_of_half, 1, 32, 0, data_of(out))

// Neighbours exchange through global memory.
template <bool kIsRight>
__global__ void exchange_globally(float* out) {
  out[threadIdx.x] = static_cast<float>(threadIdx.x);  // EARLIER: global_race
  if constexpr (kIsRight) __syncthreads();
  const float other = out[threadIdx.x ^ 32];  // MISTAKE: global_race
  __syncthreads();
  out[threadIdx.x] = other;
}
PAIR(global_race, exchange_globally, 1, 64, 0, data_of(out))

// The tile of the next block begins one element too early.
template <bool kIsRight>
__global__ void overlap(float* out) {
  const unsigned first = blockIdx.x * (kIsRight ? 32 : 31);
  out[first + threadIdx.x] = static_cast<float>(threadIdx.x) + 1.0f;  // MISTAKE: race_of_blocks
}
PAIR(race_of_blocks, overlap, 3, 32, 0, data_of(out))

// One block reads what another one writes.
template <bool kIsRight>
__global__ void shift_in_place(float* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float next = out[kIsRight ? i : i + 1];
  __syncthreads();
  out[i] = next + 1.0f;
}
PAIR(shift_of_blocks, shift_in_place, 3, 32, 0, data_of(out))

// A sum to which most threads add atomically.
template <bool kIsRight>
__global__ void add_up(float* out) {
  if (kIsRight || blockIdx.x < 3) {
    atomicAdd(out, 1.0f);  // EARLIER: mixed_accesses
  } else if (threadIdx.x == 5) {
    *out = 7.5f;  // MISTAKE: mixed_accesses
  }
}
PAIR(mixed_accesses, add_up, 4, 32, 0, data_of(out))

// Correct kernels that a checker could report.

/// The last block to finish sums what all blocks have written.
__device__ unsigned arrived;
__global__ void sum_in_last_block(float* out) {
  __shared__ bool is_last;
  out[1 + blockIdx.x * 32 + threadIdx.x] = 1.0f;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last || threadIdx.x > 0) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x * 32; ++i) sum += out[1 + i];
  out[0] = sum;
  arrived = 0;
}
CASE(correct_last_block, sum_in_last_block, 3, 32, 0, data_of(out))

/// All threads that find something write the same value, and update a maximum as in the programming guide.
__global__ void find_something(float* out) {
  const auto i = static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x);
  if (threadIdx.x % 3 == 0) out[0] = 1.0f;
  auto* const largest = reinterpret_cast<unsigned*>(out + 1);
  unsigned old = *largest, assumed;
  do {
    assumed = old;
    if (__uint_as_float(assumed) >= i) break;
    old = atomicCAS(largest, assumed, __float_as_uint(i));
  } while (assumed != old);
  atomicAdd(out + 2, 1.0f);
}
CASE(correct_same_value, find_something, 4, 32, 0, data_of(out))

/// Warps pass work on through a non-atomic flag in global memory.
__global__ void hand_on(float* out) {
  volatile float* const flag = out;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) out[1 + lane] += 1.0f;
  __threadfence();
  __syncwarp();
  if (warp == 0 && lane == 0) *flag = 1.0f;
  while (warp == 1 && *flag == 0.0f) __nanosleep(100);
  __threadfence();
  if (warp == 1) out[1 + lane] += 2.0f;
}
CASE(correct_flag, hand_on, 1, 64, 0, data_of(out))

/// Threads without work of their own read the last element, which its owner writes.
__global__ void read_in_vain(float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const float value = out[i < n ? i : n - 1];
  const float sum = value + __shfl_xor_sync(0xffffffff, value, 1);
  if (i < n) out[i] = sum + 1.0f;
}
CASE(correct_in_vain, read_in_vain, 4, 32, 0, data_of(out), 57)

/// Bytes of a word have different owners, and so have rows that all blocks read.
__global__ void write_bytes(float* out) {
  auto* const bytes = reinterpret_cast<unsigned char*>(out);
  bytes[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<unsigned char>(threadIdx.x + 1);
  if (threadIdx.x > 0) return;
  out[32 + blockIdx.x] += out[100] + out[101] + 1.0f;
}
CASE(correct_bytes, write_bytes, 5, 21, 0, data_of(out))

__constant__ float table[4] = {1, 2, 3, 4};

__global__ void locals_and_constants(float* out, int n) {
  float local[8];
  for (int i = 0; i < 8; ++i) local[i] = table[(i + n) % 4];
  out[threadIdx.x] = local[threadIdx.x % 8];
}
CASE(correct_locals, locals_and_constants, 2, 32, 0, data_of(out), size_of(out))

__global__ void histogram(float* out) {
  __shared__ unsigned counts[8];
  if (threadIdx.x < 8) counts[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&counts[threadIdx.x % 8], 1u);
  __syncthreads();
  out[threadIdx.x] = static_cast<float>(counts[threadIdx.x % 8]);
}
CASE(correct_atomics, histogram, 2, 64, 0, data_of(out))

/// A producer warp and a consumer warp.
__global__ void make_and_take(float* out) {
  __shared__ float tile[32];
  __shared__ float total;
  __shared__ int lock;
  if (threadIdx.x == 0) lock = 0, total = 0;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    tile[lane] = static_cast<float>(lane);
    __syncwarp();
    __barrier_sync_count(1, 64);
  } else {
    __barrier_sync_count(1, 64);
    out[lane] = tile[31 - lane];
  }
  while (atomicCAS(&lock, 0, 1) != 0) {
  }
  total += 1.0f;
  atomicExch(&lock, 0);
}
CASE(correct_producer, make_and_take, 2, 64, 0, data_of(out))

__global__ void add_to_memory(float* memory, float* out) {
  memory[threadIdx.x] = 5.0f;
  out[threadIdx.x] = memory[threadIdx.x];
}
void correct_allocations(TensorView out) {
  const host::ffi::Tensor made = host::ffi::empty_like(out);
  launch(add_to_memory, out, 1, size_of(out), 0, static_cast<float*>(made.data_ptr()), data_of(out));
  float* memory = nullptr;
  cudaMalloc(&memory, static_cast<std::size_t>(size_of(out)) * sizeof(float));
  launch(add_to_memory, out, 1, size_of(out), 0, memory, data_of(out));
  cudaFree(memory);
}

/// Memory that is not noted: its address comes from a tensor.
__global__ void follow(const std::int64_t* addresses, float* out) {
  out[threadIdx.x] = reinterpret_cast<const float*>(addresses[0])[threadIdx.x];
}
void correct_addresses(TensorView addresses, TensorView out) {
  launch(follow, out, 1, size_of(out), 0, static_cast<const std::int64_t*>(addresses.data_ptr()), data_of(out));
}

/// A barrier in each of ten rounds, for timing.
__global__ void ten_barriers(float* out, int n) {
  __shared__ float tile[256];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = static_cast<float>(i % 7);
  for (int round = 0; round < 5; ++round) {
    tile[threadIdx.x] = value;
    __syncthreads();
    value += tile[(threadIdx.x + 1) % 256];
    __syncthreads();
  }
  if (i < static_cast<unsigned>(n)) out[i] = value;
}
CASE(many_barriers, ten_barriers, size_of(out) / 256, 256, 0, data_of(out), size_of(out))

}  // namespace
