// The function of kjit/streaming.h that has no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/streaming.h>

#include <cstdint>
#include <cstdlib>

namespace kjit::details {

#if defined(__x86_64__)
/// The CPUID instruction. Not <cpuid.h>, whose macros may clash with parameter names of an op.
struct CpuId {
  std::uint32_t a, b, c, d;
  CpuId(std::uint32_t leaf, std::uint32_t subleaf) {
    asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(subleaf));
  }
};
#endif

KJIT_IMPL LastLevelCache find_last_level_cache() noexcept {
  LastLevelCache found;
  const char* named = std::getenv("KJIT_CPU_CACHE_BYTES");
  if (named != nullptr && *named != '\0') return {std::strtoll(named, nullptr, 10), INT32_MAX};
#if defined(__x86_64__)
  // Intel's and AMD's leaves have one format (Intel's manual, volume 2A, CPUID 04H; AMD's, volume 3, Fn8000_001D).
  constexpr std::uint32_t kLeaves[] = {0x4, 0x8000001d}, kNone = 0, kInstructions = 2, kCaches = 8;
  std::uint32_t highest = 0;
  for (const std::uint32_t leaf : kLeaves) {
    const bool is_there = CpuId(leaf & 0x80000000, 0).a >= leaf;  // the highest leaf
    for (std::uint32_t i = 0; is_there && i < kCaches; ++i) {
      const CpuId cache(leaf, i);
      const std::uint32_t kind = cache.a & 31, level = cache.a >> 5 & 7;
      if (kind != kNone && kind != kInstructions && level >= highest) {
        highest = level;
        const std::int64_t ways = (cache.b >> 22) + 1, sets = std::int64_t{cache.c} + 1;
        const std::int64_t partitions = (cache.b >> 12 & 0x3ff) + 1, line = (cache.b & 0xfff) + 1;
        const std::int64_t bytes = ways * partitions * line * sets;
        // A loop over slightly more still hits for a good part, which is faster than streaming.
        found = {bytes + bytes / 2, (cache.a >> 14 & 0xfff) + 1};
      }
    }
  }
#endif
  return found;
}

}  // namespace kjit::details
