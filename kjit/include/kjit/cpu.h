// What kernels for the CPU share: a range of the work for each thread, halves converted in vectors, rows fetched ahead.
//
//   parallel_ranges(numel, kStaged, numel >= kParallel, [&](int64_t first, int64_t last) { ... });  // a range a thread
//   Staged<const T> x_part(x_ptr, at, size);  // x_part.data(): as many floats for fp16_t, else the elements themselves
//   StagedRow<const T> x_rows(row_size);      // x_rows.move(x_row): the same for a row at a time

#pragma once

#include <kjit/dtype.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace kjit {

/// Splits `total` elements into a range for each thread and calls `work(first, last)` for each at the same time; there
/// is one range where `is_parallel` is false. Ranges begin at multiples of `grain`.
///
/// As many threads as OpenMP has, which in a process with PyTorch is PyTorch's (`torch.set_num_threads`). `work` must
/// not throw.
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
    }
    return;
  }
#else
  static_cast<void>(grain);
  static_cast<void>(is_parallel);
#endif
  if (total > 0) work(std::int64_t{0}, total);
}

/// How many elements are staged at once: some tensors' fit into the first-level cache.
constexpr std::int64_t kStaged = 128;

/// Calls `work(at, size)` for the elements from `first` up to `last` in parts of kStaged, whose size the compiler
/// knows, and a last one. With `kSmaller`, what is left is done in parts of that size first: for many short rows.
template <std::int64_t kSmaller = 0, typename Work>
inline void for_parts(std::int64_t first, std::int64_t last, const Work& work) {
  std::int64_t at = first;
  for (; at + kStaged <= last; at += kStaged) work(at, std::integral_constant<std::int64_t, kStaged>());
  if constexpr (kSmaller > 0) {
    for (; at + kSmaller <= last; at += kSmaller) work(at, std::integral_constant<std::int64_t, kSmaller>());
  }
  if (at < last) work(at, last - at);
}

/// The type of an element while it is staged: float for fp16_t on an x86 CPU that converts halves itself. Compilers
/// before GCC 13 use those instructions for one half at a time, if at all. Every other type stays what it is.
#if defined(__F16C__)
template <typename T>
using staged_t = std::conditional_t<std::is_same_v<std::remove_const_t<T>, fp16_t>,
                                    std::conditional_t<std::is_const_v<T>, const float, float>, T>;
#else
template <typename T>
using staged_t = T;
#endif

namespace details {

constexpr std::int64_t kAheadBytes = 2048;  // how far ahead of what is done memory is asked for

}  // namespace details

/// Asks for the memory that will be needed soon, where these `size` elements are done: the hardware, which follows a
/// tensor by itself, asks too late for what is only written, and stops at each page. It lies `kBytes` further; fewer
/// are better beside reads of memory in no order, which take their time.
template <std::int64_t kBytes = details::kAheadBytes, typename T, typename Size>
inline void fetch_ahead(T* data, Size size) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kLine = kLineBytes / sizeof(T), kAhead = kBytes / sizeof(T);
  if (data == nullptr) return;
  const T* line = data + kAhead;
  for (std::int64_t i = 0; i < size; i += kLine) __builtin_prefetch(line + i, std::is_const_v<T> ? 0 : 1);
}

/// `size` elements of a tensor, at most kStaged, from `at` on. Without `kLoad` they are only written. Changed elements
/// are in the tensor after `store()`. Where there is no tensor, `data()` is null.
template <typename T, bool kLoad = true, typename = staged_t<T>>
class Staged {
 public:
  Staged(T* tensor, std::int64_t at, std::int64_t size) : data_(tensor == nullptr ? nullptr : tensor + at) {
    fetch_ahead(data_, size);
  }
  T* data() { return data_; }
  void store() {}

 private:
  T* data_;
};

#if defined(__F16C__)
namespace details {

// A load of what two stores wrote has to wait for both. The compiler's vectors have 8 floats or 16, as it likes: what
// they read is stored in the widest vectors, and what they stored is read in the narrower ones.
#if defined(__AVX512F__)
constexpr std::int64_t kWidened = 16;
inline void widen_vector(const fp16_t* from, float* to) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(0xffff, halves));  // g++ warns of the one without a mask
}
#else
constexpr std::int64_t kWidened = 8;
inline void widen_vector(const fp16_t* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
#endif

inline void widen_halves(const fp16_t* from, float* to, std::int64_t size) {
  const std::int64_t whole = size / kWidened * kWidened;
  for (std::int64_t i = 0; i < whole; i += kWidened) widen_vector(from + i, to + i);
  for (std::int64_t i = 0; i < size % kWidened; ++i) to[whole + i] = static_cast<float>(from[whole + i]);
}

inline void narrow_to_halves(const float* from, fp16_t* to, std::int64_t size) {
  constexpr std::int64_t kNarrowed = 8;
  const std::int64_t whole = size / kNarrowed * kNarrowed;
  for (std::int64_t i = 0; i < whole; i += kNarrowed) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  for (std::int64_t i = 0; i < size % kNarrowed; ++i) to[whole + i] = static_cast<fp16_t>(from[whole + i]);
}

}  // namespace details

template <typename T, bool kLoad>
  requires std::is_same_v<std::remove_const_t<T>, fp16_t>
class Staged<T, kLoad, staged_t<T>> {
 public:
  Staged(T* tensor, std::int64_t at, std::int64_t size)
      : tensor_(tensor == nullptr ? nullptr : tensor + at), size_(size) {
    fetch_ahead(tensor_, size);
    if (kLoad && tensor != nullptr) details::widen_halves(tensor_, floats_, size);
  }
  staged_t<T>* data() { return tensor_ == nullptr ? nullptr : floats_; }
  void store() { details::narrow_to_halves(floats_, tensor_, size_); }

 private:
  alignas(64) float floats_[kStaged];
  T* tensor_;
  std::int64_t size_;
};
#endif

/// The rows of a tensor, one after another: as `Staged`, for rows of any length. `move(row)` goes to another row, or to
/// none where it is null, and gives its elements; without `kLoad` they are only written. Changed elements are in the
/// tensor after `store()`.
template <typename T, bool kLoad = true, typename = staged_t<T>>
class StagedRow {
 public:
  explicit StagedRow(std::int64_t) {}
  T* move(T* row) { return row; }
  void store() {}
};

#if defined(__F16C__)
template <typename T, bool kLoad>
  requires std::is_same_v<std::remove_const_t<T>, fp16_t>
class StagedRow<T, kLoad, staged_t<T>> {
 public:
  explicit StagedRow(std::int64_t row_size) : floats_(new float[static_cast<std::size_t>(row_size)]), size_(row_size) {}
  ~StagedRow() { delete[] floats_; }
  StagedRow(const StagedRow&) = delete;
  StagedRow& operator=(const StagedRow&) = delete;
  staged_t<T>* move(T* row) {
    row_ = row;
    if (row == nullptr) return nullptr;
    if (kLoad) details::widen_halves(row, floats_, size_);
    return floats_;
  }
  void store() { details::narrow_to_halves(floats_, row_, size_); }

 private:
  float* floats_;
  std::int64_t size_;
  T* row_ = nullptr;
};
#endif

/// How many rows ahead `fetch_row` is called: more where rows are short, since each is done sooner.
template <typename T>
constexpr std::int64_t rows_ahead(const T*, std::int64_t row_size) {
  constexpr std::int64_t kMost = 16, kLeast = 4, kBytes = 4608;
  const std::int64_t rows = kBytes / (row_size * static_cast<std::int64_t>(sizeof(T)) + 1);
  return rows < kLeast ? kLeast : rows > kMost ? kMost : rows;
}

/// Asks for the first bytes of a row that will be read, or written, soon: the hardware follows one that goes on.
template <typename T>
inline void fetch_row(T* row, std::int64_t row_size) {
  constexpr std::int64_t kLineBytes = 64, kLines = 16;
  const char* bytes = reinterpret_cast<const char*>(row);
  const std::int64_t lines = (row_size * static_cast<std::int64_t>(sizeof(T)) + kLineBytes - 1) / kLineBytes;
  for (std::int64_t i = 0; i < lines && i < kLines; ++i)
    __builtin_prefetch(bytes + i * kLineBytes, std::is_const_v<T> ? 0 : 1);
}

}  // namespace kjit
