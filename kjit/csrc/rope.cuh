// In-place RMSNorm of each head of q and k, rotary position embedding (RoPE), or both in one pass.
//
// A group of lanes shares a head, with consecutive elements each; a partner element in another lane is read by a
// shuffle.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>
#include <kjit/warp.cuh>

#include <cstdint>

namespace {

using namespace kjit;

enum class Rope { kNone, kNeox, kGptJ };

/// Strides are in elements.
struct Heads {
  void* q;
  void* k;
  const void* q_weight;
  const void* k_weight;
  const float* cos_sin;
  const void* positions;
  int64_t q_stride, k_stride, q_head_stride, k_head_stride;  // between tokens, between heads
  uint32_t q_heads, rows, rotary_dim;
  device::math::fast_mod_div_u32_t heads;  // of q and k together
  float eps;
};

template <typename T, int64_t kHeadDim>
struct Lanes {
  static constexpr int kVec = 16 / sizeof(T);
  static constexpr int kVectors = host::div_ceil(kHeadDim, 32 * kVec);  // in a lane
  static constexpr int kElements = kVec * kVectors;
  static constexpr int kCount = static_cast<int>(host::round_up_pow2(static_cast<uint32_t>(kHeadDim / kElements)));
  static_assert(kHeadDim % kElements == 0 && kCount <= 32, "a head is a warp's or less, in whole vectors");
};

/// Vectorised; `from` is aligned to the vectors.
template <int kCount>
KJIT_DEVICE void load_floats(float (&to)[kCount], const float* from) {
  constexpr int kVec = kCount < 4 ? kCount : 4;
#pragma unroll
  for (int i = 0; i < kCount; i += kVec) {
    device::AlignedVector<float, kVec> vector;
    vector.load(from + i);
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[i + j] = vector[j];
  }
}

constexpr int kBlock = 128;

template <typename T, int64_t kHeadDim, bool kNorm, Rope kRope, typename Position>
__global__ void __launch_bounds__(kBlock) heads_kernel(const __grid_constant__ Heads params) {
  using namespace device;
  using Own = Lanes<T, kHeadDim>;
  const uint32_t lane = threadIdx.x % Own::kCount, first = lane * Own::kElements;
  const uint32_t wanted = blockIdx.x * (kBlock / Own::kCount) + threadIdx.x / Own::kCount;
  const uint2 place = math::div(wanted < params.rows ? wanted : params.rows - 1, params.heads);
  const bool is_q = place.y < params.q_heads;
  T* head =
      is_q ? static_cast<T*>(params.q) + place.x * params.q_stride + place.y * params.q_head_stride
           : static_cast<T*>(params.k) + place.x * params.k_stride + (place.y - params.q_heads) * params.k_head_stride;
  const bool has_work = first < (kNorm ? kHeadDim : params.rotary_dim);

  PDLBegin();
  AlignedVector<T, Own::kVec> vectors[Own::kVectors];
  float x[Own::kElements] = {};
  if (has_work) {
#pragma unroll
    for (int i = 0; i < Own::kVectors; ++i) vectors[i].load(head + first, i);
#pragma unroll
    for (int i = 0; i < Own::kElements; ++i) x[i] = static_cast<float>(vectors[i / Own::kVec][i % Own::kVec]);
  }
  if constexpr (kNorm) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < Own::kElements; ++i) squares += x[i] * x[i];
    const float inverse_rms = rsqrtf(warp::reduce_sum<Own::kCount>(squares) / kHeadDim + params.eps);
    if (has_work) {
      const void* weight = is_q ? params.q_weight : params.k_weight;
#pragma unroll
      for (int i = 0; i < Own::kVectors; ++i) vectors[i].load(static_cast<const T*>(weight) + first, i);
#pragma unroll
      for (int i = 0; i < Own::kElements; ++i) {
        x[i] *= inverse_rms * static_cast<float>(vectors[i / Own::kVec][i % Own::kVec]);
      }
    }
  }
  if constexpr (kRope != Rope::kNone) {
    const uint32_t half = params.rotary_dim / 2;
    const int64_t position = static_cast<const Position*>(params.positions)[place.x];
    const float* table = params.cos_sin + position * params.rotary_dim;
    const bool rotates = first < params.rotary_dim;
    constexpr bool kIsNeox = kRope == Rope::kNeox;
    constexpr int kAngles = kIsNeox ? Own::kElements : Own::kElements / 2;
    const bool is_low = first < half;
    float cosines[kAngles] = {}, sines[kAngles] = {};
    if (rotates) {
      const uint32_t at = kIsNeox ? (is_low ? first : first - half) : first / 2;
      load_floats(cosines, table + at);
      load_floats(sines, table + half + at);
    }
    if constexpr (kIsNeox) {
      const uint32_t partner = rotates ? (is_low ? first + half : first - half) / Own::kElements : lane;
#pragma unroll
      for (int i = 0; i < Own::kElements; ++i) {
        const float other = __shfl_sync(warp::kFullMask, x[i], partner, Own::kCount);
        if (rotates) x[i] = x[i] * cosines[i] + (is_low ? -other : other) * sines[i];
      }
    } else if (rotates) {
#pragma unroll
      for (int i = 0; i < kAngles; ++i) {
        const float even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = even * cosines[i] - odd * sines[i];
        x[2 * i + 1] = odd * cosines[i] + even * sines[i];
      }
    }
  }
  if (has_work && wanted < params.rows) {
#pragma unroll
    for (int i = 0; i < Own::kElements; ++i) vectors[i / Own::kVec][i % Own::kVec] = x[i];
#pragma unroll
    for (int i = 0; i < Own::kVectors; ++i) vectors[i].store(head + first, i);
  }
}

template <typename T, int64_t kHeadDim>
struct QkHeads {
  static void qknorm(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight, double eps) {
    launch<true, Rope::kNone, int32_t>(checked(q, k, &q_weight, &k_weight, eps), q.device());
  }

  template <Rope kRope, typename Position>
  static void rope(TensorView q, TensorView k, TensorView cos_sin_cache, TensorView positions) {
    launch<false, kRope, Position>(with_rope<Position>(checked(q, k), q, cos_sin_cache, positions), q.device());
  }

  template <Rope kRope, typename Position>
  static void qknorm_rope(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight,
                          TensorView cos_sin_cache, TensorView positions, double eps) {
    const Heads heads = checked(q, k, &q_weight, &k_weight, eps);
    launch<true, kRope, Position>(with_rope<Position>(heads, q, cos_sin_cache, positions), q.device());
  }

 private:
  static Heads checked(TensorView q, TensorView k, const TensorView* q_weight = nullptr,
                       const TensorView* k_weight = nullptr, double eps = 0) {
    using namespace host;
    SymbolicDevice gpu;
    SymbolicSize tokens{"tokens"}, q_heads{"q_heads"}, k_heads{"k_heads"};
    TensorMatcher({tokens, q_heads, kHeadDim})
        .with_strides({-1, -1, 1})
        .with_device<kDLCUDA>(gpu)
        .with_dtype<T>()
        .ensure_alignment(16)
        .verify(q, "q");
    TensorMatcher({tokens, k_heads, kHeadDim})
        .with_strides({-1, -1, 1})
        .with_device<kDLCUDA>(gpu)
        .with_dtype<T>()
        .ensure_alignment(16)
        .verify(k, "k");
    if (q_weight != nullptr) {
      TensorMatcher matcher({kHeadDim});
      matcher.with_device<kDLCUDA>(gpu).with_dtype<T>().ensure_alignment(16);
      matcher.verify(*q_weight, "q_weight").verify(*k_weight, "k_weight");
    }
    const int64_t heads = q_heads.unwrap() + k_heads.unwrap(), rows = tokens.unwrap() * heads;
    RuntimeCheck(rows < int64_t{1} << 31, "q and k have ", rows, " heads in all, at most 2^31 - 1 are possible");
    return {.q = q.data_ptr(),
            .k = k.data_ptr(),
            .q_weight = q_weight == nullptr ? nullptr : q_weight->data_ptr(),
            .k_weight = k_weight == nullptr ? nullptr : k_weight->data_ptr(),
            .cos_sin = nullptr,
            .positions = nullptr,
            .q_stride = q.stride(0),
            .k_stride = k.stride(0),
            .q_head_stride = q.stride(1),
            .k_head_stride = k.stride(1),
            .q_heads = static_cast<uint32_t>(q_heads.unwrap()),
            .rows = static_cast<uint32_t>(rows),
            .rotary_dim = 0,
            .heads = device::math::fast_mod_div_u32_t(static_cast<uint32_t>(heads)),
            .eps = static_cast<float>(eps)};
  }

  template <typename Position>
  static Heads with_rope(Heads heads, TensorView q, TensorView cos_sin_cache, TensorView positions) {
    using namespace host;
    SymbolicDevice gpu;
    gpu.set_value(q.device());
    SymbolicSize rotary_dim{"rotary_dim"};
    TensorMatcher({-1, rotary_dim})
        .with_device(gpu)
        .with_dtype<float>()
        .ensure_alignment(16)
        .verify(cos_sin_cache, "cos_sin_cache");
    TensorMatcher({q.size(0)}).with_device(gpu).with_dtype<Position>().verify(positions, "positions");
    const int64_t size = rotary_dim.unwrap(), pair = 2 * Lanes<T, kHeadDim>::kElements;
    RuntimeCheck(size <= kHeadDim && size % pair == 0, "Size mismatch: rotary_dim is ", size, ", not a multiple of ",
                 pair, " up to ", kHeadDim);
    heads.cos_sin = data_of<const float>(cos_sin_cache);
    heads.positions = positions.data_ptr();
    heads.rotary_dim = static_cast<uint32_t>(size);
    return heads;
  }

  template <bool kNorm, Rope kRope, typename Position>
  static void launch(const Heads& heads, DLDevice device) {
    if (heads.rows == 0) return;
    host::LaunchKernel(host::div_ceil(heads.rows, uint32_t{kBlock / Lanes<T, kHeadDim>::kCount}), kBlock, device)
        .enable_pdl()(heads_kernel<T, kHeadDim, kNorm, kRope, Position>, heads);
  }
};

}  // namespace
