// Warp-level primitives: reductions, scans, broadcasts, and copies of rows of bytes.
//
//   float total = device::warp::reduce_sum(x);   // the sum over all lanes, in every lane
//   float peak = device::warp::reduce_max<8>(x);  // the maximum of each group of 8 neighbouring lanes
//   device::warp::store_bytes<576>(dst, device::warp::load_bytes<576>(src));
//
// `active_mask` names the calling lanes. They must be converged, and must include every lane of a group that is
// reduced, scanned or read from: the full mask for whole warps, or a group's own lanes if only some groups call (a
// block of 16 threads has 16 lanes; the default mask would name lanes that do not exist). Values of lanes outside the
// mask are undefined.

#pragma once

#include <kjit/bits.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>  // not used here: included for kernels that rely on warp.cuh to provide it
#include <kjit/tile.cuh>
#include <kjit/type.cuh>
#include <kjit/vec.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit::device::warp {

using mask_t = std::uint32_t;
inline constexpr mask_t kFullMask = 0xffffffff;
inline constexpr std::uint32_t kFullWidth = kWarpThreads;

using ::kjit::device::get_lane_id;

/// True in one lane of `active_mask`, the same lane at every call with that mask. On sm_90 and later the compiler knows
/// that it is a single lane: the right condition around a bulk copy.
KJIT_DEVICE bool elect_one_lane(mask_t active_mask = kFullMask) {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
  std::uint32_t elected;
  asm volatile(
      "{\n"
      "  .reg .pred elected;\n"
      "  elect.sync _|elected, %1;\n"
      "  selp.u32 %0, 1, 0, elected;\n"
      "}\n"
      : "=r"(elected)
      : "r"(active_mask));
  return elected != 0;
#else
  __syncwarp(active_mask);
  return get_lane_id() == static_cast<std::uint32_t>(__ffs(static_cast<int>(active_mask)) - 1);
#endif
}

namespace details {

/// Shuffles a value of any size as 32-bit words.
template <typename T, typename Shuffle>
KJIT_DEVICE T shuffle_words(T value, Shuffle shuffle) {
  constexpr std::size_t kWords = (sizeof(T) + 3) / 4;
  std::uint32_t words[kWords] = {};
  std::memcpy(words, &value, sizeof(T));
#pragma unroll
  for (std::size_t i = 0; i < kWords; ++i) words[i] = shuffle(words[i]);
  std::memcpy(static_cast<void*>(&value), words, sizeof(T));  // only bytes, although half2 has copy functions
  return value;
}

template <typename T>
KJIT_DEVICE T shuffle_xor(T value, std::uint32_t offset, mask_t active_mask) {
  return shuffle_words(value, [=](std::uint32_t word) {
    return static_cast<std::uint32_t>(__shfl_xor_sync(active_mask, word, static_cast<int>(offset)));
  });
}

/// Whether one instruction reduces values of this type over a warp.
template <ReductionOp Op, typename T>
KJIT_DEVICE constexpr bool has_redux() {
  if (std::is_integral_v<T> && sizeof(T) <= 4) return true;
// Only these targets have the float instruction: PTX ISA, "redux.sync".
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
  return std::is_same_v<T, float> && Op != ReductionOp::SUM;
#else
  return false;
#endif
}

template <ReductionOp Op, typename T>
KJIT_DEVICE T redux(T value, mask_t active_mask) {
#if !KJIT_SIM
  if constexpr (std::is_same_v<T, float>) {
    float result;
    if constexpr (Op == ReductionOp::MAX) {
      asm volatile("redux.sync.max.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "r"(active_mask));
    } else {
      asm volatile("redux.sync.min.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "r"(active_mask));
    }
    return result;
  } else
#endif
  {
    using Word = std::conditional_t<std::is_signed_v<T>, int, unsigned>;
    const Word word = value;
    if constexpr (Op == ReductionOp::SUM) {
      return static_cast<T>(__reduce_add_sync(active_mask, word));
    } else if constexpr (Op == ReductionOp::MAX) {
      return static_cast<T>(__reduce_max_sync(active_mask, word));
    } else {
      return static_cast<T>(__reduce_min_sync(active_mask, word));
    }
  }
}

}  // namespace details

/// Reduces over groups of lanes; every lane gets the result of its group.
///
/// With `low` and `high` the smaller and the larger of `kStart` and `kFinish` (powers of two up to 32), a group
/// consists of the lanes whose indices differ only in the bits from `low` up to, but not including, `high`: `<8, 1>`
/// are groups of 8 consecutive lanes, `<32, 8>` the lanes 0, 8, 16, 24 and so on. `<kStart, kFinish>` and `<kFinish,
/// kStart>` reduce the same groups; if `kStart` is the larger one, distant lanes are combined first.
///
/// Takes any type with a `ReductionTrait`: integers of all sizes (sums wrap around), floating-point numbers, packed
/// types element by element. MAX and MIN ignore NaN unless all values are NaN. Integers of up to 32 bits over the whole
/// warp take one instruction; so do MAX and MIN of float on sm_100a and sm_103a.
template <ReductionOp Op, std::uint32_t kStart = kWarpThreads, std::uint32_t kFinish = 1, typename T>
KJIT_DEVICE T reduce(T value, mask_t active_mask = kFullMask) {
  static_assert(host::is_pow2(kStart) && host::is_pow2(kFinish), "groups of lanes are powers of two");
  static_assert(kStart <= kFullWidth && kFinish <= kFullWidth, "a group is at most a warp");
  using Trait = ReductionTrait<Op, T>;
  constexpr bool kWholeWarp = kStart + kFinish == kFullWidth + 1;
  if constexpr (kWholeWarp && details::has_redux<Op, T>()) {
    return details::redux<Op>(value, active_mask);
  } else if constexpr (kStart > kFinish) {
#pragma unroll
    for (std::uint32_t offset = kStart / 2; offset >= kFinish; offset /= 2) {
      value = Trait::reduce(value, details::shuffle_xor(value, offset, active_mask));
    }
    return value;
  } else {
#pragma unroll
    for (std::uint32_t offset = kStart; offset < kFinish; offset *= 2) {
      value = Trait::reduce(value, details::shuffle_xor(value, offset, active_mask));
    }
    return value;
  }
}

/// `reduce` with a fixed operation.
template <std::uint32_t kStart = kWarpThreads, std::uint32_t kFinish = 1, typename T>
KJIT_DEVICE T reduce_sum(T value, mask_t active_mask = kFullMask) {
  return reduce<ReductionOp::SUM, kStart, kFinish>(value, active_mask);
}
template <std::uint32_t kStart = kWarpThreads, std::uint32_t kFinish = 1, typename T>
KJIT_DEVICE T reduce_max(T value, mask_t active_mask = kFullMask) {
  return reduce<ReductionOp::MAX, kStart, kFinish>(value, active_mask);
}
template <std::uint32_t kStart = kWarpThreads, std::uint32_t kFinish = 1, typename T>
KJIT_DEVICE T reduce_min(T value, mask_t active_mask = kFullMask) {
  return reduce<ReductionOp::MIN, kStart, kFinish>(value, active_mask);
}

/// Scans segments of `kWidth` lanes: by default, lane `p` gets the result over lanes 0 to `p` of its segment.
///
/// In general, for powers of two up to `kWidth`:
/// - `kStart < kFinish`: forward, over the lanes p, p - kStart, p - 2 kStart, ..., at most `kFinish / kStart` of them.
///   `<32, 4, 32>` scans every fourth lane; `<32, 1, 8>` is a sliding window of 8 lanes.
/// - `kStart > kFinish`: backward, lane p < kStart over p, p + kFinish, p + 2 kFinish, ... below kStart. Lanes from
///   kStart on keep their value; `<32, 32, 1>` is the whole warp.
///
/// `lane_id` is the index of the lane in its segment, or in the warp.
template <ReductionOp Op, std::uint32_t kWidth = kWarpThreads, std::uint32_t kStart = 1, std::uint32_t kFinish = kWidth,
          typename T>
KJIT_DEVICE T inclusive_reduce(T value, std::uint32_t lane_id = get_lane_id<kWidth>(), mask_t active_mask = kFullMask) {
  static_assert(host::is_pow2(kWidth) && host::is_pow2(kStart) && host::is_pow2(kFinish), "sizes are powers of two");
  static_assert(kStart <= kWidth && kFinish <= kWidth && kWidth <= kFullWidth, "a segment is at most a warp");
  using Trait = ReductionTrait<Op, T>;
  const std::uint32_t place = lane_id % kWidth;
  if constexpr (kStart < kFinish) {
#pragma unroll
    for (std::uint32_t offset = kStart; offset < kFinish; offset *= 2) {
      const T before = details::shuffle_words(value, [=](std::uint32_t word) {
        return static_cast<std::uint32_t>(__shfl_up_sync(active_mask, word, offset, static_cast<int>(kWidth)));
      });
      if (place >= offset) value = Trait::reduce(value, before);
    }
  } else {
#pragma unroll
    for (std::uint32_t offset = kFinish; offset < kStart; offset *= 2) {
      const T after = details::shuffle_words(value, [=](std::uint32_t word) {
        return static_cast<std::uint32_t>(__shfl_down_sync(active_mask, word, offset, static_cast<int>(kWidth)));
      });
      if (place < kStart - offset) value = Trait::reduce(value, after);
    }
  }
  return value;
}

/// `inclusive_reduce` with a fixed operation.
template <std::uint32_t kWidth = kWarpThreads, std::uint32_t kStart = 1, std::uint32_t kFinish = kWidth, typename T>
KJIT_DEVICE T inclusive_sum(T value, std::uint32_t lane_id = get_lane_id<kWidth>(), mask_t active_mask = kFullMask) {
  return inclusive_reduce<ReductionOp::SUM, kWidth, kStart, kFinish>(value, lane_id, active_mask);
}
template <std::uint32_t kWidth = kWarpThreads, std::uint32_t kStart = 1, std::uint32_t kFinish = kWidth, typename T>
KJIT_DEVICE T inclusive_max(T value, std::uint32_t lane_id = get_lane_id<kWidth>(), mask_t active_mask = kFullMask) {
  return inclusive_reduce<ReductionOp::MAX, kWidth, kStart, kFinish>(value, lane_id, active_mask);
}
template <std::uint32_t kWidth = kWarpThreads, std::uint32_t kStart = 1, std::uint32_t kFinish = kWidth, typename T>
KJIT_DEVICE T inclusive_min(T value, std::uint32_t lane_id = get_lane_id<kWidth>(), mask_t active_mask = kFullMask) {
  return inclusive_reduce<ReductionOp::MIN, kWidth, kStart, kFinish>(value, lane_id, active_mask);
}

/// Broadcasts the value of lane `src_lane` of each segment of `kWidth` lanes to the segment.
template <std::uint32_t kWidth = kWarpThreads, typename T>
KJIT_DEVICE T broadcast(T value, std::uint32_t src_lane, mask_t active_mask = kFullMask) {
  static_assert(host::is_pow2(kWidth) && kWidth <= kFullWidth, "a segment is a power of two of lanes, at most a warp");
  return details::shuffle_words(value, [=](std::uint32_t word) {
    const int source = static_cast<int>(src_lane);
    return static_cast<std::uint32_t>(__shfl_sync(active_mask, word, source, static_cast<int>(kWidth)));
  });
}

namespace details {

/// The type of CUDA that `__ldcs` and `__stcs` move whole.
template <std::size_t kBytes>
using hinted_t = std::conditional_t<
    kBytes == 1, unsigned char,
    std::conditional_t<kBytes == 2, unsigned short,
                       std::conditional_t<kBytes == 4, unsigned, std::conditional_t<kBytes == 8, uint2, uint4>>>>;

/// Whether 32 bytes go in one load or store here.
template <typename Vec>
inline constexpr bool is_wide_v = sizeof(Vec) == 32 && KJIT_ARCH_BLACKWELL_OR_GREATER;

template <typename Vec>
KJIT_DEVICE Vec load_streaming(const Vec* src) {
  Vec value;
  if constexpr (is_wide_v<Vec>) {
    std::uint32_t (&w)[8] = value.data;
    asm volatile("ld.global.cs.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]), "=r"(w[4]), "=r"(w[5]), "=r"(w[6]), "=r"(w[7])
                 : "l"(src)
                 : "memory");
  } else {
    using Part = hinted_t<sizeof(Vec)>;
    Part parts[sizeof(Vec) / sizeof(Part)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof(Vec) / sizeof(Part); ++i) {
      parts[i] = __ldcs(reinterpret_cast<const Part*>(src) + i);
    }
    std::memcpy(&value, parts, sizeof(Vec));
  }
  return value;
}

template <typename Vec>
KJIT_DEVICE void store_streaming(Vec* dst, const Vec& value) {
  if constexpr (is_wide_v<Vec>) {
    const std::uint32_t (&w)[8] = value.data;
    asm volatile("st.global.cs.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(dst), "r"(w[0]), "r"(w[1]),
                 "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]), "r"(w[6]), "r"(w[7])
                 : "memory");
  } else {
    using Part = hinted_t<sizeof(Vec)>;
    Part parts[sizeof(Vec) / sizeof(Part)];
    std::memcpy(parts, &value, sizeof(Vec));
#pragma unroll
    for (std::size_t i = 0; i < sizeof(Vec) / sizeof(Part); ++i) __stcs(reinterpret_cast<Part*>(dst) + i, parts[i]);
  }
}

}  // namespace details

/// Moves `kBytes` bytes with a whole warp, in vectors of `kVecBytes` (a power of two that divides `kBytes`, and the
/// alignment of the memory). Between `load` and `store` each lane holds its vectors in registers.
template <std::int64_t kBytes, std::int64_t kVecBytes>
struct CopyTrait {
  static_assert(kVecBytes > 0 && kVecBytes <= 32 && (kVecBytes & (kVecBytes - 1)) == 0, "no vector has this size");
  static_assert(kBytes > 0 && kBytes % kVecBytes == 0, "the bytes must be a multiple of the vector");

  using word_t = std::conditional_t<kVecBytes == 1, std::uint8_t,
                                    std::conditional_t<kVecBytes == 2, std::uint16_t, std::uint32_t>>;
  using vec_t = AlignedStorage<word_t, kVecBytes / sizeof(word_t)>;
  /// Bytes that the warp moves in one round, the number of full rounds, and the rest.
  static constexpr std::int64_t kLoopBytes = kVecBytes * kWarpThreads;
  static constexpr std::int64_t kLoopCount = kBytes / kLoopBytes;
  static constexpr std::int64_t kTailBytes = kBytes % kLoopBytes;
  static constexpr std::int64_t kTailVecs = kTailBytes / kVecBytes;
  /// The vectors of one lane. The last is undefined in lanes without a vector in the last round.
  struct result_t : DeviceArray<vec_t, static_cast<std::size_t>(kLoopCount + (kTailVecs > 0 ? 1 : 0))> {};

  /// Calls `f(memory, round)` for every vector of this lane; `memory` is a `tile::Memory<vec_t>`.
  template <typename F>
  __device__ static void for_each(F&& f) {
    const tile::Memory<vec_t> memory = tile::Memory<vec_t>::warp();
#pragma unroll
    for (std::int64_t round = 0; round < kLoopCount; ++round) f(memory, round);
    if constexpr (kTailVecs > 0) {
      if (memory.in_bound(kBytes / kVecBytes, kLoopCount)) f(memory, kLoopCount);
    }
  }

  __device__ static result_t load(const void* src) {
    result_t result;
    for_each([&](const tile::Memory<vec_t>& memory, std::int64_t round) {
      result[static_cast<std::size_t>(round)] = memory.load(src, round);
    });
    return result;
  }
  __device__ static void store(void* dst, const result_t& result) {
    for_each([&](const tile::Memory<vec_t>& memory, std::int64_t round) {
      memory.store(dst, result[static_cast<std::size_t>(round)], round);
    });
  }

  /// `load` and `store` with `ld.global.cs` and `st.global.cs`: evict-first.
  __device__ static result_t load_streaming(const void* src) {
    result_t result;
    for_each([&](const tile::Memory<vec_t>& memory, std::int64_t round) {
      const vec_t* from = static_cast<const vec_t*>(src) + memory.index(round);
      result[static_cast<std::size_t>(round)] = details::load_streaming(from);
    });
    return result;
  }
  __device__ static void store_streaming(void* dst, const result_t& result) {
    for_each([&](const tile::Memory<vec_t>& memory, std::int64_t round) {
      vec_t* to = static_cast<vec_t*>(dst) + memory.index(round);
      details::store_streaming(to, result[static_cast<std::size_t>(round)]);
    });
  }
};

/// The vector width of a warp's copy. Positive: the widest vector that divides the bytes, up to that size. Negative:
/// the same, but narrow enough that all lanes take part, if there are at least 4 bytes for each lane.
struct LoadStorePattern {
  using enum LoadStoreBytes::type;
  enum type : std::int64_t {
    WARP_UNIFORM_GMEM = -MAX_GMEM,
    WARP_UNIFORM_SMEM = -MAX_SMEM,
    WARP_UNIFORM_4B = -4,
    WARP_UNIFORM_8B = -8,
    WARP_UNIFORM_16B = -16,
    WARP_UNIFORM_32B = -32,
  };

  /// The vector size for `kBytes` bytes, which is also the required alignment.
  template <std::int64_t kBytes, std::int64_t kMaxVecBytes>
  __host__ __device__ static constexpr std::int64_t get_vec_bytes() {
    constexpr std::int64_t kMost = kMaxVecBytes < 0 ? -kMaxVecBytes : kMaxVecBytes;
    static_assert(kMost > 0 && (kMost & (kMost - 1)) == 0, "a vector is a power of two of bytes");
    if constexpr (kMaxVecBytes > 0) {
      return common_power_of_two(kBytes, kMost);
    } else if constexpr (kBytes % (4 * kWarpThreads) == 0) {
      return common_power_of_two(kBytes / kWarpThreads, kMost);
    } else {
      return common_power_of_two(kBytes, 4);
    }
  }

 private:
  __host__ __device__ static constexpr std::int64_t common_power_of_two(std::int64_t a, std::int64_t b) {
    return (a | b) & -(a | b);
  }
};

/// Loads `kBytes` bytes with all 32 lanes of a warp; `store_bytes` with the same arguments writes them. `src` is
/// aligned to `LoadStorePattern::get_vec_bytes<kBytes, kMaxVecBytes>()` bytes.
template <std::int64_t kBytes, std::int64_t kMaxVecBytes = LoadStoreBytes::MAX_GMEM,
          std::int64_t kVecBytes = LoadStorePattern::get_vec_bytes<kBytes, kMaxVecBytes>()>
KJIT_DEVICE typename CopyTrait<kBytes, kVecBytes>::result_t load_bytes(const void* src) {
  return CopyTrait<kBytes, kVecBytes>::load(src);
}
template <std::int64_t kBytes, std::int64_t kMaxVecBytes = LoadStoreBytes::MAX_GMEM,
          std::int64_t kVecBytes = LoadStorePattern::get_vec_bytes<kBytes, kMaxVecBytes>()>
KJIT_DEVICE void store_bytes(void* dst, const typename CopyTrait<kBytes, kVecBytes>::result_t& result) {
  CopyTrait<kBytes, kVecBytes>::store(dst, result);
}

/// The same for bytes in global memory that are accessed once: evict-first. The result types are the same, so that a
/// plain load may be followed by a streaming store.
template <std::int64_t kBytes, std::int64_t kMaxVecBytes = LoadStoreBytes::MAX_GMEM,
          std::int64_t kVecBytes = LoadStorePattern::get_vec_bytes<kBytes, kMaxVecBytes>()>
KJIT_DEVICE typename CopyTrait<kBytes, kVecBytes>::result_t load_bytes_streaming(const void* src) {
  return CopyTrait<kBytes, kVecBytes>::load_streaming(src);
}
template <std::int64_t kBytes, std::int64_t kMaxVecBytes = LoadStoreBytes::MAX_GMEM,
          std::int64_t kVecBytes = LoadStorePattern::get_vec_bytes<kBytes, kMaxVecBytes>()>
KJIT_DEVICE void store_bytes_streaming(void* dst, const typename CopyTrait<kBytes, kVecBytes>::result_t& result) {
  CopyTrait<kBytes, kVecBytes>::store_streaming(dst, result);
}

}  // namespace kjit::device::warp
