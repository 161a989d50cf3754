// Helpers for CPU kernels: ranges of the work for threads, half types converted in vectors.
//
//   parallel_ranges(numel, kStaged, numel > kParallel, [&](int64_t first, int64_t last) { ... });  // a range a thread
//   Staged<const T> x_part(x_ptr + at, size);  // x_part.data(): floats for fp16_t, the elements themselves otherwise
//   StagedRow<const T> x_rows(row_size);       // x_rows.move(x_row): the same, one row at a time

#pragma once

#include <kjit/dtype.h>
#include <kjit/streaming.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace kjit {

/// Splits `total` elements into one range for each thread and calls `work(first, last)` for all of them in parallel;
/// for one range if `is_parallel` is false. Ranges begin at multiples of `grain`.
///
/// Uses as many threads as OpenMP has, which in a process with PyTorch is PyTorch's setting (`torch.set_num_threads`).
/// Streaming stores of `work` are complete when this returns. `work` must not throw.
template <typename Work>
void parallel_ranges(std::int64_t total, std::int64_t grain, bool is_parallel, const Work& work) {
#if defined(_OPENMP)
  if (is_parallel && total > grain && !omp_in_parallel() && omp_get_max_threads() > 1) {
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads();
      const std::int64_t grains = (total + grain - 1) / grain;
      const std::int64_t size = (grains + threads - 1) / threads * grain;
      const std::int64_t first = omp_get_thread_num() * size;
      const std::int64_t last = first + size < total ? first + size : total;
      if (first < last) work(first, last);
      stream_fence();
    }
    return;
  }
#else
  static_cast<void>(grain);
  static_cast<void>(is_parallel);
#endif
  if (total > 0) work(std::int64_t{0}, total);
  stream_fence();
}

namespace details {

/// Hides a value from the optimiser.
template <typename Object>
[[gnu::always_inline]] inline void forget(Object& object) {
  asm("" : "+m"(object));
}

/// A word of an object representation.
template <typename Word, typename Object>
[[gnu::always_inline]] inline Word word_of(const Object& object, std::size_t at) {
  Word word;
  std::memcpy(&word, reinterpret_cast<const char*>(&object) + at * sizeof(Word), sizeof(Word));
  return word;
}

/// Zero if all these words of two values are equal. Not a loop: g++ would unroll it too late to fold the comparison.
template <typename Word, typename Object, std::size_t... kAt>
[[gnu::always_inline]] inline std::uint64_t difference_of(const Object& one, const Object& other,
                                                          std::index_sequence<kAt...>) {
  return (... | (word_of<Word>(one, kAt) ^ word_of<Word>(other, kAt)));
}

/// Whether the compiler proves that two values have the same bytes, whatever they are. False does not mean that they
/// differ, in particular without optimisation.
template <typename Object>
[[gnu::always_inline]] inline bool are_known_same(const Object& one, const Object& other) {
  constexpr std::size_t kBytes = sizeof(Object);
  using Narrow = std::conditional_t<kBytes % 2 == 0, std::uint16_t, std::uint8_t>;
  using Word =
      std::conditional_t<kBytes % 8 == 0, std::uint64_t, std::conditional_t<kBytes % 4 == 0, std::uint32_t, Narrow>>;
  const auto difference = difference_of<Word>(one, other, std::make_index_sequence<kBytes / sizeof(Word)>());
  return __builtin_constant_p(difference) && difference == 0;
}

}  // namespace details

/// Calls `work(at, size)` for the elements from `first` to `last` in parts of `kPart`, a compile-time size, then for
/// the rest. With `kSmaller`, the rest is first done in parts of that size: for many short rows.
template <std::int64_t kPart = kStaged, std::int64_t kSmaller = 0, typename Work>
inline void for_parts(std::int64_t first, std::int64_t last, const Work& work) {
  std::int64_t at = first;
  for (; at + kPart <= last; at += kPart) work(at, std::integral_constant<std::int64_t, kPart>());
  if constexpr (kSmaller > 0) {
    for (; at + kSmaller <= last; at += kSmaller) work(at, std::integral_constant<std::int64_t, kSmaller>());
  }
  if (at < last) work(at, last - at);
}

namespace details {

/// Whether elements of type `T` are staged as floats: types that this x86 CPU converts in vectors but compilers convert
/// with slower code (fp16_t before GCC 13 one at a time, if at all; bf16_t on AVX2 with many instructions).
#if defined(__F16C__)
template <typename T>
constexpr bool kIsWidened = std::is_same_v<T, fp16_t>;
#else
template <typename T>
constexpr bool kIsWidened = false;
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
template <>
constexpr bool kIsWidened<bf16_t> = true;
#endif

}  // namespace details

/// The type of an element while staged: float for fp16_t and bf16_t if that is faster, otherwise the type itself.
template <typename T>
using staged_t = std::conditional_t<details::kIsWidened<std::remove_const_t<T>>,
                                    std::conditional_t<std::is_const_v<T>, const float, float>, T>;

namespace details {

/// The number of elements processed at once if results are streamed: two cache lines, as longer runs of reads delay the
/// first store; more if a tensor would get less than a line.
template <typename... Ts>
constexpr std::int64_t streamed_part() {
  std::int64_t of_two_lines = kStaged, of_a_line = 0;
  ((of_two_lines = std::min<std::int64_t>(of_two_lines, 2 * kLineBytes / sizeof(Ts))), ...);
  ((of_a_line = std::max<std::int64_t>(of_a_line, kLineBytes / sizeof(Ts))), ...);
  return std::max(of_two_lines, of_a_line);
}

}  // namespace details

/// The size of a part that is streamed, and begins at a cache line.
template <std::int64_t kSize>
struct StreamedSize : std::integral_constant<std::int64_t, kSize> {};

/// Calls `work(at, size)` for the elements from `first` to `last` of tensors with elements of types `Ts`. If some types
/// are converted, in parts as `for_parts`; with `streams`, for results that are streamed, in parts of whole cache
/// lines, whose `size` is a `StreamedSize`, then the rest; otherwise once for all elements, since the compiler's own
/// loop is fastest. With `streams`, `first` is a multiple of kStaged, and the written tensors `begin_lines`.
template <typename... Ts, typename Work>
inline void for_staged(std::int64_t first, std::int64_t last, bool streams, const Work& work) {
  if (streams) {
    constexpr std::int64_t kPart = details::streamed_part<Ts...>();
    std::int64_t at = first;
    for (; at + kPart <= last; at += kPart) work(at, StreamedSize<kPart>());
    if (at < last) work(at, last - at);
  } else if constexpr ((details::kIsWidened<Ts> || ...)) {
    for_parts(first, last, work);
  } else if (first < last) {
    work(first, last - first);
  }
}

/// `size` elements of a tensor from `data` on: at most kStaged, if `for_staged` makes parts of that size. Without
/// `kLoad` they are only written, by streaming stores if `streams` is true. Changes are in the tensor after `store()`.
template <typename T, bool kLoad = true, typename = staged_t<T>>
class Staged {
 public:
  Staged(T* data, std::int64_t) : data_(data) {}
  T* data() { return data_; }
  void store() {}

 private:
  T* data_;
};

template <typename T>
class Staged<T, false, T> : public Streamed<T> {
 public:
  template <typename Size, typename Streams = std::false_type>
  Staged(T* data, Size size, Streams streams = Streams()) : Streamed<T>(data, size, streams) {}
  template <std::int64_t kSize>
  Staged(T* data, StreamedSize<kSize> size, bool) : Streamed<T>(data, size, std::true_type()) {}
};

#if defined(__F16C__)
namespace details {

// Vectors as wide as those of the compiler's own loops with kjit's flags (-mprefer-vector-width=512): it can then
// forward the converted values in registers instead of through memory.
#if defined(__AVX512F__)
constexpr std::int64_t kWidened = 16;
inline void widen_vector(const fp16_t* from, float* to) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(0xffff, halves));  // g++ warns about the variant without a mask
}
#else
constexpr std::int64_t kWidened = 8;
inline void widen_vector(const fp16_t* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
#endif

inline void store_vector(void* to, __m128i vector) {
  _mm_storeu_si128(static_cast<__m128i*>(to), vector);
}
inline void store_vector(void* to, __m256i vector) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), vector);
}
inline void stream_vector(void* to, __m128i vector) {
  _mm_stream_si128(static_cast<__m128i*>(to), vector);
}
inline void stream_vector(void* to, __m256i vector) {
  _mm256_stream_si256(static_cast<__m256i*>(to), vector);
}

/// Rounds `kSize` floats at a time to elements of type `T`.
template <typename T>
class Narrowing;

template <>
class Narrowing<fp16_t> {
 public:
  static constexpr std::int64_t kSize = kWidened;
#if defined(__AVX512F__)
  __m256i operator()(const float* from) {
    return _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);  // as above
  }
#else
  __m128i operator()(const float* from) { return _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT); }
#endif
  bool met_nan() const { return false; }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
inline void widen_vector(const bf16_t* from, float* to) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  _mm256_storeu_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
}

// As in kjit/dtype.h: to nearest, ties to even. A NaN may become an infinity here, and is only recorded.
template <>
class Narrowing<bf16_t> {
 public:
  static constexpr std::int64_t kSize = 16;
  Narrowing() { asm("" : "+x"(one_), "+x"(below_half_)); }  // in registers: g++ would reload them for each vector
  __m256i operator()(const float* from) {
    const __m256 first = _mm256_loadu_ps(from), second = _mm256_loadu_ps(from + 8);
    nan_ = _mm256_or_ps(nan_, _mm256_cmp_ps(first, second, _CMP_UNORD_Q));
    const __m256i words = _mm256_packus_epi32(round(first), round(second));
    return _mm256_permute4x64_epi64(words, 0xd8);  // undoes the interleaving of the packing
  }
  bool met_nan() const { return _mm256_movemask_ps(nan_) != 0; }

 private:
  __m256i round(__m256 values) const {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one_);
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, below_half_), odd), 16);
  }

  __m256i one_ = _mm256_set1_epi32(1), below_half_ = _mm256_set1_epi32(0x7fff);
  __m256 nan_ = _mm256_setzero_ps();
};
#endif

/// `size` elements of a tensor as floats.
template <typename T>
inline void widen_elements(const T* from, float* to, std::int64_t size) {
  const std::int64_t whole = size / kWidened * kWidened;
  for (std::int64_t i = 0; i < whole; i += kWidened) widen_vector(from + i, to + i);
  for (std::int64_t i = whole; i < size; ++i) to[i] = static_cast<float>(from[i]);
}

/// `size` floats as elements of a tensor; with `streams`, by streaming stores to whole aligned vectors.
template <typename T>
inline void narrow_elements(const float* from, T* to, std::int64_t size, bool streams) {
  constexpr std::int64_t kSize = Narrowing<T>::kSize;
  const std::int64_t whole = size / kSize * kSize;
  Narrowing<T> narrow;
  if (streams) {
    for (std::int64_t i = 0; i < whole; i += kSize) stream_vector(to + i, narrow(from + i));
  } else {
    for (std::int64_t i = 0; i < whole; i += kSize) store_vector(to + i, narrow(from + i));
  }
  std::int64_t done = whole;
  if (narrow.met_nan()) {  // rare: all of them again, one at a time
    if (streams) stream_fence();
    done = 0;
  }
  for (std::int64_t i = done; i < size; ++i) to[i] = static_cast<T>(from[i]);
}

/// Whether `narrow_elements` may stream to this address.
inline bool is_aligned_vector(const void* to) {
  return reinterpret_cast<std::uintptr_t>(to) % sizeof(__m256i) == 0;
}

}  // namespace details

template <typename T>
  requires details::kIsWidened<std::remove_const_t<T>>
class Staged<T, true, staged_t<T>> {
 public:
  Staged(T* data, std::int64_t size) : tensor_(data), size_(size) { details::widen_elements(data, floats_, size); }
  staged_t<T>* data() { return floats_; }
  void store() { details::narrow_elements(floats_, tensor_, size_, false); }

 private:
  alignas(64) float floats_[kStaged];
  T* tensor_;
  std::int64_t size_;
};

template <typename T>
  requires details::kIsWidened<T>
class Staged<T, false, float> {
 public:
  Staged(T* data, std::int64_t size, bool streams = false)
      : tensor_(data), size_(size), streams_(streams && details::is_aligned_vector(data)) {}
  float* data() { return floats_; }
  void store() { details::narrow_elements(floats_, tensor_, size_, streams_); }

 private:
  alignas(64) float floats_[kStaged];
  T* tensor_;
  std::int64_t size_;
  bool streams_;
};
#endif

/// The same for a tensor that may be absent, then `data()` is null. Elements are only read.
template <typename T, typename Held = staged_t<T>>
class StagedOptional {
 public:
  StagedOptional(T* data, std::int64_t size) {
    if (data != nullptr) part_.emplace(data, size);
  }
  Held* data() { return part_.has_value() ? part_->data() : nullptr; }

 private:
  std::optional<Staged<T, true, Held>> part_;
};

/// The rows of a tensor, one at a time: `Staged` for rows of any length. `move(row)` moves to another row, or to none
/// if null, and returns its elements; without `kLoad` they are only written, by streaming stores if `streams` is true.
/// Changes are in the tensor after `store()`.
template <typename T, bool kLoad = true>
class StagedRow {
 public:
  explicit StagedRow(std::int64_t, bool = false) {}
  T* move(T* row) { return row; }
  void store() {}
};

template <typename T>
  requires(!details::kIsWidened<T>)
class StagedRow<T, false> {
 public:
  explicit StagedRow(std::int64_t row_size, bool streams = false)
      : buffer_(streams ? new T[static_cast<std::size_t>(row_size)] : nullptr), size_(row_size) {}
  ~StagedRow() { delete[] buffer_; }
  StagedRow(const StagedRow&) = delete;
  StagedRow& operator=(const StagedRow&) = delete;
  T* move(T* row) {
    row_ = row;
    return buffer_ == nullptr ? row : buffer_;
  }
  void store() {
    if (buffer_ == nullptr) return;
    for_parts(0, size_, [this]<typename Size>(std::int64_t at, Size size) {
      Streamed<T> part(row_ + at, size, true);
      __builtin_memcpy(part.data(), buffer_ + at, static_cast<std::size_t>(size) * sizeof(T));
      part.store();
    });
  }

 private:
  T* buffer_;
  std::int64_t size_;
  T* row_ = nullptr;
};

#if defined(__F16C__)
template <typename T, bool kLoad>
  requires details::kIsWidened<std::remove_const_t<T>>
class StagedRow<T, kLoad> {
 public:
  explicit StagedRow(std::int64_t row_size, bool streams = false)
      : floats_(new float[static_cast<std::size_t>(row_size)]), size_(row_size), streams_(streams) {}
  ~StagedRow() { delete[] floats_; }
  StagedRow(const StagedRow&) = delete;
  StagedRow& operator=(const StagedRow&) = delete;
  staged_t<T>* move(T* row) {
    row_ = row;
    if (row == nullptr) return nullptr;
    if (kLoad) details::widen_elements(row, floats_, size_);
    return floats_;
  }
  void store() { details::narrow_elements(floats_, row_, size_, streams_ && details::is_aligned_vector(row_)); }

 private:
  float* floats_;
  std::int64_t size_;
  bool streams_;
  T* row_ = nullptr;
};
#endif

}  // namespace kjit
