// All functions that the headers only declare under -DKJIT_PRECOMPILED, in one unit; linked into every module that kjit
// builds.

#include <kjit/detail/ffi_python.cpp>
#include <kjit/ffi.cpp>
#include <kjit/impl/errors.cpp>
#include <kjit/once.cpp>
#include <kjit/streaming.cpp>
#include <kjit/tensor.cpp>
#include <kjit/utils.cpp>

#include <kjit/detail/pattern_call.cpp>

/// Stores the findings of `teach` in kjit/runtime/exported.py.
KJIT_EXPORT(_kjit_know_lazy_bits, [](std::uint64_t object_deleter, std::uint64_t dlpack_deleter, std::uint64_t offset,
                                     std::uint64_t conjugate, std::uint64_t opposite) {
  kjit::ffi_details::lazy_bits = {object_deleter, dlpack_deleter, offset, conjugate, opposite};
})

// -- the call slot of kjit's subclass of tvm-ffi's function type

extern "C" {
#define KJIT_PYTHON(Name) __asm__(#Name) __attribute__((weak))
void kjit_py_hold(void* object) KJIT_PYTHON(Py_IncRef);
void* kjit_py_slot(void* type, int slot) KJIT_PYTHON(PyType_GetSlot);
void* kjit_py_derived_type(void* spec, void* base) KJIT_PYTHON(PyType_FromSpecWithBases);
void* kjit_py_allocate(void* type, std::ptrdiff_t count) KJIT_PYTHON(PyType_GenericAlloc);
void kjit_py_free(void* object) KJIT_PYTHON(PyObject_GC_Del);
void* kjit_py_call_with(void* function, ...) KJIT_PYTHON(PyObject_CallFunctionObjArgs);
void kjit_py_take_error(void** type, void** error, void** traceback) KJIT_PYTHON(PyErr_Fetch);
void kjit_py_complete_error(void** type, void** error, void** traceback) KJIT_PYTHON(PyErr_NormalizeException);
void kjit_py_put_error(void* type, void* error, void* traceback) KJIT_PYTHON(PyErr_Restore);
#undef KJIT_PYTHON
}

namespace {

using Call = void*(void* function, void* arguments, void* named);

// Set by `_kjit_function_type`.
Call* call_of_base = nullptr;
void* on_error = nullptr;

void* call_and_explain(void* function, void* arguments, void* named) {
  void* result = call_of_base(function, arguments, named);
  if (result != nullptr) [[likely]] {
    return result;
  }
  void* type = nullptr;
  void* error = nullptr;
  void* traceback = nullptr;
  kjit_py_take_error(&type, &error, &traceback);
  if (type == nullptr) return nullptr;
  kjit_py_complete_error(&type, &error, &traceback);
  void* answer = kjit_py_call_with(on_error, function, arguments, error, nullptr);
  if (answer != nullptr) {
    kjit_py_release(answer);
    kjit_py_put_error(type, error, traceback);
  } else {  // it has raised another exception
    for (void* each : {type, error, traceback}) {
      if (each != nullptr) kjit_py_release(each);
    }
  }
  return nullptr;
}

// PyType_Slot, PyType_Spec and typeslots.h, of Python's stable ABI.
struct TypeSlot {
  int slot;
  void* function;
};
struct TypeSpec {
  const char* name;
  int size;
  int item_size;
  unsigned flags;
  TypeSlot* slots;
};
enum : int { kAllocate = 47, kCall = 50, kFree = 74 };
constexpr unsigned kDefaultFlags = 1U << 18;

}  // namespace

/// For kjit/runtime/exported.py: a new type derived from tvm-ffi's function type. Calls are those of `base`; if one
/// fails, `explain(function, arguments, error)` is called, and an exception that it raises replaces the error.
/// Arguments and result are addresses; 0 if Python's functions are not in the process. This module has to stay loaded.
KJIT_EXPORT(_kjit_function_type, [](std::uint64_t base, std::uint64_t explain) -> std::uint64_t {
  if (kjit_py_take_lock == nullptr || kjit_py_slot == nullptr || kjit_py_derived_type == nullptr) return 0;
  const kjit::ffi_details::python::Lock lock;
  void* base_type = reinterpret_cast<void*>(base);
  call_of_base = reinterpret_cast<Call*>(kjit_py_slot(base_type, kCall));
  on_error = reinterpret_cast<void*>(explain);
  if (call_of_base == nullptr) return 0;
  kjit_py_hold(base_type);
  kjit_py_hold(on_error);
  // Allocation as for a class statement: the free list of `base` is for objects of its own type.
  static TypeSlot slots[] = {{kCall, reinterpret_cast<void*>(call_and_explain)},
                             {kAllocate, reinterpret_cast<void*>(kjit_py_allocate)},
                             {kFree, reinterpret_cast<void*>(kjit_py_free)},
                             {0, nullptr}};
  static TypeSpec spec = {"kjit.runtime.exported.Function", 0, 0, kDefaultFlags, slots};
  return reinterpret_cast<std::uint64_t>(kjit_py_derived_type(&spec, base_type));
})

/// Accepts any argument: a call of it shows whether tvm-ffi can pass a value.
extern "C" __attribute__((visibility("default"))) int __tvm_ffi__kjit_take(void*, const TVMFFIAny*, std::int32_t,
                                                                           TVMFFIAny*) {
  return 0;
}
