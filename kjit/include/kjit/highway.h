// Google Highway for a kernel on the CPU: its vectors, compiled for each kind of CPU, and the choice between them at
// run time.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "scale.cpp"  // this very file, as one of the op's include folders has it
//   #include <kjit/highway.h>               // it comes back here and reads the file once for each kind of CPU
//
//   HWY_BEFORE_NAMESPACE();
//   namespace {
//   namespace HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   ...                                     // functions with vectors
//   }  // namespace HWY_NAMESPACE
//   }  // namespace
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   HWY_EXPORT(scale_vectors);              // HWY_EXPORT_T for a function template
//   ...                                     // what is there once, and calls them: HWY_DYNAMIC_DISPATCH(scale_vectors)
//   #endif
//
// It stands in place of <hwy/foreach_target.h> and <hwy/highway.h>. On x86-64 functions with vectors are compiled
// for the instructions that the whole module is compiled for, and for x86-64-v3 and v4 (Highway's AVX2 and AVX3) where
// these have more; the first call chooses. On aarch64 it is NEON, which every such CPU has.
//
// Only Highway's headers are used. What they want from its library, the detection of the CPU, is below: neither Debian
// nor conda has that library to link statically, and a module must not need one that another machine does not have.

#ifndef KJIT_HIGHWAY_ONCE_
#define KJIT_HIGHWAY_ONCE_

#ifndef HWY_TARGET_INCLUDE
#error "define HWY_TARGET_INCLUDE as the name of the file with the vectors, before <kjit/highway.h>"
#endif

#include <cstdint>
#include <cstdlib>
#include <string_view>

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

#include <hwy/highway.h>  // once for each target
