// The text before the host half of a CUDA unit (kjit/engine/compile/halves.py): what the functions of kernels call.
//
// It is put before a unit that was preprocessed, so nothing here is visible to an `#if` of the unit.

extern "C" void kjit_rtc_launch(const void* row, void** arguments);

namespace kjit_rtc {

/// A kernel, by the types of its parameters: the row of the table that its symbol stands for
/// (csrc/support/kernels.cpp), and the sizes and alignments, which the build compares with those in the cubin.
template <typename... Parameters>
struct Kernel {
  const void* row = nullptr;
  unsigned count = sizeof...(Parameters);
  unsigned sizes[2 * sizeof...(Parameters) + 1] = {unsigned(sizeof(Parameters))..., unsigned(alignof(Parameters))...};
};

template <typename Row, typename... Arguments>
void launch(const Row* kernel, Arguments&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(arguments)))..., nullptr};
  // The row is known when the library is loaded, and is not a constant for the compiler.
  ::kjit_rtc_launch(const_cast<const void* const volatile&>(kernel->row), pointers);
}

}  // namespace kjit_rtc
