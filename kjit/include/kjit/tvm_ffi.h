// All of tvm-ffi's C++ API (Array, Tuple, Map, Function, String, objects, its own TensorView and Optional). It
// multiplies the compile time of a unit: include it only if its types are used.
//
//   #include <kjit/tvm_ffi.h>
//   int64_t total(tvm::ffi::Array<int64_t> values) { ... }
//   KJIT_EXPORT(total, total)      // the same macro; tvm-ffi converts its own types

#pragma once

#include <kjit/ffi.h>
#include <tvm/ffi/tvm_ffi.h>
