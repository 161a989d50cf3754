// Addresses of a block's shared memory: the module's thread-local variables on this OS thread, and the dynamic part.

#include <kjit_sim/ptx.h>

#include "places.h"
#include "scheduler.h"

namespace kjit_sim {

namespace {

constinit thread_local Range variables;

bool is_in(const void* address, const void* begin, std::size_t size) {
  const auto at = reinterpret_cast<std::uintptr_t>(address), from = reinterpret_cast<std::uintptr_t>(begin);
  return at >= from && at - from < size;
}

/// Whether the address is in the shared memory of the worker's block.
bool is_of(const Worker& w, const void* address) {
  return is_in(address, w.dynamic_shared, kMaxDynamicShared) || is_in(address, w.variables.begin, w.variables.size);
}

}  // namespace

const Range& shared_variables() {
  if (variables.begin == nullptr) {
    with_loaded_module([](const dl_phdr_info& info) {
      for_each_segment(info, PT_TLS, [&](Range memory, const auto&) {
        variables = {static_cast<const char*>(info.dlpi_tls_data), memory.size};
      });
    });
  }
  return variables;
}

bool is_shared(const void* address) {
  return worker != nullptr && is_of(*worker, address);
}

const Worker* owner_of(const Cluster& cluster, const void* address) {
  for (std::uint32_t rank = 0; rank < cluster.blocks; ++rank) {
    const Worker* const each = cluster.workers[rank];
    if (each != nullptr && is_of(*each, address)) return each;
  }
  return nullptr;
}

void* shared_at(std::uint32_t offset) {
  if (offset < kMaxDynamicShared) return static_cast<char*>(worker->dynamic_shared) + offset;
  return const_cast<char*>(worker->variables.begin) + (offset - kMaxDynamicShared);
}

std::uint32_t shared_offset(const void* address) {
  const char* const at = static_cast<const char*>(address);
  const char* const dynamic = static_cast<const char*>(worker->dynamic_shared);
  if (is_in(address, dynamic, kMaxDynamicShared)) return static_cast<std::uint32_t>(at - dynamic);
  // After the dynamic part.
  return static_cast<std::uint32_t>(kMaxDynamicShared + static_cast<std::size_t>(at - worker->variables.begin));
}

}  // namespace kjit_sim
