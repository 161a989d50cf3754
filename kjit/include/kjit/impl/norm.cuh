// RMSNorm: y = x * rsqrt(mean(x^2) + eps) * weight over rows of fp16, bf16 or fp32, accumulated in float.
//
//   norm::Row<bf16_t, 5121, 256> x, w;                                           // any size, 256 threads a row
//   x.load(in, threadIdx.x, aligned), w.load(weight, threadIdx.x, aligned);      // tail included
//   x.scale(x.inverse_rms(eps, smem), w), x.store(out, threadIdx.x, aligned);
//
// For sizes accepted by `host::norm::is_config_supported` there is a second form, with exactly one vector a thread:
//
//   norm::StorageType<T, 4096> x = memory.load(in), w = memory.load(weight);     // tile::Memory<...>::cta()
//   memory.store(out, norm::apply_norm_cta<4096>(x, w, eps, smem));

#pragma once

#include <kjit/bits.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>
#include <kjit/type.cuh>
#include <kjit/utils.cuh>
#include <kjit/vec.cuh>
#include <kjit/warp.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kjit {

namespace host::norm {

namespace details {

/// Elements of a row that a warp, and the largest block, holds with one 16-byte vector a thread.
template <typename T>
inline constexpr std::int64_t kWarpDim = static_cast<std::int64_t>(device::kWarpThreads * 16 / sizeof(T));
template <typename T>
inline constexpr std::int64_t kBlockDim = 32 * kWarpDim<T>;

}  // namespace details

/// Whether rows of `kDim` elements fit the form with one vector a thread. For half types: 64, 128, and multiples of 256
/// up to 8192; for float half of each, from 64 on. `device::norm::Row` takes all other sizes.
template <typename T, std::int64_t kDim>
constexpr bool is_config_supported() {
  if (!is_half_v<T> && !std::is_same_v<T, fp32_t>) return false;
  if (kDim <= details::kWarpDim<T>) return kDim >= 64 && details::kWarpDim<T> % kDim == 0;
  return kDim % details::kWarpDim<T> == 0 && kDim <= details::kBlockDim<T>;
}

/// Whether such a row takes a block instead of a warp: above 256 elements for half types, above 128 for float.
template <typename T, std::int64_t kDim>
constexpr bool should_use_cta() {
  static_assert(is_config_supported<T, kDim>(), "norm::Row takes rows of this size or type");
  return kDim > details::kWarpDim<T>;
}

/// Threads in the block for such a row, one vector each.
template <typename T, std::int64_t kDim>
constexpr std::uint32_t get_cta_threads() {
  static_assert(should_use_cta<T, kDim>(), "a warp is enough for a row of this size");
  return static_cast<std::uint32_t>(kDim / details::kWarpDim<T>) * device::kWarpThreads;
}

/// Threads for a row of any size in `device::norm::Row`: a power of two of lanes up to a warp, or a block. Each has two
/// 16-byte vectors; for rows of 16 KB and more four, or more if 1,024 threads are not enough. The fastest choice on an
/// H200 for nearly every size.
template <typename T, std::int64_t kDim>
constexpr std::uint32_t get_row_threads() {
  constexpr std::uint32_t kVectors = static_cast<std::uint32_t>(div_ceil(kDim, 16 / sizeof(T)));
  if (kVectors <= 2 * device::kWarpThreads) return round_up_pow2(div_ceil(kVectors, 2));
  constexpr std::uint32_t kWarps = div_ceil(kVectors, (kVectors >= 1024 ? 4 : 2) * device::kWarpThreads);
  return (kWarps < 32 ? kWarps : 32) * device::kWarpThreads;
}

}  // namespace host::norm

namespace device::norm {

/// Floats of shared memory for `apply_norm_cta`.
inline constexpr std::uint32_t kSmemBufferSize = kWarpThreads + 1;

/// 1 / sqrt(mean + eps) of `dim` squares with the sum `sum_of_squares`.
KJIT_DEVICE float inverse_root_of_mean(float sum_of_squares, std::int64_t dim, float eps) {
  return math::rsqrt(sum_of_squares / static_cast<float>(dim) + eps);
}

namespace details {

/// Packed pairs in one thread: its share of a row in a warp, but at most one 16-byte vector.
template <typename T, std::int64_t kDim>
constexpr std::size_t count_pairs() {
  constexpr std::size_t kShare = kDim / (2 * kWarpThreads);
  constexpr std::size_t kVector = 16 / sizeof(packed_t<T>);
  return kShare < kVector ? kShare : kVector;
}

}  // namespace details

/// The elements of a row in one thread, as packed pairs: with a warp for the row its whole share, with a block one
/// 16-byte vector.
template <typename T, std::int64_t kDim>
using StorageType = AlignedVector<packed_t<T>, details::count_pairs<T, kDim>()>;

namespace details {

/// Adds the squares of two elements to one accumulator each.
template <typename Pair>
KJIT_DEVICE void add_squares(const Pair& pair, float& first, float& second) {
  const fp32x2_t x = cast<fp32x2_t>(pair);
  first = ::fmaf(x.x, x.x, first);
  second = ::fmaf(x.y, x.y, second);
}

/// x * factor * weight, rounded once.
template <typename Pair>
KJIT_DEVICE Pair scaled(const Pair& pair, float factor, const Pair& weight) {
  const fp32x2_t x = cast<fp32x2_t>(pair);
  const fp32x2_t w = cast<fp32x2_t>(weight);
  return cast<Pair>(fp32x2_t{x.x * factor * w.x, x.y * factor * w.y});
}

/// The sum of squares of one vector, in element order.
template <typename Storage>
KJIT_DEVICE float sum_of_squares(const Storage& input) {
  float sum = 0.0f;
#pragma unroll
  for (std::size_t i = 0; i < Storage::size(); ++i) add_squares(input[i], sum, sum);
  return sum;
}

template <typename Storage>
KJIT_DEVICE Storage apply(const Storage& input, float factor, const Storage& weight) {
  Storage output;
#pragma unroll
  for (std::size_t i = 0; i < Storage::size(); ++i) output[i] = scaled(input[i], factor, weight[i]);
  return output;
}

}  // namespace details

/// Normalises a row of `kDim` elements held by a warp; `T` is its `StorageType`.
template <std::int64_t kDim, typename T>
KJIT_DEVICE T apply_norm_warp(const T& input, const T& weight, float eps) {
  static_assert(sizeof(T) * kWarpThreads * 2 == sizeof(typename T::value_type) * kDim, "a warp holds a whole row");
  const float sum = warp::reduce_sum(details::sum_of_squares(input));
  return details::apply(input, inverse_root_of_mean(sum, kDim, eps), weight);
}

/// Normalises a row of `kDim` elements held by the first `num_warps` warps of a block; `T` is its `StorageType`. Called
/// by the whole block. `smem` has `kSmemBufferSize` floats, and may be reused at once.
template <std::int64_t kDim, typename T>
KJIT_DEVICE T apply_norm_cta(const T& input, const T& weight, float eps, float* smem,
                             std::uint32_t num_warps = blockDim.x / kWarpThreads) {
  static_assert(sizeof(T) * kWarpThreads * 2 < sizeof(typename T::value_type) * kDim, "a warp is enough for the row");
  constexpr std::uint32_t kResult = kSmemBufferSize - 1;
  const float sum_of_warp = warp::reduce_sum(details::sum_of_squares(input));
  const std::uint32_t warp_id = threadIdx.x / kWarpThreads;
  const std::uint32_t lane = threadIdx.x % kWarpThreads;
  if (lane == 0) smem[warp_id] = sum_of_warp;
  __syncthreads();
  if (warp_id == 0) {
    const float sum = warp::reduce_sum(lane < num_warps ? smem[lane] : 0.0f);
    if (lane == 0) smem[kResult] = inverse_root_of_mean(sum, kDim, eps);
  }
  __syncthreads();
  return details::apply(input, smem[kResult], weight);
}

/// A row of up to `kDim` elements in the registers of `kThreads` threads: a power of two of lanes up to a warp, or a
/// whole block of any number of warps. Thread t has the 16-byte vectors t, t + kThreads, ...; elements beyond the end
/// of the row are zero, and are neither loaded nor stored.
///
/// In all functions, `thread` is the index of this thread among the `kThreads`, and `aligned` says whether the row is
/// aligned to 16 bytes: if so it is moved in vectors, otherwise element by element.
template <typename T, std::int64_t kDim, std::uint32_t kThreads>
struct Row {
  static_assert(is_half_v<T> || std::is_same_v<T, fp32_t>, "rows of fp16_t, bf16_t or fp32_t");
  static_assert(kThreads % kWarpThreads == 0 || kWarpThreads % kThreads == 0, "whole warps, or an even part of one");
  static_assert(kThreads > 0 && kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(kDim > 0 && kDim <= 1024 * 1024, "a row has elements, and few enough for registers");

  using Pair = packed_t<T>;
  using Vector = AlignedVector<Pair, 16 / sizeof(Pair)>;
  /// Elements in a vector, and vectors in a thread.
  static constexpr std::uint32_t kVec = 16 / sizeof(T);
  static constexpr std::uint32_t kVectors =
      static_cast<std::uint32_t>((kDim + kThreads * kVec - 1) / (kThreads * kVec));
  /// Floats of shared memory for `inverse_rms`.
  static constexpr std::uint32_t kSmemFloats = kThreads > kWarpThreads ? kThreads / kWarpThreads : 0;

  Vector vectors[kVectors];

  /// Reads the `kDim` elements at `row`.
  __device__ void load(const void* row, std::uint32_t thread, bool aligned = true) {
    load_checked<kHasEnd>(static_cast<const T*>(row), thread, aligned, static_cast<std::uint32_t>(kDim));
  }
  /// Reads the `dim` elements at `row`; `dim` is at most `kDim`.
  __device__ void load(const void* row, std::uint32_t thread, bool aligned, std::int64_t dim) {
    load_checked<true>(static_cast<const T*>(row), thread, aligned, static_cast<std::uint32_t>(dim));
  }

  /// Writes `kDim` elements to `row`, or the first `dim` of them.
  __device__ void store(void* row, std::uint32_t thread, bool aligned = true) const {
    store_checked<kHasEnd>(static_cast<T*>(row), thread, aligned, static_cast<std::uint32_t>(kDim));
  }
  __device__ void store(void* row, std::uint32_t thread, bool aligned, std::int64_t dim) const {
    store_checked<true>(static_cast<T*>(row), thread, aligned, static_cast<std::uint32_t>(dim));
  }

  /// The sum of the squares of this thread's elements.
  __device__ float sum_of_squares() const {
    // Two dependency chains of additions are half as long as one.
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kVectors; ++i) {
#pragma unroll
      for (std::size_t j = 0; j < Vector::size(); ++j) details::add_squares(vectors[i][j], even, odd);
    }
    return even + odd;
  }

  /// 1 / sqrt(mean of squares + eps) over `dim` elements, the same in all threads of the row, which all call. `smem`
  /// has `kSmemFloats` floats; the block has to synchronise before it is reused.
  __device__ float inverse_rms(float eps, float* smem = nullptr, std::int64_t dim = kDim) const {
    if constexpr (kThreads <= kWarpThreads) {
      return inverse_root_of_mean(warp::reduce_sum<kThreads>(sum_of_squares()), dim, eps);
    } else {
      constexpr std::uint32_t kWarps = kThreads / kWarpThreads;
      constexpr std::uint32_t kWidth = host::round_up_pow2(kWarps);
      const float sum_of_warp = warp::reduce_sum(sum_of_squares());
      const std::uint32_t lane = threadIdx.x % kWarpThreads;
      if (lane == 0) smem[threadIdx.x / kWarpThreads] = sum_of_warp;
      __syncthreads();
      const std::uint32_t place = lane % kWidth;
      const float sum = warp::reduce_sum<kWidth>(place < kWarps ? smem[place] : 0.0f);
      return inverse_root_of_mean(sum, dim, eps);
    }
  }

  /// Multiplies by `factor` and element-wise by `weight`, in float, rounded once.
  __device__ void scale(float factor, const Row& weight) {
#pragma unroll
    for (std::uint32_t i = 0; i < kVectors; ++i) vectors[i] = details::apply(vectors[i], factor, weight.vectors[i]);
  }

 private:
  /// Whether the last vectors of some threads reach beyond the end of the row.
  static constexpr bool kHasEnd = kDim % (kThreads * kVec) != 0;

  template <bool kCheck>
  __device__ void load_checked(const T* row, std::uint32_t thread, bool aligned, std::uint32_t dim) {
#pragma unroll
    for (std::uint32_t i = 0; i < kVectors; ++i) {
      const std::uint32_t index = thread + i * kThreads;
      const std::uint32_t begin = index * kVec;
      if (aligned && (!kCheck || begin + kVec <= dim)) {
        vectors[i].load(row, index);
      } else {
#pragma unroll
        for (std::uint32_t j = 0; j < kVec; ++j) {
          const bool inside = !kCheck || begin + j < dim;
          unpack(vectors[i][j / 2])[j % 2] = inside ? row[begin + j] : cast<T>(0.0f);
        }
      }
    }
  }

  template <bool kCheck>
  __device__ void store_checked(T* row, std::uint32_t thread, bool aligned, std::uint32_t dim) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kVectors; ++i) {
      const std::uint32_t index = thread + i * kThreads;
      const std::uint32_t begin = index * kVec;
      if (aligned && (!kCheck || begin + kVec <= dim)) {
        vectors[i].store(row, index);
      } else {
#pragma unroll
        for (std::uint32_t j = 0; j < kVec; ++j) {
          if (!kCheck || begin + j < dim) row[begin + j] = unpack(vectors[i][j / 2])[j % 2];
        }
      }
    }
  }
};

}  // namespace device::norm

}  // namespace kjit
