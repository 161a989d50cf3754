// Python objects that tvm-ffi does not know and passes through: their types, and conversions of some.
//
//   bool flag;
//   if (python::to_bool(value, flag)) ...          // a numpy.bool
//   if (!python::type_name(value, message)) ...    // "torch.device", for a message
//
// Python's functions are looked up in the running process; without them, no object is recognised. `Python.h` is not
// needed.

#pragma once

#include <kjit/utils.h>
#include <tvm/ffi/c_api.h>

namespace kjit::ffi_details::python {

/// Appends the name of an object's type; false if it is unknown.
bool type_name(const TVMFFIAny& value, host::Message& message);
/// The value of a numpy.bool.
bool to_bool(const TVMFFIAny& value, bool& result);
/// The value of a `torch.device`; without an index, the current device of that type.
bool to_device(const TVMFFIAny& value, DLDevice& result);

}  // namespace kjit::ffi_details::python

#ifndef KJIT_PRECOMPILED
#include <kjit/detail/ffi_python.cpp>
#endif
