// Everything that the headers only declare under -DKJIT_PRECOMPILED, in one unit; linked into every module that kjit
// builds.

#include <kjit/detail/ffi_python.cpp>
#include <kjit/ffi.cpp>
#include <kjit/impl/errors.cpp>
#include <kjit/once.cpp>
#include <kjit/streaming.cpp>
#include <kjit/tensor.cpp>
#include <kjit/utils.cpp>

/// What kjit/runtime/lazy_bits.py found out.
KJIT_EXPORT(_kjit_know_lazy_bits, [](std::uint64_t object_deleter, std::uint64_t dlpack_deleter, std::uint64_t offset,
                                     std::uint64_t conjugate, std::uint64_t opposite) {
  kjit::ffi_details::lazy_bits = {object_deleter, dlpack_deleter, offset, conjugate, opposite};
})
