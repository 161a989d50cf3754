// Streaming (non-temporal) stores: a tensor that no cache will hold is written past all of them, without being read
// from memory first.
//
//   const bool streams = exceeds_caches<T, T>(numel);  // do what is read and what is written?
//   Streamed<T> part(out_ptr + at, size, streams);     // at most kStaged elements that are only written
//   part.data()[i] = ...;
//   part.store();
//   stream_fence();  // once a thread has written everything; parallel_ranges of kjit/cpu.h does it

#pragma once

#include <kjit/utils.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace kjit {

/// How many elements are staged at once: some tensors' fit into the first-level cache.
constexpr std::int64_t kStaged = 128;

namespace details {

constexpr std::int64_t kLineBytes = 64;  // of a line of the caches

/// A cache of the last level: how many bytes of tensors are kept in it, and how many of the CPU's threads share it.
struct LastLevelCache {
  std::int64_t bytes = 0;
  std::int64_t threads = 1;
};

/// The one of this CPU; none where it is not known. KJIT_CPU_CACHE_BYTES goes before what the CPU says.
LastLevelCache find_last_level_cache() noexcept;

// What the widest stores that go past the caches write.
#if defined(__AVX512F__)
using StreamVector = __m512i;
#elif defined(__AVX__)
using StreamVector = __m256i;
#elif defined(__x86_64__)
using StreamVector = __m128i;
#else
struct StreamVector {
  unsigned char bytes[16];
};
#endif

}  // namespace details

/// Whether tensors with elements of types `Ts`, `numel` in each, are much more than the CPU's caches hold: half as much
/// again as all of those of the last level that OpenMP's threads have, or more than as many bytes as the environment
/// variable KJIT_CPU_CACHE_BYTES says, which is read once. Never where that is 0, or the CPU does not say how large
/// they are.
template <typename... Ts>
bool exceeds_caches(std::int64_t numel) {
  static const details::LastLevelCache cache = details::find_last_level_cache();
#if defined(_OPENMP)
  const std::int64_t threads = omp_get_max_threads();
#else
  const std::int64_t threads = 1;
#endif
  const std::int64_t bytes = numel * static_cast<std::int64_t>((sizeof(Ts) + ...));
  return cache.bytes > 0 && bytes > cache.bytes * ((threads + cache.threads - 1) / cache.threads);
}

/// Whether all of these addresses are where a line of the caches begins, which each vector that is streamed lies in.
template <typename... Ts>
bool begin_lines(const Ts*... written) {
  return ((reinterpret_cast<std::uintptr_t>(written) % details::kLineBytes == 0) && ...);
}

/// What was written past the caches is written when other threads see what this one does next.
inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// `size` elements from `to` on, at most kStaged, that are only written. With `streams` they go past the caches, by way
/// of a buffer, if they are whole aligned vectors and the compiler knows how many (`for_parts` of kjit/cpu.h). Where
/// `streams` is `std::true_type`, `to` is aligned to the vectors, and the compiler leaves the buffer out. Written
/// elements are in `to` after `store()`.
template <typename T>
class Streamed {
 public:
  template <typename Size, typename Streams>
  Streamed(T* to, Size size, Streams streams) : to_(to), size_(size) {
    if constexpr (!std::is_integral_v<Size>) {
      const bool is_aligned =
          std::is_same_v<Streams, std::true_type> || is_vector(reinterpret_cast<std::uintptr_t>(to));
      streams_ = streams && is_aligned && is_vector(Size::value * sizeof(T));
    }
  }
  T* data() { return streams_ ? buffer_ : to_; }
  bool streams() const { return streams_; }
  void store() {
    if (!streams_) return;
    const std::size_t count = static_cast<std::size_t>(size_) * sizeof(T) / sizeof(Vector);
    for (std::size_t i = 0; i < count; ++i) {
      Vector vector;
      __builtin_memcpy(&vector, reinterpret_cast<const char*>(buffer_) + i * sizeof(Vector), sizeof(Vector));
      stream(reinterpret_cast<Vector*>(to_) + i, vector);
    }
  }

 private:
  using Vector = details::StreamVector;

  /// Whether a number of bytes, or an address, is a multiple of a vector's size.
  static bool is_vector(std::uintptr_t bytes) { return bytes % sizeof(Vector) == 0; }

  static void stream(Vector* to, Vector vector) {
#if defined(__AVX512F__)
    _mm512_stream_si512(to, vector);
#elif defined(__AVX__)
    _mm256_stream_si256(to, vector);
#elif defined(__x86_64__)
    _mm_stream_si128(to, vector);
#else
    *to = vector;
#endif
  }

  alignas(64) T buffer_[kStaged];
  T* to_;
  std::int64_t size_;
  bool streams_ = false;
};

}  // namespace kjit

#ifndef KJIT_PRECOMPILED
#include <kjit/streaming.cpp>
#endif
