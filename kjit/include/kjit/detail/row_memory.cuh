// How the kernels of patterns with rows read them and write them.
//
//   device::row::load<true>(vector, x_row, at);                      // read once: takes no place in the SM's cache
//   device::row::store_streaming(vector, out_row + at);
//   device::row::UnalignedLoad<T, N> load;                           // of a vector that may begin anywhere
//   load.begin(from);                                                // meanwhile others begin
//   load.finish(vector, from);
//
// While a row is written, `fetch_ahead` lets the memory already be read that the next block will need.
//
// Nearly free to compile.

#pragma once

#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

namespace device::row {

namespace details {

/// Whether the GPU's L2 cache can be told what to keep until it is read.
inline constexpr bool kCanStay = KJIT_ARCH_HOPPER_OR_GREATER;

/// Whether shared memory is filled while other things are done: from sm_80 on.
inline constexpr bool kHasAsyncCopies = KJIT_CUDA_ARCH >= 800;

/// What a load or store of so many bytes moves.
template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 1, unsigned char, std::conditional_t<kBytes == 2, unsigned short, unsigned>>>>;

/// Whether what `fetch_ahead` asks for of vectors of `N` elements can stay in the L2 cache until it is read.
template <typename T, std::size_t N>
inline constexpr bool kStays = kCanStay && sizeof(T) * N % 16 == 0;

/// Reads what the SM's cache has no use for. `__ldcs` would still let it take the place of something else there.
template <typename Load>
KJIT_DEVICE Load load_past_cache(const Load* from) {
  return __ldcs(from);
}
#if KJIT_SIM  // which has no caches
template <typename Load>
KJIT_DEVICE Load load_and_let_go(const Load* from) {
  return *from;
}
#else
KJIT_DEVICE uint4 load_past_cache(const uint4* from) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
/// The same of what stays in the L2 cache until it is read.
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

/// Reads the vector from `data[index]` on, aligned. Where `kStreaming`, it takes no place in the SM's cache: for what
/// is read once, beside something that is read again for every row. `fetched`: it was let stay in the L2 cache by
/// `fetch_ahead<N, kStaying>`, and may leave that now (with `kStreaming` only). To be known when the kernel is
/// compiled; a choice between two reads takes more time than it saves.
template <bool kStreaming = false, typename T, std::size_t N, std::integral Index>
KJIT_DEVICE void load(AlignedVector<T, N>& vector, const T* data, Index index, bool fetched = false) {
  if constexpr (kStreaming) {
    using namespace details;
    using Load = Word<sizeof(T) * N>;
    const Load* const from = reinterpret_cast<const Load*>(data + index);
    Load words[sizeof(T) * N / sizeof(Load)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) * N / sizeof(Load); ++i) {
      if constexpr (kStays<T, N>) {
        words[i] = fetched ? load_and_let_go(from + i) : load_past_cache(from + i);
      } else {
        words[i] = load_past_cache(from + i);
      }
    }
    std::memcpy(vector.data(), words, sizeof(words));
  } else {
    vector.load(data + index);
  }
}

/// The same, and zeros where `data` is null.
template <bool kStreaming = false, typename T, std::size_t N, std::integral Index>
KJIT_DEVICE void load_or_zero(AlignedVector<T, N>& vector, const T* data, Index index, bool fetched = false) {
  if (data == nullptr) {
    vector.fill(T{});
  } else {
    load<kStreaming>(vector, data, index, fetched);
  }
}

/// Reads those elements of the vector from `data[index]` on that are `data[0]` to `data[size - 1]`, one by one: for
/// where nothing else may be read. The others are zeros, and all where `data` is null.
template <typename T, std::size_t N, std::integral Index>
KJIT_DEVICE void load_part(AlignedVector<T, N>& vector, const T* data, Index index, Index size) {
  vector.fill(T{});
  if (data == nullptr) return;
  constexpr int kCount = static_cast<int>(N);
  const int begin = index < 0 ? static_cast<int>(-index) : 0;
  const int end = index + kCount <= size ? kCount : static_cast<int>(size - index);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i >= begin && i < end) vector[i] = data[index + i];
  }
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

/// This thread's place number `slot` in it; no other thread uses it.
KJIT_DEVICE unsigned char* slot_of(int slot) {
  return dynamic_shared() + std::size_t{16} * (static_cast<unsigned>(slot) * blockDim.x + threadIdx.x);
}

#if !KJIT_SIM
/// Begins to copy `kBytes` (4, 8 or 16) to shared memory. With `kCached` by way of the SM's cache, where a neighbour
/// needs other parts of the same line; without, 16 bytes only.
template <int kBytes, bool kCached>
KJIT_DEVICE void copy_async(void* to, const void* from) {
  static_assert(kCached || kBytes == 16);
  const std::uint32_t shared = ptx::to_shared(to);
  if constexpr (kCached) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kBytes) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  }
}
#endif

}  // namespace details

/// Whether a vector of `N` elements that is not aligned can be cut out of the two aligned ones in which it lies: where
/// it has more than one, and 4 to 16 bytes.
template <typename T, int N>
inline constexpr bool kCanCut = N > 1 && sizeof(T) * N >= 4 && sizeof(T) * N <= 16;

/// How far such a vector begins behind the first of those two: so many words of 4 bytes, and bits.
struct Offset {
  bool two_words = false, a_word = false;
  unsigned bits = 0;

  Offset() = default;
  explicit __device__ Offset(unsigned bytes)
      : two_words(bytes % 16 >= 8), a_word(bytes % 8 >= 4), bits(bytes % 4 * 8) {}

  /// Cuts the vector out of them.
  template <typename T, std::size_t N>
  __device__ void cut(AlignedVector<T, N>& vector, const AlignedVector<T, N> (&pieces)[2]) const {
    // No branch, and no index that is known at run time only: both would cost more than all the words here.
    constexpr int kWords = static_cast<int>(sizeof(vector)) / 4;
    unsigned words[2 * kWords];
    std::memcpy(words, &pieces, sizeof(words));
    if constexpr (kWords == 4) {
#pragma unroll
      for (int i = 0; i < kWords + 2; ++i) words[i] = two_words ? words[i + 2] : words[i];
    }
    if constexpr (kWords >= 2) {
#pragma unroll
      for (int i = 0; i < kWords + 1; ++i) words[i] = a_word ? words[i + 1] : words[i];
    }
    if constexpr (sizeof(T) < 4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], bits);
    }
    std::memcpy(vector.data(), words, sizeof(vector));
  }
};

/// The load of a vector that may begin anywhere: it is cut out of the two aligned ones in which it lies, of which each
/// has an element of it. Of types that are not cut, each element is read.
template <typename T, int N>
struct UnalignedLoad {
  static constexpr bool kCuts = kCanCut<T, N>;

  AlignedVector<T, N> pieces[kCuts ? 2 : 1];

  __device__ void begin(const T* from) {
    if constexpr (kCuts) {
      const unsigned bytes = bytes_ahead(from);
      const AlignedVector<T, N>* const first = reinterpret_cast<const AlignedVector<T, N>*>(from - bytes / sizeof(T));
      const int second = bytes == 0 ? 0 : 1;
#if KJIT_SIM  // whose checks would say that one begins ahead of the tensor, or ends behind it
      pieces[0] = ::kjit_sim::read_unchecked(first);
      pieces[1] = ::kjit_sim::read_unchecked(first + second);
#else
      pieces[0].load(first);
      pieces[1].load(first, second);
#endif
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) pieces[0][i] = from[i];
    }
  }
  __device__ void finish(AlignedVector<T, N>& vector, const T* from) const {
    if constexpr (kCuts) {
      Offset(bytes_ahead(from)).cut(vector, pieces);
    } else {
      vector = pieces[0];
    }
  }

 private:
  __device__ static unsigned bytes_ahead(const T* from) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from)) % static_cast<unsigned>(sizeof(T) * N);
  }
};

/// Writes a vector to where `to` points, aligned, and lets it be the first to leave the caches (`st.global.cs`): for
/// what is not read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  constexpr std::size_t kBytes = sizeof(T) * N;
  using namespace details;
  using Store = Word<kBytes>;
  Store words[kBytes / sizeof(Store)];
  std::memcpy(words, vector.data(), kBytes);
#pragma unroll
  for (std::size_t i = 0; i < kBytes / sizeof(Store); ++i) __stcs(reinterpret_cast<Store*>(to) + i, words[i]);
}

#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
namespace details {

/// Lets `bytes` from `first + at` on, whole vectors of 16, be read into the L2 cache, where they stay if `kKept`: as
/// many as end before `first + end`.
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

/// Lets the beginning of a row, `size` elements from `row[offset]` on, be read into the GPU's L2 cache: `bytes` for
/// each warp of the `threads` threads, as far as the row has so many. All threads of a row call: for another row after
/// their last read, from which it would take the memory's time; for their own before `PDLBegin`, where nothing may be
/// read, but asked for. Nothing where `row` is null or `bytes` is 0. Of the `kParts` vectors of `N` elements that each
/// thread has of its row, the first `kStaying` stay in the cache until they are read, which has to be by a `load` that
/// is told so. (Where these are all, `bytes` is at most what they have.)
template <int N = 1, int kStaying = 0, int kParts = 0, typename T>
KJIT_DEVICE void fetch_ahead(const T* row, std::int64_t offset, std::int64_t size, int bytes, int lane, int threads) {
#if !KJIT_SIM
  if (row == nullptr || bytes == 0) return;
  const char* const first = reinterpret_cast<const char*>(row + offset);
  const std::int64_t end = size * static_cast<std::int64_t>(sizeof(T));
  constexpr int kWarp = static_cast<int>(kWarpThreads);
#if KJIT_ARCH_HOPPER_OR_GREATER
  using namespace details;
  if (lane % kWarp != 0) return;
  const int warp = static_cast<int>(static_cast<unsigned>(lane) / kWarpThreads);
  int staying = 0;  // bytes of each warp
  if constexpr (kStays<T, N> && kStaying > 0) {
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

/// Waits until what this thread has begun to copy to shared memory is there.
KJIT_DEVICE void await_copies() {
  using namespace details;
#if !KJIT_SIM
  if constexpr (kHasAsyncCopies) asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace device::row

}  // namespace kjit
