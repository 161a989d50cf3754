// Threads as a kernel sees them: indices, barriers, and warp-level operations.
//
//   const int i = blockIdx.x * blockDim.x + threadIdx.x;
//   __syncthreads();
//   sum += __shfl_down_sync(0xffffffff, sum, 16);

#pragma once

#include <vector_types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#pragma GCC visibility push(hidden)

// Set by the scheduler before it runs a thread.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace kjit_sim {

/// Warp-level operations. Lanes meet if mask and operation are the same.
enum class WarpOp : std::uint8_t {
  kSync,
  kBallot,
  kAny,
  kAll,
  kUni,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kMatchAny,
  kMatchAll,
  kAddUnsigned,
  kMinUnsigned,
  kMaxUnsigned,
  kMinSigned,
  kMaxSigned,
  kAnd,
  kOr,
  kXor,
};

/// What a barrier returns about the predicates of its threads.
enum class BarrierOp : std::uint8_t { kPlain, kCount, kAnd, kOr };

/// Waits until all lanes of `mask` that have not exited call the same operation. `value` is this lane's operand;
/// returns this lane's result. `argument` and `width` are those of a shuffle.
std::uint64_t warp_op(WarpOp op, std::uint32_t mask, std::uint64_t value = 0, std::uint32_t argument = 0,
                      std::uint32_t width = 32);
/// Waits at barrier `id` (0 to 15) for `count` threads, or 0 for all that have not exited.
int barrier(BarrierOp op, int id, int count, int predicate);
/// Lets other threads run.
void yield();
/// The lanes that are converged with this one: those that wait here when no other lane of the warp can run.
std::uint32_t active_mask();
/// Report to a checker that this thread's writes are released at `address`, and that this thread has acquired there.
void released(const void* address);
void acquired(const void* address);
/// Fails the launch with a report.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void trap();
/// The index of this thread in its warp.
std::uint32_t lane_id();
/// The dynamic shared memory of the block, aligned to 1,024 bytes, and its size.
void* dynamic_shared();
std::size_t dynamic_shared_size();
/// Whether the address is in the block's shared memory.
bool is_shared(const void* address);
/// The offset of an address from the start of shared memory, as in PTX, and its inverse.
std::uint32_t shared_offset(const void* address);
/// Waits for all threads of a cooperative launch.
void grid_sync();
bool is_cooperative();

/// For polling loops: yields to other threads now and then.
extern constinit thread_local unsigned looks;
inline void looked() {
  if (++looks % 64 == 0) yield();
}

/// The bits of a value of up to 8 bytes.
template <typename T>
std::uint64_t to_bits(const T& value) {
  static_assert(sizeof(T) <= 8, "warp operations move values of up to 8 bytes");
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));  // not memcpy, which is checked
  return bits;
}
template <typename T>
T from_bits(std::uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

/// The types that CUDA's shuffles and matches accept.
template <typename T>
inline constexpr bool is_number_v = std::is_arithmetic_v<T>;
template <typename T>
concept Number = is_number_v<T>;

}  // namespace kjit_sim

#pragma GCC visibility pop

inline constexpr int warpSize = 32;

/// A function that is one expression, converted to its result.
#define KJIT_SIM_FUNCTION(result, name, parameters, ...) \
  inline result name parameters {                        \
    return static_cast<result>(__VA_ARGS__);             \
  }

#define KJIT_SIM_BARRIER(result, name, parameters, operation, id, count, predicate) \
  KJIT_SIM_FUNCTION(                                                                \
      result, name, parameters,                                                     \
      kjit_sim::barrier(kjit_sim::BarrierOp::operation, static_cast<int>(id), static_cast<int>(count), predicate))
KJIT_SIM_BARRIER(void, __syncthreads, (), kPlain, 0, 0, 0)
KJIT_SIM_BARRIER(int, __syncthreads_count, (int predicate), kCount, 0, 0, predicate)
KJIT_SIM_BARRIER(int, __syncthreads_and, (int predicate), kAnd, 0, 0, predicate)
KJIT_SIM_BARRIER(int, __syncthreads_or, (int predicate), kOr, 0, 0, predicate)
KJIT_SIM_BARRIER(void, __barrier_sync, (unsigned id), kPlain, id, 0, 0)
KJIT_SIM_BARRIER(void, __barrier_sync_count, (unsigned id, unsigned count), kPlain, id, count, 0)
#undef KJIT_SIM_BARRIER

inline void __syncwarp(unsigned mask = 0xffffffff) {
  kjit_sim::warp_op(kjit_sim::WarpOp::kSync, mask);
}

#define KJIT_SIM_SHUFFLE(name, argument, operation)                                                              \
  template <kjit_sim::Number T>                                                                                  \
  T name(unsigned mask, T value, argument lane, int width = 32) {                                                \
    return kjit_sim::from_bits<T>(kjit_sim::warp_op(kjit_sim::WarpOp::operation, mask, kjit_sim::to_bits(value), \
                                                    static_cast<unsigned>(lane), static_cast<unsigned>(width))); \
  }
KJIT_SIM_SHUFFLE(__shfl_sync, int, kShuffle)
KJIT_SIM_SHUFFLE(__shfl_up_sync, unsigned, kShuffleUp)
KJIT_SIM_SHUFFLE(__shfl_down_sync, unsigned, kShuffleDown)
KJIT_SIM_SHUFFLE(__shfl_xor_sync, int, kShuffleXor)
#undef KJIT_SIM_SHUFFLE

#define KJIT_SIM_VOTE(result, name, operation)                    \
  KJIT_SIM_FUNCTION(result, name, (unsigned mask, int predicate), \
                    kjit_sim::warp_op(kjit_sim::WarpOp::operation, mask, predicate != 0))
KJIT_SIM_VOTE(unsigned, __ballot_sync, kBallot)
KJIT_SIM_VOTE(int, __any_sync, kAny)
KJIT_SIM_VOTE(int, __all_sync, kAll)
KJIT_SIM_VOTE(int, __uni_sync, kUni)
#undef KJIT_SIM_VOTE

KJIT_SIM_FUNCTION(unsigned, __activemask, (), kjit_sim::active_mask())
template <kjit_sim::Number T>
unsigned __match_any_sync(unsigned mask, T value) {
  return static_cast<unsigned>(kjit_sim::warp_op(kjit_sim::WarpOp::kMatchAny, mask, kjit_sim::to_bits(value)));
}
template <kjit_sim::Number T>
unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
  const auto all =
      static_cast<unsigned>(kjit_sim::warp_op(kjit_sim::WarpOp::kMatchAll, mask, kjit_sim::to_bits(value)));
  *predicate = all != 0;
  return all;
}

#define KJIT_SIM_REDUCTION(type, name, operation)            \
  KJIT_SIM_FUNCTION(type, name, (unsigned mask, type value), \
                    kjit_sim::warp_op(kjit_sim::WarpOp::operation, mask, static_cast<unsigned>(value)))
KJIT_SIM_REDUCTION(unsigned, __reduce_add_sync, kAddUnsigned)
KJIT_SIM_REDUCTION(int, __reduce_add_sync, kAddUnsigned)
KJIT_SIM_REDUCTION(unsigned, __reduce_min_sync, kMinUnsigned)
KJIT_SIM_REDUCTION(int, __reduce_min_sync, kMinSigned)
KJIT_SIM_REDUCTION(unsigned, __reduce_max_sync, kMaxUnsigned)
KJIT_SIM_REDUCTION(int, __reduce_max_sync, kMaxSigned)
KJIT_SIM_REDUCTION(unsigned, __reduce_and_sync, kAnd)
KJIT_SIM_REDUCTION(unsigned, __reduce_or_sync, kOr)
KJIT_SIM_REDUCTION(unsigned, __reduce_xor_sync, kXor)
#undef KJIT_SIM_REDUCTION

inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  kjit_sim::looked();
}
KJIT_SIM_FUNCTION(void, __threadfence_block, (), __threadfence())
KJIT_SIM_FUNCTION(void, __threadfence_system, (), __threadfence())
KJIT_SIM_FUNCTION(void, __nanosleep, (unsigned), kjit_sim::yield())
// Launches are synchronous: nothing is left to wait for.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
[[noreturn]] __attribute__((always_inline)) inline void __trap() {
  kjit_sim::trap();
}
KJIT_SIM_FUNCTION(void, __brkpt, (), __builtin_trap())
KJIT_SIM_FUNCTION(unsigned, __isShared, (const void* address), kjit_sim::is_shared(address))
KJIT_SIM_FUNCTION(unsigned, __isGlobal, (const void* address), !kjit_sim::is_shared(address))
KJIT_SIM_FUNCTION(unsigned, __isConstant, (const void*), 0)
KJIT_SIM_FUNCTION(unsigned, __isLocal, (const void*), 0)
KJIT_SIM_FUNCTION(std::size_t, __cvta_generic_to_shared, (const void* address), kjit_sim::shared_offset(address))
inline std::size_t __cvta_generic_to_global(const void* address) {
  return reinterpret_cast<std::size_t>(address);
}
inline void* __cvta_global_to_generic(std::size_t address) {
  return reinterpret_cast<void*>(address);
}
