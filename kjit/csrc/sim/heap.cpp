// malloc, free, new, delete, abort, __trap and printf of a unit: in a kernel they act as on a GPU, elsewhere they are
// the C library's.
//
// Allocations of kernels are recorded, so that a double free, or a free of other memory, fails the launch. They live
// until a kernel frees them, or the host does, which CUDA does not allow.

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <unordered_map>
#include <utility>

#include "heap.h"
#include "places.h"
#include "scheduler.h"

namespace kjit_sim {

namespace {

/// Allocates without `operator new`, which uses this heap itself.
template <typename T>
struct Plain {
  using value_type = T;
  Plain() = default;
  template <typename U>
  Plain(const Plain<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(std::malloc(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const Plain&) const { return true; }
};

struct Heap {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::size_t count = 0;  // atomic
  std::unordered_map<void*, std::size_t, std::hash<void*>, std::equal_to<>, Plain<std::pair<void* const, std::size_t>>>
      sizes;

  void lock() { pthread_mutex_lock(&mutex); }
  void unlock() {
    __atomic_store_n(&count, sizes.size(), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&mutex);
  }
};

/// Never destroyed: kernels may run while the process exits.
Heap& heap() {
  static Heap& only = *new (std::malloc(sizeof(Heap))) Heap;
  return only;
}

/// Whether the caller is a kernel's own code, not the simulator.
bool is_asked_by_kernel() {
  return is_in_kernel() && !worker->is_inside;
}

void* allocate(std::size_t size, std::size_t alignment) {
  const auto take = [&]() -> void* {
    const std::size_t room = size > 0 ? size : 1;
    if (alignment <= alignof(std::max_align_t)) return std::malloc(room);
    void* aligned = nullptr;
    return posix_memalign(&aligned, alignment, room) == 0 ? aligned : nullptr;
  };
  if (!is_asked_by_kernel()) return take();
  const Inside inside;
  void* const memory = take();
  if (memory == nullptr) return nullptr;
  heap().lock();
  heap().sizes[memory] = size;
  heap().unlock();
  return memory;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Removes an allocation of a kernel; false if there is none.
bool forget(void* memory) {
  if (__atomic_load_n(&heap().count, __ATOMIC_RELAXED) == 0) return false;
  heap().lock();
  const bool is_known = heap().sizes.erase(memory) > 0;
  heap().unlock();
  return is_known;
}

void release(void* memory, const char* how, const void* place) {
  if (memory == nullptr) return;
  if (!is_asked_by_kernel()) {
    if (!is_in_kernel()) forget(memory);
    return std::free(memory);
  }
  const Inside inside;
  if (forget(memory)) return std::free(memory);
  char what[160];
  std::snprintf(what, sizeof(what), "%s %p, which no kernel has allocated, or which is already freed", how, memory);
  fail_at(what, place);
}

}  // namespace

bool is_in_heap(const void* address, std::size_t size) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  bool is_found = false;
  heap().lock();
  for (const auto& [memory, room] : heap().sizes) {
    const std::uintptr_t offset = at - reinterpret_cast<std::uintptr_t>(memory);
    is_found |= offset < room && size <= room - offset;
  }
  heap().unlock();
  return is_found;
}

}  // namespace kjit_sim

#define KJIT_CALLER __builtin_return_address(0)

[[noreturn]] void kjit_sim::trap() {
  if (is_in_kernel()) fail_at("calls __trap()", KJIT_CALLER);
  __builtin_trap();
}

extern "C" {

void* kjit_sim_malloc(std::size_t size) {
  return kjit_sim::allocate(size, alignof(std::max_align_t));
}
void kjit_sim_free(void* memory) {
  kjit_sim::release(memory, "frees", KJIT_CALLER);
}

[[noreturn]] void kjit_sim_abort() {
  if (kjit_sim::is_in_kernel()) kjit_sim::fail_at("calls abort()", KJIT_CALLER);
  std::abort();
}

int kjit_sim_printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int wrote = 0;
  if (!kjit_sim::is_in_kernel()) {
    wrote = std::vprintf(format, arguments);
  } else {
    // Values are read before the lock of the output is taken: an invalid string ends the launch here.
    char text[1024];
    va_list again;
    va_copy(again, arguments);
    kjit_sim::worker->calls_library_at = KJIT_CALLER;
    wrote = std::vsnprintf(text, sizeof(text), format, arguments);
    kjit_sim::worker->calls_library_at = nullptr;
    const kjit_sim::Inside inside;
    const auto size = static_cast<std::size_t>(wrote > 0 ? wrote : 0);
    if (size < sizeof(text)) {
      std::fwrite(text, 1, size, stdout);
    } else {
      std::vprintf(format, again);
    }
    va_end(again);
  }
  va_end(arguments);
  return wrote;
}

}  // extern "C"

// The module's own: its link has no other, and they are not visible outside.
#define KJIT_SIM_OPERATORS(suffix)                                                                          \
  void* operator new suffix(std::size_t size, const std::nothrow_t&) noexcept {                             \
    return kjit_sim::allocate(size, alignof(std::max_align_t));                                             \
  }                                                                                                         \
  void* operator new suffix(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept { \
    return kjit_sim::allocate(size, static_cast<std::size_t>(alignment));                                   \
  }                                                                                                         \
  void* operator new suffix(std::size_t size) {                                                             \
    return kjit_sim::allocate_or_throw(size, alignof(std::max_align_t));                                    \
  }                                                                                                         \
  void* operator new suffix(std::size_t size, std::align_val_t alignment) {                                 \
    return kjit_sim::allocate_or_throw(size, static_cast<std::size_t>(alignment));                          \
  }                                                                                                         \
  KJIT_SIM_DELETE(suffix, void* memory)                                                                     \
  KJIT_SIM_DELETE(suffix, void* memory, std::size_t)                                                        \
  KJIT_SIM_DELETE(suffix, void* memory, std::align_val_t)                                                   \
  KJIT_SIM_DELETE(suffix, void* memory, std::size_t, std::align_val_t)
#define KJIT_SIM_DELETE(suffix, ...)                   \
  void operator delete suffix(__VA_ARGS__) noexcept {  \
    kjit_sim::release(memory, "deletes", KJIT_CALLER); \
  }
KJIT_SIM_OPERATORS()
KJIT_SIM_OPERATORS([])
