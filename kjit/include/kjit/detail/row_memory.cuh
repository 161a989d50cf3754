// Loads, stores and prefetches of the kernels of patterns with rows.
//
//   device::row::load<true>(vector, x_row, at);                      // read once: not allocated in L1
//   device::row::store_streaming(vector, out_row + at);
//   device::row::load_unaligned(vector, x_row, at, row_size);        // any alignment
//
// `fetch_ahead` prefetches a later row into L2 while the current row is written.
//
// Vectors have up to 16 bytes. Nearly free to compile.

#pragma once

#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit::device::row {

namespace details {

/// The type that a load or store of `kBytes` bytes moves.
template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 4, unsigned, std::conditional_t<kBytes == 2, unsigned short, unsigned char>>>>;

/// Loads without allocating a line in L1. (`__ldcs` allocates one, and may evict another for it.)
template <typename Load>
KJIT_DEVICE Load load_past_cache(const Load* from) {
  return __ldcs(from);
}
#if !KJIT_SIM  // the simulator has no caches
KJIT_DEVICE uint4 load_past_cache(const uint4* from) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
#endif
/// The same for data that `prefetch<true>` marked evict-last: from here on, L2 may evict it normally.
template <typename Load>
KJIT_DEVICE Load load_and_let_go(const Load* from) {
  return load_past_cache(from);
}
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
KJIT_DEVICE uint4 load_and_let_go(const uint4* from) {
  uint4 words;
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from), "l"(policy));
  return words;
}
#endif

}  // namespace details

/// Loads the vector at `data[index]`, which is aligned; with `kOptional`, zeros if `data` is null. With `kStreaming` it
/// is not allocated in L1: for data that is read once, beside data that is read again for every row. `fetched`, a
/// constant after inlining, is whether `fetch_ahead` marked the data evict-last in L2; this load ends that.
template <bool kStreaming = false, bool kOptional = false, typename T, std::size_t N, std::integral Index>
KJIT_DEVICE void load(AlignedVector<T, N>& vector, const T* data, Index index, bool fetched = false) {
  if (kOptional && data == nullptr) return vector.fill(T{});
  if constexpr (kStreaming) {
    using namespace details;
    const auto* const from = reinterpret_cast<const Word<sizeof(T) * N>*>(data + index);
    const auto word = fetched ? load_and_let_go(from) : load_past_cache(from);
    std::memcpy(vector.data(), &word, sizeof(word));
  } else {
    vector.load(data + index);
  }
}

/// Stores a vector to `to`, which is aligned, marked evict-first in the caches (`st.global.cs`): for data that is not
/// read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  details::Word<sizeof(T) * N> word;
  std::memcpy(&word, vector.data(), sizeof(word));
  __stcs(reinterpret_cast<decltype(word)*>(to), word);
}

/// Loads a vector of any alignment from element `at` of a row of `size` elements: in words of 4 bytes, shifted if the
/// vector begins inside a word, or element by element if the words would extend beyond the row. Loads are cached in L1,
/// since neighbouring threads read parts of the same sectors.
template <typename T, std::size_t N>
KJIT_DEVICE void load_unaligned(AlignedVector<T, N>& vector, const T* row, std::int64_t at, std::int64_t size) {
  constexpr int kWordBytes = 4, kWords = static_cast<int>(sizeof(vector)) / kWordBytes;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(row + at);
  if (address % sizeof(vector) == 0) return vector.load(row + at);
  if constexpr (sizeof(T) < kWordBytes && kWords > 0) {
    constexpr unsigned kOfWord = kWordBytes / sizeof(T);
    const unsigned ahead = static_cast<unsigned>(address % kWordBytes / sizeof(T));
    if (at >= ahead && at + static_cast<std::int64_t>(N + (kOfWord - ahead) % kOfWord) <= size) {
      const auto* const from = reinterpret_cast<const unsigned*>(address - address % kWordBytes);
      unsigned words[kWords + 1];
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = from[i];
      if (ahead != 0) {
        words[kWords] = from[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], ahead * sizeof(T) * 8);
      }
      std::memcpy(vector.data(), words, sizeof(vector));
      return;
    }
  }
#pragma unroll
  for (std::size_t j = 0; j < N; ++j) vector[j] = row[at + static_cast<std::int64_t>(j)];
}

/// Stores a vector to `to`: by `store_streaming` if it is aligned, else element by element.
template <typename T, std::size_t N>
KJIT_DEVICE void store_unaligned(const AlignedVector<T, N>& vector, T* to) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(vector) == 0) return store_streaming(vector, to);
#pragma unroll
  for (std::size_t j = 0; j < N; ++j) to[j] = vector[j];
}

namespace details {

/// The block's dynamic shared memory.
KJIT_DEVICE unsigned char* dynamic_shared() {
#if KJIT_SIM
  return static_cast<unsigned char*>(::kjit_sim::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char kjit_row_slots[];
  return &kjit_row_slots[0];
#endif
}

}  // namespace details

/// A slot for one vector in the block's dynamic shared memory; every thread has its own slots, numbered from 0.
template <typename T, std::size_t N>
class SharedSlot {
 public:
  explicit __device__ SharedSlot(int number)
      : slot_(details::dynamic_shared() +
              std::size_t{16} * (static_cast<unsigned>(number) * blockDim.x + threadIdx.x)) {}

  /// Starts an asynchronous copy of the vector at `from`, which is aligned, to this slot.
  KJIT_DEVICE void begin(const T* from) const {
#if KJIT_CUDA_ARCH >= 800 && !KJIT_SIM
    if constexpr (sizeof(T) * N == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx::to_shared(slot_)), "l"(from) : "memory");
      return;
    }
#endif
    AlignedVector<T, N> vector;
    vector.load(from);
    vector.store(slot_);
  }
  KJIT_DEVICE void take(AlignedVector<T, N>& vector) const { vector.load(slot_); }

 private:
  unsigned char* slot_;
};

/// Waits for all copies to shared memory that this thread has started.
KJIT_DEVICE void await_copies() {
#if KJIT_CUDA_ARCH >= 800 && !KJIT_SIM
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
namespace details {

/// Prefetches `bytes` bytes, a multiple of 16, from `first + at` into L2, or those before `first + end` if that is
/// less; marked evict-last if `kKept`.
template <bool kKept>
KJIT_DEVICE void prefetch(const char* first, int at, int bytes, std::int64_t end) {
  constexpr int kVec = 16;
  const std::int64_t left = end - at;
  if (left < kVec) return;
  if (left < bytes) bytes = static_cast<int>(left) & -kVec;
  const std::uintptr_t from =
      (reinterpret_cast<std::uintptr_t>(first) & ~std::uintptr_t{kVec - 1}) + static_cast<unsigned>(at);
  if constexpr (kKept) {
    std::uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from), "r"(bytes), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
  }
}

}  // namespace details
#endif

/// Prefetches the beginning of a row of `size` elements into L2: `bytes` for each warp of the `threads` threads that
/// share it, but at most the row. All of these threads call it: for a later row after their last load, so that it does
/// not delay their loads; for their own row before `PDLBegin`, where loads are not allowed and prefetches are. Each
/// thread loads `kParts` vectors of `N` elements of a row; the first `kStaying` of them are marked evict-last until
/// they are loaded with `fetched`. (If `kStaying` is `kParts`, `bytes` is at most the size of these vectors.)
template <int N, int kStaying, int kParts, typename T>
KJIT_DEVICE void fetch_ahead(const T* row, std::int64_t size, int bytes, int lane, int threads) {
#if !KJIT_SIM
  if (bytes == 0) return;
  const char* const first = reinterpret_cast<const char*>(row);
  const std::int64_t end = size * static_cast<std::int64_t>(sizeof(T));
  constexpr int kWarp = static_cast<int>(kWarpThreads);
#if KJIT_ARCH_HOPPER_OR_GREATER
  using namespace details;
  if (lane % kWarp != 0) return;
  const int warp = static_cast<int>(static_cast<unsigned>(lane) / kWarpThreads);
  int staying = 0;  // bytes marked evict-last, of each warp
  if constexpr (sizeof(T) * N == 16 && kStaying > 0) {
    constexpr int kMost = kWarp * 16 * kStaying;
    staying = kStaying == kParts || bytes < kMost ? bytes : kMost;
    prefetch<true>(first, warp * staying, staying, end);
  }
  const int rest = bytes - staying;
  if (rest > 0) prefetch<false>(first, threads / kWarp * staying + warp * rest, rest, end);
#else
  constexpr int kLine = 128;
  for (int at = lane * kLine; at < threads / kWarp * bytes && at < end; at += threads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
  }
#endif
#endif
}

}  // namespace kjit::device::row
