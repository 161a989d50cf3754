// When a kernel of this folder starts before the one ahead of it in the stream has ended.

#pragma once

#include <kjit/device.cuh>

#include <cstdint>

namespace {

/// Whether a launch of short blocks that moves so many bytes is a dependent launch. A small one gains up to 40% from
/// it; a large one loses a fifth when all threads of its blocks allow the next launch to start.
inline bool starts_early(int64_t bytes) {
  return KJIT_ARCH_HOPPER_OR_GREATER && bytes <= (8 << 20);
}

/// At the start of a kernel, ahead of its first load. One thread speaks for its block.
KJIT_DEVICE void follow_closely(bool early) {
  kjit::device::PDLWaitPrimary<true>();
  if (early && threadIdx.x == 0) kjit::device::PDLTriggerSecondary<true>();
}

}  // namespace
