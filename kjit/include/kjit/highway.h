// Vectors of the CPU with Google Highway, for each kind of CPU in one library.
//
//   #define HWY_TARGET_INCLUDE "scale.cpp"  // this very file
//   #include <kjit/highway.h>               // it comes back here and reads the file once for each kind of CPU
//
//   HWY_BEFORE_NAMESPACE();
//   namespace {
//   namespace HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   using namespace kjit::HWY_NAMESPACE;
//   ...                                     // functions with vectors
//   }  // namespace HWY_NAMESPACE
//   }  // namespace
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   ...                                     // what is there once, and calls them: HWY_EXPORT_T, HWY_DYNAMIC_DISPATCH_T
//   #endif
//
// The module's spec says `simd="highway"`. On x86-64 it is compiled for the instructions of x86-64-v2, and the
// functions with vectors for those of v3 and v4 (Highway's AVX2 and AVX3) besides; the first call chooses. On aarch64
// it is NEON, which every such CPU has.
//
// Only Highway's headers are used. What they want from its library, the detection of the CPU, is below: neither Debian
// nor conda has that library to link statically, and a module must not need one that another machine does not have.

#ifndef KJIT_HIGHWAY_ONCE_
#define KJIT_HIGHWAY_ONCE_

#ifndef HWY_TARGET_INCLUDE
#error "define HWY_TARGET_INCLUDE as the name of this file, before <kjit/highway.h>"
#endif

#include <kjit/cpu.h>
#include <kjit/dtype.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <type_traits>

namespace kjit {

/// All lanes of a vector, where `load` and `store` would else be told how many. What is stored goes past the caches
/// where `streams` says so (kjit/streaming.h), to whole aligned vectors alone.
struct AllLanes {
  bool streams = false;
};

namespace details {

template <typename T>
constexpr bool kIsWideInt = std::is_integral_v<T> && sizeof(T) == 8;
template <typename T>
constexpr bool kIsFloating = std::is_floating_point_v<compute_t<T>>;

template <typename... Ts>
constexpr auto lane_of() {
  if constexpr ((std::is_same_v<Ts, double> || ...)) {
    return double{};
  } else if constexpr ((kIsFloating<Ts> || ...)) {
    return float{};
  } else if constexpr ((kIsWideInt<Ts> || ...)) {
    return std::int64_t{};
  } else {
    return std::int32_t{};
  }
}

}  // namespace details

/// The type of the lanes in which elements of types `Ts` are computed with: double where one of them is, else float
/// where one is a floating type, else int64_t where one has 64 bits, else int32_t.
template <typename... Ts>
using lane_t = decltype(details::lane_of<Ts...>());

/// The type of the lanes in which elements are moved as they are.
template <typename T>
using bits_t = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

}  // namespace kjit

// x86-64-v2 does not have these two, and Highway's SSE4 is to be that.
#define HWY_DISABLE_PCLMUL_AES
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS 0xff  // all above AVX3, for CPUs that have it anyway: each costs a compile
#elif !defined(HWY_COMPILE_ONLY_STATIC)
#define HWY_COMPILE_ONLY_STATIC
#endif
// The order matters: foreach_target.h reads the op's file, and in it this one, once for each target but the last.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#if (HWY_TARGETS & (HWY_TARGETS - 1)) != 0

// The two functions of Highway's library that dispatch needs, for the targets that are left above. Weak, and local to
// the module as everything in it: neither another module's nor Highway's own library, where a process has it,
// interferes.
namespace hwy {

/// Which of Highway's targets this CPU and the operating system run; no more than those of the environment variable
/// KJIT_CPU_LEVEL.
__attribute__((weak)) std::int64_t SupportedTargets() {
  const char* named = std::getenv("KJIT_CPU_LEVEL");
  const std::string_view level = named == nullptr ? "" : named;
  __builtin_cpu_init();
  std::int64_t targets = HWY_STATIC_TARGET;
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
            __builtin_cpu_supports("bmi2");
#if !defined(__clang__) || __clang_major__ >= 19  // an older one cannot ask for these, which CPUs with BMI2 have
  v3 = v3 && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
#endif
  if (v3 && level != "x86-64-v2") targets |= HWY_AVX2;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3 && v4 && level != "x86-64-v2" && level != "x86-64-v3") targets |= HWY_AVX3;
  return targets;
}

/// What was chosen, by the first call of all.
__attribute__((weak)) ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy

#endif

// As Highway has them from 1.1 on: a table for a function template, and the call of it.
#ifndef HWY_EXPORT_T
#if HWY_IDE || (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define HWY_EXPORT_T(TABLE, FUNCTION)                                                                     \
  HWY_MAYBE_UNUSED static decltype(&HWY_STATIC_DISPATCH(FUNCTION)) const HWY_DISPATCH_TABLE(TABLE)[1] = { \
      &HWY_STATIC_DISPATCH(FUNCTION)}
#define HWY_DYNAMIC_DISPATCH_T(TABLE) (*(HWY_DISPATCH_TABLE(TABLE)[0]))
#else
#define HWY_EXPORT_T(TABLE, FUNCTION)                                                                              \
  static decltype(&HWY_STATIC_DISPATCH(FUNCTION)) const HWY_DISPATCH_TABLE(TABLE)[HWY_MAX_DYNAMIC_TARGETS + 2] = { \
      &decltype(hwy::DeduceFunctionCache(                                                                          \
          &HWY_STATIC_DISPATCH(FUNCTION)))::template ChooseAndCall<HWY_DISPATCH_TABLE(TABLE)>,                     \
      HWY_CHOOSE_TARGET_LIST(FUNCTION),                                                                            \
      HWY_CHOOSE_FALLBACK(FUNCTION),                                                                               \
  }
#define HWY_DYNAMIC_DISPATCH_T(TABLE) (*(HWY_DISPATCH_TABLE(TABLE)[hwy::GetChosenTarget().GetIndex()]))
#endif
#endif

#endif  // KJIT_HIGHWAY_ONCE_

// From here on: once for each target.
#include <hwy/highway.h>

#if defined(KJIT_HIGHWAY_PER_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef KJIT_HIGHWAY_PER_TARGET_
#undef KJIT_HIGHWAY_PER_TARGET_
#else
#define KJIT_HIGHWAY_PER_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace kjit {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Before AVX2, CPUs cannot convert halves.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM
constexpr bool kConvertsHalves = true;
#else
constexpr bool kConvertsHalves = false;
#endif

template <typename T>
constexpr bool kIsNarrowInt = std::is_integral_v<T> && sizeof(T) <= 2;

/// Whether this kind of CPU reads, or writes, the first elements of a vector alone. It could also write them on AVX2,
/// which is slow on many CPUs.
template <typename T>
constexpr bool kLoadsFirst = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= 4);
constexpr bool kStoresFirst = HWY_TARGET == HWY_AVX3;

namespace part_details {

/// Copies `count` elements, fewer than `kMost`, without a loop: half of that many if there are, and so on.
template <std::size_t kMost, typename T>
HWY_INLINE void copy_few(const T* from, T* to, std::size_t count) {
  constexpr std::size_t kHalf = (kMost + 1) / 2;
  if constexpr (kMost > 1) {
    const bool has_half = count >= kHalf;
    if (has_half) __builtin_memcpy(to, from, kHalf * sizeof(T));
    const std::size_t done = has_half ? kHalf : 0;
    copy_few<kHalf>(from + done, to + done, count - done);
  }
}

/// The first `bytes` bytes, fewer than 8, as a number; zeros in the others. Read in two pieces that overlap: to put
/// together in memory what is then read at once would wait for each of its stores.
HWY_INLINE std::uint64_t load_word(const char* from, std::size_t bytes) {
  const auto pieces = [=]<typename Piece>(Piece) HWY_ATTR {
    Piece first, last;
    const std::size_t behind = bytes - sizeof(Piece);
    __builtin_memcpy(&first, from, sizeof(Piece));
    __builtin_memcpy(&last, from + behind, sizeof(Piece));
    return first | static_cast<std::uint64_t>(last) << (behind * 8);
  };
  if (bytes >= 4) return pieces(std::uint32_t{});
  if (bytes >= 2) return pieces(std::uint16_t{});
  return bytes == 0 ? 0 : static_cast<unsigned char>(*from);
}

/// The first `bytes` bytes, fewer than there are, of a vector of whole words.
template <class D>
HWY_INLINE hn::Vec<D> load_words(D d, const char* from, std::size_t bytes) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::Set(d, load_word(from, bytes));
  } else {
    constexpr std::size_t kHalf = hn::MaxLanes(D()) * sizeof(std::uint64_t) / 2;
    const hn::Half<D> half;
    if (bytes < kHalf) return hn::Combine(d, hn::Zero(half), load_words(half, from, bytes));
    const auto first = hn::LoadU(half, reinterpret_cast<const std::uint64_t*>(from));
    return hn::Combine(d, load_words(half, from + kHalf, bytes - kHalf), first);
  }
}

/// A vector from memory as it is.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_vector(D d, const T* from, AllLanes) {
  return hn::LoadU(d, from);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_vector(D d, const T* from, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  if constexpr (kLoadsFirst<T>) {
    if constexpr (kLanes * sizeof(T) > 16) {
      const hn::Half<D> half;
      if (count <= kLanes / 2) return hn::ZeroExtendVector(d, load_vector(half, from, count));
    }
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  } else if constexpr (kLanes * sizeof(T) >= sizeof(std::uint64_t)) {
    const hn::Repartition<std::uint64_t, D> words;
    return hn::BitCast(d, load_words(words, reinterpret_cast<const char*>(from), count * sizeof(T)));
  } else {
    HWY_ALIGN T elements[kLanes] = {};
    copy_few<kLanes>(from, elements, count);
    return hn::Load(d, elements);
  }
}

/// How many lanes a part of a vector has.
template <class D>
HWY_INLINE std::size_t count_of(D d, AllLanes) {
  return hn::MaxLanes(d);
}
template <class D>
HWY_INLINE std::size_t count_of(D, std::size_t count) {
  return count;
}

}  // namespace part_details

using namespace part_details;

/// As many elements as `d` has lanes, of any type, each converted to the lanes' type; or the first `part` of them, and
/// zeros in the other lanes.
template <class D, typename T, typename Part, typename Lane = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D d, const T* from, Part part) {
  const hn::Rebind<std::int32_t, D> d32;
  const hn::Rebind<std::uint16_t, D> du16;
  if constexpr (std::is_same_v<T, Lane>) {
    return load_vector(d, from, part);
  } else if constexpr (std::is_same_v<Lane, bits_t<T>> && !std::is_same_v<T, bool>) {
    return load_vector(d, reinterpret_cast<const Lane*>(from), part);
  } else if constexpr (std::is_same_v<T, bool>) {
    return load(d, reinterpret_cast<const std::uint8_t*>(from), part);
  } else if constexpr (std::is_same_v<T, fp16_t> && std::is_same_v<Lane, float> && kConvertsHalves) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const auto bits = load_vector(du16, reinterpret_cast<const std::uint16_t*>(from), part);
    return hn::PromoteTo(d, hn::BitCast(d16, bits));
  } else if constexpr (std::is_same_v<T, bf16_t> && std::is_same_v<Lane, float>) {
    const hn::Rebind<std::uint32_t, D> du32;
    const auto bits = load_vector(du16, reinterpret_cast<const std::uint16_t*>(from), part);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
  } else if constexpr (kIsNarrowInt<T> && std::is_same_v<Lane, std::int32_t>) {
    return hn::PromoteTo(d, load_vector(hn::Rebind<T, D>(), from, part));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 4 && std::is_same_v<Lane, float>) {
    return hn::ConvertTo(d, load(d32, from, part));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 4) {  // to double or int64_t
    return hn::PromoteTo(d, load(d32, from, part));
  } else if constexpr (details::kIsFloating<T> && std::is_same_v<Lane, double>) {
    return hn::PromoteTo(d, load(hn::Rebind<float, D>(), from, part));
  } else {
    HWY_ALIGN Lane lanes[hn::MaxLanes(d)] = {};
    for (std::size_t i = 0; i < count_of(d, part); ++i) lanes[i] = static_cast<Lane>(from[i]);
    return hn::Load(d, lanes);
  }
}

/// The same for a tensor that may be absent and counts as zeros then.
template <class D, typename T, typename Count>
HWY_INLINE hn::Vec<D> load_or_zero(D d, const T* from, std::int64_t at, Count count) {
  return from == nullptr ? hn::Zero(d) : load(d, from + at, count);
}

/// A vector to memory as it is.
template <class D, typename T>
HWY_INLINE void store_vector(D d, hn::Vec<D> vector, T* to, AllLanes all) {
  constexpr std::size_t kLeastBytes = 16;  // a narrower one would be streamed with what is behind it
  if constexpr (hn::MaxLanes(D()) * sizeof(T) >= kLeastBytes) {
    if (all.streams) return hn::Stream(vector, d, to);
  }
  hn::StoreU(vector, d, to);
}
template <class D, typename T>
HWY_INLINE void store_vector(D d, hn::Vec<D> vector, T* to, std::size_t count) {
  if constexpr (kStoresFirst) {
    if constexpr (hn::MaxLanes(D()) * sizeof(T) > 16) {
      const hn::Half<D> half;
      if (count <= hn::MaxLanes(half)) return store_vector(half, hn::LowerHalf(half, vector), to, count);
    }
#if HWY_ARCH_X86
    // Behind this, g++ does not know that the vector is half of another: it would make one instruction of taking that
    // half and of storing a part of it, and the CPU wants all the memory to be there for that one.
    asm("" : "+v"(vector.raw));
#endif
    hn::BlendedStore(vector, hn::FirstN(d, count), d, to);
  } else {
    HWY_ALIGN T elements[hn::MaxLanes(d)];
    hn::Store(vector, d, elements);
    copy_few<hn::MaxLanes(D())>(elements, to, count);
  }
}

/// All lanes, or the first `part`, to as many elements of any type, converted as C++ does: floats to integers towards
/// zero, integers by their lowest bits, to a narrower floating type to the nearest; to a bool whether it is not zero.
template <class D, typename T, typename Part, typename Lane = hn::TFromD<D>>
HWY_INLINE void store(D d, hn::Vec<D> vector, T* to, Part part) {
  const hn::Rebind<std::int32_t, D> d32;
  const hn::Rebind<std::uint32_t, D> du32;
  const hn::Rebind<std::uint16_t, D> du16;
  if constexpr (std::is_same_v<T, Lane>) {
    store_vector(d, vector, to, part);
  } else if constexpr (std::is_same_v<Lane, bits_t<T>> && !std::is_same_v<T, bool>) {
    store_vector(d, vector, reinterpret_cast<Lane*>(to), part);
  } else if constexpr (std::is_same_v<T, fp16_t> && std::is_same_v<Lane, float> && kConvertsHalves) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const auto bits = hn::BitCast(du16, hn::DemoteTo(d16, vector));
    store_vector(du16, bits, reinterpret_cast<std::uint16_t*>(to), part);
  } else if constexpr (std::is_same_v<T, bf16_t> && std::is_same_v<Lane, float>) {
    // As in kjit/dtype.h: to the nearest, ties to even; a NaN stays one.
    const auto bits = hn::BitCast(du32, vector);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
    const auto rounded = hn::ShiftRight<16>(bits + odd + hn::Set(du32, 0x7fff));
    const auto is_nan = hn::RebindMask(du32, hn::IsNaN(vector));  // `!=` is not true of a NaN from AVX2 on
    auto result = rounded;                                        // of most vectors
    if (!hn::AllFalse(du32, is_nan)) {
      result = hn::IfThenElse(is_nan, hn::Or(hn::ShiftRight<16>(bits), hn::Set(du32, 0x40)), rounded);
    }
    store_vector(du16, hn::TruncateTo(du16, result), reinterpret_cast<std::uint16_t*>(to), part);
  } else if constexpr (kIsNarrowInt<T> && !std::is_same_v<T, bool> && std::is_same_v<Lane, std::int32_t>) {
    const hn::Rebind<std::make_unsigned_t<T>, D> narrow;
    store_vector(narrow, hn::TruncateTo(narrow, hn::BitCast(du32, vector)),
                 reinterpret_cast<std::make_unsigned_t<T>*>(to), part);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 4 &&
                       std::is_same_v<Lane, float>) {
    store(d32, hn::ConvertTo(d32, vector), to, part);
  } else if constexpr (std::is_same_v<T, bool>) {
    const auto ones = hn::IfThenElseZero(hn::Not(vector == hn::Zero(d)), hn::Set(d, 1));  // a NaN is not zero
    store(d, ones, reinterpret_cast<std::uint8_t*>(to), part);
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<Lane, double>) {
    const hn::Rebind<float, D> df;
    store_vector(df, hn::DemoteTo(df, vector), to, part);
  } else {
    HWY_ALIGN Lane lanes[hn::MaxLanes(d)];
    hn::Store(vector, d, lanes);
    for (std::size_t i = 0; i < count_of(d, part); ++i) to[i] = static_cast<T>(lanes[i]);
  }
}

/// One element, in the type of lanes; zero where the tensor is absent.
template <typename Lane, typename T>
HWY_INLINE Lane load_one(const T* from, std::int64_t at) {
  return from == nullptr ? Lane{} : static_cast<Lane>(from[at]);
}

/// One element, converted from the type of lanes.
template <typename Lane, typename T>
HWY_INLINE void store_one(Lane value, T* to, std::int64_t at) {
  to[at] = static_cast<T>(value);
}

/// A vector of which lanes behind `count` count as zero.
template <class D>
HWY_INLINE hn::Vec<D> only(D, hn::Vec<D> vector, AllLanes) {
  return vector;
}
template <class D>
HWY_INLINE hn::Vec<D> only(D d, hn::Vec<D> vector, std::size_t count) {
  return hn::IfThenElseZero(hn::FirstN(d, count), vector);
}

/// Whether vectors of as many elements as `d` has lanes may be streamed to these addresses.
template <class D, typename... Ts>
HWY_INLINE bool are_aligned(D, const Ts*... tensors) {
  return ((reinterpret_cast<std::uintptr_t>(tensors) % (hn::MaxLanes(D()) * sizeof(Ts)) == 0) && ...);
}

/// Calls `work(at, part)` for every vector of the elements from `first` up to `last`: `AllLanes` for all but the last,
/// and for that how many are left. With `streams`, what is stored goes past the caches. A lambda says HWY_ATTR behind
/// its parameters.
template <class D, typename Work>
HWY_INLINE void for_vectors(D, std::int64_t first, std::int64_t last, bool streams, const Work& work) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  std::int64_t at = first;
  for (; at + kLanes <= last; at += kLanes) work(at, AllLanes{streams});
  if (at < last) work(at, static_cast<std::size_t>(last - at));
}
template <class D, typename Work>
HWY_INLINE void for_vectors(D d, std::int64_t first, std::int64_t last, const Work& work) {
  for_vectors(d, first, last, false, work);
}

namespace part_details {

/// `write_vectors` for fewer elements than twice as many as `d` has lanes.
template <class D, typename Work>
HWY_INLINE void write_few(D d, std::int64_t first, std::int64_t last, const Work& work) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  if (last - first >= kLanes) {
    work(d, first, AllLanes());
    if (last - first > kLanes) work(d, last - kLanes, AllLanes());
  } else if constexpr (kLanes > 1) {
    write_few(hn::Half<D>(), first, last, work);
  }
}

}  // namespace part_details

/// As `for_vectors` for what is only written, and not read in `work`: instead of the rest behind whole vectors, the
/// last one of these again up to the last element, which is faster, and reads nothing beside it. Where there are fewer
/// elements than a vector has, narrower ones are used: `work(tag, at, part)` is told of which. What goes past the
/// caches is done once.
template <class D, typename Work>
HWY_INLINE void write_vectors(D d, std::int64_t first, std::int64_t last, bool streams, const Work& work) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  if (last - first < kLanes) return write_few(d, first, last, work);
  std::int64_t at = first;
  for (; at + kLanes <= last; at += kLanes) work(d, at, AllLanes{streams});
  if (at == last) return;
  if (streams) {
    work(d, at, static_cast<std::size_t>(last - at));
  } else {
    work(d, last - kLanes, AllLanes());
  }
}
template <class D, typename Work>
HWY_INLINE void write_vectors(D d, std::int64_t first, std::int64_t last, const Work& work) {
  write_vectors(d, first, last, false, work);
}

/// Whether `element(tag, from, to)` does no more than copy a vector, as far as the compiler sees.
template <class D, typename Element>
HWY_INLINE bool only_copies(D d, const Element& element) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN hn::TFromD<D> lanes[kLanes] = {}, before[kLanes], after[kLanes];
  details::forget(lanes);
  const hn::Vec<D> from = hn::Load(d, lanes);
  hn::Vec<D> to = hn::Zero(d);
  element(d, from, to);
  hn::Store(from, d, before);  // not `lanes`, which may have changed since for all that the compiler knows
  hn::Store(to, d, after);
  return details::are_known_same(before, after);
}

/// Calls `work(tag, at, part)` for the vectors of a run of rows (kjit/cpu_rows.h), `at` from 0 on: as `for_vectors`, or
/// `write_vectors` has them.
template <class D, class Run, typename Work>
HWY_INLINE void for_run(D d, const Run& run, bool streams, const Work& work) {
  const auto step = [&]<typename Part>(std::int64_t at, Part part) HWY_ATTR { work(d, at, part); };
  for_vectors(d, 0, run.head, step);
  for_vectors(d, run.head, run.size, streams, step);
}
template <class D, class Run, typename Work>
HWY_INLINE void write_run(D d, const Run& run, bool streams, const Work& work) {
  write_vectors(d, 0, run.head, work);
  write_vectors(d, run.head, run.size, streams, work);
}

}  // namespace HWY_NAMESPACE
}  // namespace kjit
HWY_AFTER_NAMESPACE();

#endif  // KJIT_HIGHWAY_PER_TARGET_
