// Widths of loads and stores, and sums over vectors.
//
//   device::AlignedVector<bf16x2_t, 4> parts[3];                     // AlignedVector: kjit/device.cuh
//   for (int i = 0; i < 3; ++i) parts[i].load(src[i], lane);
//   device::reduce_vec(parts).store(dst, lane);                      // summed in float, rounded once

#pragma once

#include <kjit/device.cuh>
#include <kjit/type.cuh>

#include <cstddef>
#include <cstdint>

namespace kjit::device {

/// Widths of loads and stores in bytes.
struct LoadStoreBytes {
  enum type : std::int64_t {
    MAX_GMEM = static_cast<std::int64_t>(kMaxVecBytes),  // the widest for global memory on this architecture
    MAX_SMEM = 16,                                       // the widest for shared memory
    MAX_PORTABLE = 16,                                   // the widest that every GPU supports
    MIN_COALALESCED = 4,                                 // a warp of these accesses a line of 128 bytes
    RAW_1B = 1,
    RAW_2B = 2,
    RAW_4B = 4,
    RAW_8B = 8,
    RAW_16B = 16,
    RAW_32B = 32,
  };
};

/// The element-wise sum of `M` vectors of packed pairs. With `kFP32Acc` it is accumulated in float, in vector order,
/// and rounded once; otherwise in the type itself, rounded after every addition.
template <bool kFP32Acc = true, typename T2, std::size_t N, std::size_t M>
KJIT_DEVICE AlignedVector<T2, N> reduce_vec(const AlignedVector<T2, N> (&vectors)[M]) {
  static_assert(DTypeTrait<T2>::kVecSize == 2, "reduce_vec takes vectors of pairs: fp16x2_t, bf16x2_t, fp32x2_t");
  AlignedVector<T2, N> result;
#pragma unroll
  for (std::size_t i = 0; i < N; ++i) {
    if constexpr (kFP32Acc) {
      fp32x2_t sum = cast<fp32x2_t>(vectors[0][i]);
#pragma unroll
      for (std::size_t j = 1; j < M; ++j) {
        const fp32x2_t term = cast<fp32x2_t>(vectors[j][i]);
        sum.x += term.x;
        sum.y += term.y;
      }
      result[i] = cast<T2>(sum);
    } else {
      T2 sum = vectors[0][i];
#pragma unroll
      for (std::size_t j = 1; j < M; ++j) {
        sum = ReductionTrait<ReductionOp::SUM, T2>::reduce(sum, vectors[j][i]);
      }
      result[i] = sum;
    }
  }
  return result;
}

}  // namespace kjit::device
