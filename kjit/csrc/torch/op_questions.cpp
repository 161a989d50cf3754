// What an eager call of an op asks of its tensors (kjit/runtime/op_call.py), in one call instead of ten. A Python
// module; it is compiled against the headers of the torch that asks, and used with no other.
#include <Python.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstdint>

namespace {

// What `learn` is told. A tensor is an object of Python that holds a pointer to its TensorImpl, at an offset which is
// torch's own business: the header that says it takes twelve seconds to compile, and looking is certain.
PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;
Py_ssize_t impl_offset = 0;

c10::TensorImpl* impl_of(PyObject* tensor) {
  return *reinterpret_cast<c10::TensorImpl**>(reinterpret_cast<char*>(tensor) + impl_offset);
}

bool learn_offset(PyObject* tensor, uintptr_t impl) {
  const Py_ssize_t end = Py_TYPE(tensor)->tp_basicsize - static_cast<Py_ssize_t>(sizeof(impl));
  for (Py_ssize_t offset = sizeof(PyObject); offset <= end; offset += sizeof(impl)) {
    if (*reinterpret_cast<uintptr_t*>(reinterpret_cast<char*>(tensor) + offset) == impl) {
      impl_offset = offset;
      return true;
    }
  }
  return false;
}

PyObject* learn(PyObject*, PyObject* arguments) {
  PyObject* tensor_class = nullptr;
  PyObject* parameter_class = nullptr;
  PyObject* tensor = nullptr;
  unsigned long long impl = 0;
  if (!PyArg_ParseTuple(arguments, "O!O!OK", &PyType_Type, &tensor_class, &PyType_Type, &parameter_class, &tensor,
                        &impl)) {
    return nullptr;
  }
  if (tensor_type == nullptr && learn_offset(tensor, static_cast<uintptr_t>(impl))) {
    tensor_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor_class));
    parameter_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(parameter_class));
  }
  return PyBool_FromLong(tensor_type != nullptr);
}

bool may_be_passed_by() {
  const bool is_traced = c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::Tracer);
  return !is_traced && c10::impl::TorchDispatchModeTLS::stack_len() == 0;
}

bool is_plain(PyObject* value, bool records_gradients) {
  if (Py_TYPE(value) != tensor_type && Py_TYPE(value) != parameter_type) {
    return false;
  }
  const c10::TensorImpl* impl = impl_of(value);
  if (impl == nullptr || impl->key_set().has(c10::DispatchKey::Negative)) {
    return false;
  }
  return !(records_gradients && impl->requires_grad());
}

PyObject* are_plain(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  const Py_ssize_t required = count == 0 ? -1 : PyLong_AsSsize_t(arguments[0]);
  if (required < 0) {
    return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_TypeError, "are_plain() needs a number, and tensors");
  }
  bool answer = may_be_passed_by();
  const bool records_gradients = answer && c10::GradMode::is_enabled();
  for (Py_ssize_t i = 1; answer && i < count; ++i) {
    const bool is_missing = i > required && arguments[i] == Py_None;
    answer = is_missing || is_plain(arguments[i], records_gradients);
  }
  return PyBool_FromLong(answer);
}

// For tensors that were found plain.
PyObject* count_changes(PyObject*, PyObject* const* values, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (values[i] == Py_None) {
      continue;
    }
    c10::TensorImpl* impl = impl_of(values[i]);
    if (!impl->is_inference()) {  // which has no such count
      impl->bump_version();
    }
  }
  Py_RETURN_NONE;
}

template <typename Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"learn", learn, METH_VARARGS,
     "learn(Tensor, Parameter, tensor, tensor._cdata): whether a tensor's TensorImpl can be found from now on."},
    {"are_plain", as_method(are_plain), METH_FASTCALL,
     "are_plain(required, *values): whether no part of PyTorch has to see these tensors; those past `required` may be "
     "None."},
    {"count_changes", as_method(count_changes), METH_FASTCALL,
     "count_changes(*values): adds one to the version of each tensor; None is left out."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kjit_op_questions", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kjit_op_questions() {
  return PyModule_Create(&module);
}
