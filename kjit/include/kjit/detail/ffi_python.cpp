// The functions of kjit/detail/ffi_python.h (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/detail/ffi_python.h>

// Declarations of Python's functions under other names: a unit that includes `Python.h` declares them with its types.
extern "C" {
#define KJIT_PYTHON(Name) __asm__(#Name) __attribute__((weak))
int kjit_py_take_lock() KJIT_PYTHON(PyGILState_Ensure);
void kjit_py_give_lock(int state) KJIT_PYTHON(PyGILState_Release);
void* kjit_py_attribute(void* object, const char* name) KJIT_PYTHON(PyObject_GetAttrString);
const char* kjit_py_text(void* object, std::ptrdiff_t* size) KJIT_PYTHON(PyUnicode_AsUTF8AndSize);
int kjit_py_is_true(void* object) KJIT_PYTHON(PyObject_IsTrue);
long kjit_py_integer(void* object) KJIT_PYTHON(PyLong_AsLong);
void* kjit_py_module(const char* name) KJIT_PYTHON(PyImport_ImportModule);
void* kjit_py_call(void* object) KJIT_PYTHON(PyObject_CallNoArgs);
void* kjit_py_error() KJIT_PYTHON(PyErr_Occurred);
void kjit_py_clear_error() KJIT_PYTHON(PyErr_Clear);
void kjit_py_release(void* object) KJIT_PYTHON(Py_DecRef);
#undef KJIT_PYTHON
}

namespace kjit::ffi_details::python {

/// Holds the GIL, which calls of tvm-ffi release.
class Lock {
 public:
  Lock() : state_(kjit_py_take_lock()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    kjit_py_clear_error();
    kjit_py_give_lock(state_);
  }

 private:
  int state_;
};

/// A reference to an object, or none.
class Object {
 public:
  explicit Object(void* owned) : object_(owned) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (object_ != nullptr) kjit_py_release(object_);
  }

  void* get() const { return object_; }
  Object attribute(const char* name) const {
    return Object(object_ == nullptr ? nullptr : kjit_py_attribute(object_, name));
  }
  /// Valid as long as the object; empty if it is not a string.
  StringView text() const {
    std::ptrdiff_t size = 0;
    const char* data = object_ == nullptr ? nullptr : kjit_py_text(object_, &size);
    if (data == nullptr) kjit_py_clear_error();
    return data == nullptr ? StringView() : StringView(data, static_cast<std::size_t>(size));
  }

 private:
  void* object_;
};

/// The Python object that tvm-ffi passes through; null for other values, or if Python is not in the process.
KJIT_IMPL void* object_of(const TVMFFIAny& value) {
  if (value.type_index != kTVMFFIOpaquePyObject || kjit_py_take_lock == nullptr) return nullptr;
  return reinterpret_cast<const TVMFFIOpaqueObjectCell*>(value.v_obj + 1)->handle;
}

/// Whether an object's type has the given module and one of two names.
KJIT_IMPL bool is_of_type(void* object, StringView module, StringView name, StringView other) {
  const Object type(kjit_py_attribute(object, "__class__"));
  const Object its_module = type.attribute("__module__"), its_name = type.attribute("__name__");
  return its_module.text() == module && (its_name.text() == name || its_name.text() == other);
}

KJIT_IMPL bool type_name(const TVMFFIAny& value, host::Message& message) {
  void* object = object_of(value);
  if (object == nullptr) return false;
  const Lock lock;
  const Object type(kjit_py_attribute(object, "__class__"));
  const Object module = type.attribute("__module__"), name = type.attribute("__name__");
  if (name.text().empty()) return false;
  if (!module.text().empty() && !(module.text() == "builtins")) message << module.text() << ".";
  message << name.text();
  return true;
}

KJIT_IMPL bool to_bool(const TVMFFIAny& value, bool& result) {
  void* object = object_of(value);
  if (object == nullptr) return false;
  const Lock lock;
  if (!is_of_type(object, "numpy", "bool", "bool_")) return false;
  result = kjit_py_is_true(object) == 1;
  return true;
}

KJIT_IMPL bool to_device(const TVMFFIAny& value, DLDevice& result) {
  void* object = object_of(value);
  if (object == nullptr) return false;
  const Lock lock;
  if (!is_of_type(object, "torch", "device", "device")) return false;
  const Object type(kjit_py_attribute(object, "type")), index(kjit_py_attribute(object, "index"));
  const bool is_cuda = type.text() == "cuda";
  if (!is_cuda && !(type.text() == "cpu")) return false;
  long id = index.get() == nullptr ? -1 : kjit_py_integer(index.get());
  if (kjit_py_error() != nullptr) {  // None: no index
    kjit_py_clear_error();
    id = 0;
    if (is_cuda) {
      const Object current = Object(kjit_py_module("torch.cuda")).attribute("current_device");
      const Object found(current.get() == nullptr ? nullptr : kjit_py_call(current.get()));
      if (found.get() == nullptr) return false;
      id = kjit_py_integer(found.get());
    }
  }
  result = DLDevice{is_cuda ? kDLCUDA : kDLCPU, is_cuda ? static_cast<std::int32_t>(id) : 0};
  return true;
}

}  // namespace kjit::ffi_details::python
