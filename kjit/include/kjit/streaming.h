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

/// A cache of the last level: its size, and how many of the CPU's threads share it.
struct LastLevelCache {
  std::int64_t bytes = 0;
  std::int64_t threads = 1;
};

/// The one of this CPU; none where it is not known. KJIT_CPU_CACHE_BYTES goes before what the CPU says.
LastLevelCache find_last_level_cache() noexcept;

// Of the widest stores that go past the caches.
#if defined(__AVX512F__)
constexpr std::size_t kStreamBytes = 64;
#elif defined(__AVX__)
constexpr std::size_t kStreamBytes = 32;
#else
constexpr std::size_t kStreamBytes = 16;
#endif

}  // namespace details

/// Whether tensors with elements of types `Ts`, `numel` in each, are more than the CPU's caches hold: all of those of
/// the last level that OpenMP's threads have, or as many bytes as the environment variable KJIT_CPU_CACHE_BYTES says,
/// which is read once. Never where that is 0, or the CPU does not say how large they are.
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

/// What was written past the caches is written when other threads see what this one does next.
inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// `size` elements from `to` on, at most kStaged, that are only written. With `streams` they go past the caches, by way
/// of a buffer, if they are whole aligned vectors and the compiler knows how many (`for_parts` of kjit/cpu.h). Written
/// elements are in `to` after `store()`.
template <typename T>
class Streamed {
 public:
  template <typename Size>
  Streamed(T* to, Size size, bool streams) : to_(to), size_(size) {
    if constexpr (!std::is_integral_v<Size>) {
      const auto address = reinterpret_cast<std::uintptr_t>(to);
      streams_ = streams && (address | Size::value * sizeof(T)) % details::kStreamBytes == 0;
    }
  }
  T* data() { return streams_ ? buffer_ : to_; }
  bool streams() const { return streams_; }
  void store() {
    if (!streams_) return;
    const char* from = reinterpret_cast<const char*>(buffer_);
    char* to = reinterpret_cast<char*>(to_);
    constexpr std::int64_t kVector = details::kStreamBytes;
    const std::int64_t bytes = size_ * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t i = 0; i < bytes; i += kVector) {
#if defined(__AVX512F__)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_load_si512(from + i));
#elif defined(__AVX__)
      const __m256i vector = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), vector);
#elif defined(__x86_64__)
      const __m128i vector = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), vector);
#else
      __builtin_memcpy(to + i, from + i, kVector);
#endif
    }
  }

 private:
  alignas(64) T buffer_[kStaged];
  T* to_;
  std::int64_t size_;
  bool streams_ = false;
};

}  // namespace kjit

#ifndef KJIT_PRECOMPILED
#include <kjit/streaming.cpp>
#endif
