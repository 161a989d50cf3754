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

/// What a load or store of so many bytes moves.
template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 4, unsigned, std::conditional_t<kBytes == 2, unsigned short, unsigned char>>>>;

/// Reads what the SM's cache has no use for. `__ldcs` would still let it take the place of something else there.
template <typename Load>
KJIT_DEVICE Load load_past_cache(const Load* from) {
  return __ldcs(from);
}
#if !KJIT_SIM  // which has no caches
KJIT_DEVICE uint4 load_past_cache(const uint4* from) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
#endif
/// The same of what stays in the L2 cache until it is read.
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

/// Reads the vector from `data[index]` on, aligned; where `kOptional`, zeros if `data` is null. With `kStreaming` it
/// takes no place in the SM's cache: for what is read once, beside something that is read again for every row. Then
/// `fetched` says, as the kernel is compiled, that `fetch_ahead` let it stay in the L2 cache, which it may leave now.
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

/// Writes a vector to where `to` points, aligned, and lets it be the first to leave the caches (`st.global.cs`): for
/// what is not read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  details::Word<sizeof(T) * N> word;
  std::memcpy(&word, vector.data(), sizeof(word));
  __stcs(reinterpret_cast<decltype(word)*>(to), word);
}

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

/// The load of a vector that may begin anywhere: it is cut out of the two aligned ones in which it lies, all of which
/// is read. Of types that are not cut, each element is read.
template <typename T, int N>
struct UnalignedLoad {
  static constexpr bool kCuts = kCanCut<T, N>;

  AlignedVector<T, N> pieces[kCuts ? 2 : 1];

  /// How many elements the first of those two begins ahead of the vector; where none, the second is not read.
  __device__ static unsigned elements_ahead(const T* from) {
    const unsigned bytes = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from));
    return kCuts ? bytes % static_cast<unsigned>(sizeof(T) * N) / static_cast<unsigned>(sizeof(T)) : 0;
  }

  __device__ void begin(const T* from) {
    if constexpr (kCuts) {
      const unsigned ahead = elements_ahead(from);
      pieces[0].load(from - ahead);
      pieces[1].load(from - ahead, ahead == 0 ? 0 : 1);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) pieces[0][i] = from[i];
    }
  }
  __device__ void finish(AlignedVector<T, N>& vector, const T* from) const {
    if constexpr (kCuts) {
      Offset(elements_ahead(from) * static_cast<unsigned>(sizeof(T))).cut(vector, pieces);
    } else {
      vector = pieces[0];
    }
  }
};

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

/// A place for a vector in the block's dynamic shared memory, of which each thread has some.
template <typename T, std::size_t N>
class SharedSlot {
 public:
  explicit __device__ SharedSlot(int number)
      : slot_(details::dynamic_shared() +
              std::size_t{16} * (static_cast<unsigned>(number) * blockDim.x + threadIdx.x)) {}

  /// Begins to copy the vector from there, aligned.
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

/// Waits until what this thread has begun to copy to shared memory is there.
KJIT_DEVICE void await_copies() {
#if KJIT_CUDA_ARCH >= 800 && !KJIT_SIM
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
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

/// Lets the beginning of a row, `size` elements from `row` on, be read into the GPU's L2 cache: `bytes` for each warp
/// of the `threads` threads, as far as the row has so many. All threads of a row call: for another row after their last
/// read, from which it would take the memory's time; for their own before `PDLBegin`, where nothing may be read, but
/// asked for. Of the `kParts` vectors of `N` elements that each thread has of its row, the first `kStaying` stay in the
/// cache until a `load` that is told so reads them. (Where these are all, `bytes` is at most what they have.)
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
  int staying = 0;  // bytes of each warp
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
