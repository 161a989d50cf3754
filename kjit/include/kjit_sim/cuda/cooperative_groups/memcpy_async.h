// Copies by a cooperative group: done when the call returns, seen by the others after `wait`.

#pragma once

#include <cooperative_groups.h>

#include <cstring>

namespace cooperative_groups {

template <typename Group, typename T>
void memcpy_async(const Group& group, T* target, const T* source, std::size_t bytes) {
  if (group.thread_rank() == 0) std::memcpy(target, source, bytes);
}
template <typename Group>
void wait(const Group& group) {
  group.sync();
}

/// All but the last `kStages` copies have been done: here all have.
template <unsigned kStages, typename Group>
void wait_prior(const Group& group) {
  group.sync();
}

}  // namespace cooperative_groups
