// Notes for a checker while an export runs: the tensors that it was passed, and their names.
//
//   kjit_sim::CallScope call;                             // discards later notes at its end
//   if (kjit_sim::note_tensor) kjit_sim::note_tensor(*tensor, "scale", 0);
//
// The functions are defined only in a module built for checking; elsewhere they are weak and null.

#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Kernels may access the memory of this tensor: argument `index` (0-based) of an export, or negative for other
/// tensors.
__attribute__((weak)) void note_tensor(const DLTensor& tensor, const char* function, int index);
/// The name in the source of the tensor whose first element is at `data`.
__attribute__((weak)) void note_name(const void* data, const char* name);
/// The call was passed a pointer or an opaque object: its kernels may access memory that is not noted.
__attribute__((weak)) void note_unknown();
/// The state of the notes, and its restoration.
__attribute__((weak)) std::size_t enter_call();
__attribute__((weak)) void leave_call(std::size_t state);

/// The scope of one call of an export.
class CallScope {
 public:
  CallScope() : state_(enter_call != nullptr ? enter_call() : 0) {}
  ~CallScope() {
    if (leave_call != nullptr) leave_call(state_);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  std::size_t state_;
};

}  // namespace kjit_sim

#pragma GCC visibility pop
