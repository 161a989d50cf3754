// Google Highway for CPU kernels: vector code compiled for several instruction sets, selected at run time.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "scale.cpp"  // this file, by its path in one of the op's include folders
//   #include <kjit/highway.h>               // re-includes this file once for each instruction set
//
//   HWY_BEFORE_NAMESPACE();
//   namespace {
//   namespace HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   ...                                     // vector functions
//   }  // namespace HWY_NAMESPACE
//   }  // namespace
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   HWY_EXPORT(scale_vectors);              // HWY_EXPORT_T for a function template
//   ...                                     // compiled once, calls them: HWY_DYNAMIC_DISPATCH(scale_vectors)
//   #endif
//
// It replaces <hwy/foreach_target.h> and <hwy/highway.h>. On x86-64, vector functions are compiled for the instruction
// set of the whole module, and for x86-64-v3 and v4 (Highway's AVX2 and AVX3) if these are higher; the first call
// selects one. On aarch64 it is NEON, which every such CPU has.
//
// Only Highway's headers are used. The part of its library that they need, CPU detection, is defined below: neither
// Debian nor conda ships that library for static linking, and a module must not depend on a library that may be missing
// elsewhere.

#ifndef KJIT_HIGHWAY_ONCE_
#define KJIT_HIGHWAY_ONCE_

#ifndef HWY_TARGET_INCLUDE
#error "define HWY_TARGET_INCLUDE as the name of the file with the vectors, before <kjit/highway.h>"
#endif

#include <cstdint>
#include <cstdlib>
#include <string_view>

// x86-64-v2 lacks these two, and is to be Highway's SSE4.
#define HWY_DISABLE_PCLMUL_AES
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS 0xff  // all above AVX3, whose CPUs have AVX3 too: each target costs a compile
#elif !defined(HWY_COMPILE_ONLY_STATIC)
#define HWY_COMPILE_ONLY_STATIC
#endif
// The order matters: foreach_target.h includes the op's file, and with it this one, once for each target but the last.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#if (HWY_TARGETS & (HWY_TARGETS - 1)) != 0

// The two functions of Highway's library that dispatch needs, for the targets enabled above. Weak, and local to the
// module like everything in it: neither another module nor Highway's own library in the process interferes.
namespace hwy {

/// The Highway targets that this CPU and the operating system support, limited by the environment variable
/// KJIT_CPU_LEVEL.
__attribute__((weak)) std::int64_t SupportedTargets() {
  const char* named = std::getenv("KJIT_CPU_LEVEL");
  const std::string_view level = named == nullptr ? "" : named;
  __builtin_cpu_init();
  std::int64_t targets = HWY_STATIC_TARGET;
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
            __builtin_cpu_supports("bmi2");
#if !defined(__clang__) || __clang_major__ >= 19  // older ones cannot query these, which CPUs with BMI2 have
  v3 = v3 && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
#endif
  if (v3 && level != "x86-64-v2") targets |= HWY_AVX2;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3 && v4 && level != "x86-64-v2" && level != "x86-64-v3") targets |= HWY_AVX3;
  return targets;
}

/// The selection, made by the first call.
__attribute__((weak)) ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy

#endif

// As in Highway 1.1 and later: a table for a function template, and its call.
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

#include <hwy/highway.h>  // once for each target
