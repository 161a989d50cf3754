// What a checker is told about memory while an export runs: which tensors it was given, and what they are called.
//
//   kjit_sim::CallScope call;                             // what is noted from here on is forgotten at its end
//   if (kjit_sim::note_tensor) kjit_sim::note_tensor(*tensor, "scale", 0);
//
// The functions are there only in a module that checks; weak, they are null elsewhere.

#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// A kernel may use the memory of this tensor: argument `index` (from 0) of an export, or a negative number.
__attribute__((weak)) void note_tensor(const DLTensor& tensor, const char* function, int index);
/// What the source calls the tensor whose first element is at `data`.
__attribute__((weak)) void note_name(const void* data, const char* name);
/// The call was given a pointer, or an object with whatever inside: its kernels may use memory that nobody tells of.
__attribute__((weak)) void note_unknown();
/// The state of the notes, and back to it.
__attribute__((weak)) std::size_t enter_call();
__attribute__((weak)) void leave_call(std::size_t state);

/// One call of an export.
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
