// Objects of Python that tvm-ffi knows nothing of and passes on as they are: what are they, and which are values?
//
//   bool flag;
//   if (python::to_bool(value, flag)) ...          // a numpy.bool
//   if (!python::type_name(value, message)) ...    // "torch.device", for a message
//
// Python's functions are found in the process that calls; where there is none, no object is known. `Python.h` is not
// needed.

#pragma once

#include <kjit/utils.h>
#include <tvm/ffi/c_api.h>

namespace kjit::ffi_details::python {

/// Appends what the type of an object is called; false where that is not known.
bool type_name(const TVMFFIAny& value, host::Message& message);
/// The truth value that numpy has a type of its own for.
bool to_bool(const TVMFFIAny& value, bool& result);
/// A `torch.device`; without an index, the current one of that type.
bool to_device(const TVMFFIAny& value, DLDevice& result);

}  // namespace kjit::ffi_details::python

#ifndef KJIT_PRECOMPILED
#include <kjit/detail/ffi_python.cpp>
#endif
