// Asynchronous copies by a cooperative group: complete when the call returns, visible to the others after `wait`.

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

/// Waits for all but the last `kStages` copies: all are complete already.
template <unsigned kStages, typename Group>
void wait_prior(const Group& group) {
  group.sync();
}

}  // namespace cooperative_groups
