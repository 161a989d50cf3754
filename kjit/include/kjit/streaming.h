// Streaming (non-temporal) stores: results that exceed the caches bypass them, without a read for ownership.
//
//   const bool streams = exceeds_caches<T, T>(numel);  // do inputs and outputs?
//   Streamed<T> part(out_ptr + at, size, streams);     // at most kStaged write-only elements
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

/// The number of elements staged at once: those of several tensors fit the first-level cache.
constexpr std::int64_t kStaged = 128;

namespace details {

constexpr std::int64_t kLineBytes = 64;  // of a cache line

/// A last-level cache: the bytes of tensors that it holds, and the number of hardware threads that share it.
struct LastLevelCache {
  std::int64_t bytes = 0;
  std::int64_t threads = 1;
};

/// This CPU's last-level cache; empty if it is unknown. KJIT_CPU_CACHE_BYTES overrides what the CPU reports.
LastLevelCache find_last_level_cache() noexcept;

// The vector type of the widest streaming stores.
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

/// Whether tensors with elements of types `Ts`, `numel` in each, far exceed the CPU's caches: by half, those of the
/// last level that OpenMP's threads use; or the environment variable KJIT_CPU_CACHE_BYTES, which is read once. Never if
/// that is 0, or if the CPU does not report its caches.
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

/// Whether all of these addresses are aligned to a cache line, and so to every vector that is streamed.
template <typename... Ts>
bool begin_lines(const Ts*... written) {
  return ((reinterpret_cast<std::uintptr_t>(written) % details::kLineBytes == 0) && ...);
}

/// Completes streaming stores before later stores of this thread become visible.
inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// `size` write-only elements from `to` on, at most kStaged. With `streams`, they are written by streaming stores from
/// a buffer, if they are whole aligned vectors of a compile-time size (`for_parts` of kjit/cpu.h). If `streams` is
/// `std::true_type`, `to` is aligned to the vectors, and the compiler can elide the buffer. Elements are in `to` after
/// `store()`.
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

  /// Whether a size in bytes, or an address, is a multiple of the vector size.
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
