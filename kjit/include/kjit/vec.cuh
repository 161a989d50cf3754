// Several elements moved by one load or store.
//
//   constexpr int kElements = device::kMaxVecBytes / sizeof(T);
//   device::AlignedVector<T, kElements> v;
//   v.load(src, i);                                   // elements [i * kElements, (i + 1) * kElements)
//   for (int j = 0; j < kElements; ++j) v[j] += bias;
//   v.store(dst, i);
//
// The pointers must be aligned to the whole vector: check with `TensorMatcher::ensure_alignment(sizeof(v))`.

#pragma once

#include <kjit/utils.cuh>

#include <cstddef>
#include <cstdint>

namespace kjit::device {

/// `N` elements of type `T`, aligned to their total size, which is a power of two of at most `kMaxVecBytes` bytes.
template <typename T, std::size_t N>
class alignas(sizeof(T) * N) AlignedVector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a vector has a power of two of elements");
  static_assert(sizeof(T) * N <= kMaxVecBytes, "a vector is at most kMaxVecBytes wide");

 public:
  using value_type = T;

  __host__ __device__ static constexpr std::size_t size() { return N; }
  __host__ __device__ constexpr T& operator[](std::size_t i) { return data_[i]; }
  __host__ __device__ constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  __host__ __device__ constexpr T* data() { return data_; }
  __host__ __device__ constexpr const T* data() const { return data_; }

  __host__ __device__ constexpr void fill(T value) {
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) data_[i] = value;
  }

  /// Reads vector number `index` of the array that starts at `ptr`.
  __device__ void load(const void* ptr, std::int64_t index = 0) {
    *this = static_cast<const AlignedVector*>(ptr)[index];
  }
  /// Writes vector number `index` of the array that starts at `ptr`.
  __device__ void store(void* ptr, std::int64_t index = 0) const { static_cast<AlignedVector*>(ptr)[index] = *this; }

 private:
  T data_[N];
};

}  // namespace kjit::device
