// Fast paths of kjit's generated functions (kjit/runtime/native.py) for plain tensors, without any Python: an op's
// checks whether PyTorch has to see the call and calls the function of its kernel; a declared module's looks the module
// up. Everything else is left to the generated function. A Python module, compiled against the headers of the torch and
// the Python that use it, and used with no other.
#include <Python.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace {

// The properties of a parameter, as native.py encodes them.
enum : unsigned char { kPositional = 1, kTensor = 2, kOptional = 4, kWritten = 8, kTyped = 16, kList = 32 };
constexpr Py_ssize_t kMostParameters = 64;

// A strong reference.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

// -- tensors

// Set by `learn`. A tensor is a Python object that holds a pointer to its TensorImpl, at an offset that is private to
// torch: the header that defines it takes twelve seconds to compile, and searching for it is exact.
PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;
Py_ssize_t impl_offset = 0;
PyObject* forward_mode = nullptr;  // the variables of torch.autograd.forward_ad
PyObject* level_name = nullptr;

bool is_tensor(PyObject* value) {
  return Py_TYPE(value) == tensor_type || Py_TYPE(value) == parameter_type;
}

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

bool is_in_forward_mode() {
  PyObject* level = PyDict_GetItemWithError(forward_mode, level_name);
  if (level == nullptr || !PyLong_CheckExact(level)) {
    return true;
  }
  int overflow = 0;
  return PyLong_AsLongAndOverflow(level, &overflow) >= 0 || overflow != 0;
}

// Dispatch keys of tensors whose elements are not simply stored in memory.
constexpr c10::DispatchKeySet kUnusual({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                        c10::DispatchKey::ZeroTensor, c10::DispatchKey::NestedTensor,
                                        c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                        c10::DispatchKey::Quantized, c10::DispatchKey::MkldnnCPU,
                                        c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});

// Whether a kernel can use the tensor, and nothing else in PyTorch has to see it.
bool is_plain(PyObject* value, bool records_gradients) {
  if (!is_tensor(value)) {
    return false;
  }
  const c10::TensorImpl* impl = impl_of(value);
  if (impl == nullptr || impl->key_set().has_any(kUnusual) || impl->is_meta()) {
    return false;
  }
  if (impl->autograd_meta() == nullptr) {
    return true;  // neither a gradient nor a tangent
  }
  return !(records_gradients && impl->requires_grad()) && !is_in_forward_mode();
}

bool is_thread_watched() {
  const c10::DispatchKeySet watching({c10::DispatchKey::Tracer, c10::DispatchKey::FuncTorchDynamicLayerFrontMode});
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(watching) ||
         c10::impl::TorchDispatchModeTLS::stack_len() != 0;
}

// -- calls

// The arguments of a call in parameter order; null if missing.
using Values = std::array<PyObject*, kMostParameters>;

// False if a call does not match, or names a parameter with a string that is not the interned one.
bool bind(Values& values, PyObject* names, const char* kinds, PyObject* const* given, Py_ssize_t positional,
          PyObject* keywords) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  if (positional > count || (positional > 0 && !(kinds[positional - 1] & kPositional))) {
    return false;
  }
  std::copy_n(given, positional, values.begin());
  std::fill_n(values.begin() + positional, count - positional, nullptr);
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < named; ++k) {
    Py_ssize_t i = positional;
    while (i < count && PyTuple_GET_ITEM(names, i) != PyTuple_GET_ITEM(keywords, k)) {
      ++i;
    }
    if (i == count) {
      return false;
    }
    values[i] = given[positional + k];
  }
  return true;
}

// Entries of a generated function's `__dict__`, made by native.py: (something, the parameters' names, their kinds).
PyObject* road_name = nullptr;   // of an op, with the function of its kernel
PyObject* table_name = nullptr;  // of a declared module, with its modules by device index, then by values

PyObject* names_of(PyObject* kept) {
  return PyTuple_GET_ITEM(kept, 1);
}

const char* kinds_of(PyObject* kept) {
  return PyBytes_AS_STRING(PyTuple_GET_ITEM(kept, 2));
}

bool is_kept(PyObject* kept) {
  return PyTuple_CheckExact(kept) && PyTuple_GET_SIZE(kept) == 3 && PyTuple_CheckExact(names_of(kept)) &&
         PyTuple_GET_SIZE(names_of(kept)) <= kMostParameters && PyBytes_CheckExact(PyTuple_GET_ITEM(kept, 2)) &&
         PyBytes_GET_SIZE(PyTuple_GET_ITEM(kept, 2)) == PyTuple_GET_SIZE(names_of(kept));
}

PyObject* kept_of(PyObject* function, PyObject* name) {
  PyObject* all = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  PyObject* kept = all == nullptr ? nullptr : PyDict_GetItemWithError(all, name);
  return kept != nullptr && is_kept(kept) ? Py_NewRef(kept) : nullptr;
}

bool is_given(PyObject* value) {
  return value != nullptr && value != Py_None;
}

// Calls `visit` for each tensor of a list or tuple until one returns false; false for other objects.
template <typename Visit>
bool all_of(PyObject* list, const Visit& visit) {
  if (list == nullptr || !(PyList_CheckExact(list) || PyTuple_CheckExact(list))) {
    return false;
  }
  PyObject** tensors = PySequence_Fast_ITEMS(list);
  return std::all_of(tensors, tensors + PySequence_Fast_GET_SIZE(list), visit);
}

bool are_plain(const Values& values, const char* kinds, Py_ssize_t count) {
  if (is_thread_watched()) {
    return false;
  }
  const bool records_gradients = c10::GradMode::is_enabled();
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (kinds[i] & kTensor) {
      if (is_given(values[i]) ? !is_plain(values[i], records_gradients) : !(kinds[i] & kOptional)) {
        return false;
      }
    } else if (kinds[i] & kList) {
      if (!all_of(values[i], [=](PyObject* tensor) { return is_plain(tensor, records_gradients); })) {
        return false;
      }
    }
  }
  return true;
}

// Increments the version counters of tensors that were written, as PyTorch's own ops do.
void count_changes(const Values& values, const char* kinds, Py_ssize_t count) {
  const auto count_change = [](PyObject* tensor) {
    c10::TensorImpl* impl = is_tensor(tensor) ? impl_of(tensor) : nullptr;
    if (impl != nullptr && !impl->is_inference()) {  // inference tensors have no counter
      impl->bump_version();
    }
    return true;
  };
  for (Py_ssize_t i = 0; i < count; ++i) {
    if ((kinds[i] & kWritten) && is_given(values[i])) {
      (kinds[i] & kList) ? all_of(values[i], count_change) : count_change(values[i]);
    }
  }
}

// Null without an error: PyTorch may have to see this call.
PyObject* call_kernel(PyObject* road, PyObject* const* given, size_t flagged_count, PyObject* keywords) {
  PyObject* names = names_of(road);
  const char* kinds = kinds_of(road);
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  Values values;
  if (!bind(values, names, kinds, given, PyVectorcall_NARGS(flagged_count), keywords) ||
      !are_plain(values, kinds, count)) {
    return nullptr;
  }
  PyObject* result = PyObject_Vectorcall(PyTuple_GET_ITEM(road, 0), given, flagged_count, keywords);
  if (result != nullptr) {
    count_changes(values, kinds, count);
  }
  return result;
}

// The loaded module for these arguments, by the same keys as in `_generate_call` (kjit/runtime/declared.py); null
// without an error if there is none.
PyObject* look_up(PyObject* table, PyObject* const* given, Py_ssize_t positional, PyObject* keywords) {
  PyObject* names = names_of(table);
  const char* kinds = kinds_of(table);
  const Py_ssize_t count = PyTuple_GET_SIZE(names) - 1;  // the last one is the device
  Values values;
  if (count < 0 || !bind(values, names, kinds, given, positional, keywords) ||
      std::find(values.begin(), values.begin() + count + 1, nullptr) != values.begin() + count + 1 ||
      !is_tensor(values[count])) {
    return nullptr;
  }
  const Owned index(PyLong_FromLong(impl_of(values[count])->device().index()));
  const Owned modules(index ? Py_XNewRef(PyDict_GetItemWithError(PyTuple_GET_ITEM(table, 0), index.get())) : nullptr);
  if (!modules) {
    return nullptr;
  }
  if (count == 1 && !(kinds[0] & kTyped)) {
    return Py_XNewRef(PyDict_GetItemWithError(modules.get(), values[0]));
  }
  const auto is_typed = [](char kind) { return (kind & kTyped) != 0; };
  const Owned key(PyTuple_New(count + std::count_if(kinds, kinds + count, is_typed)));
  if (!key) {
    return nullptr;
  }
  Py_ssize_t filled = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(key.get(), filled++, Py_NewRef(values[i]));
    if (is_typed(kinds[i])) {
      PyTuple_SET_ITEM(key.get(), filled++, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(values[i]))));
    }
  }
  return Py_XNewRef(PyDict_GetItemWithError(modules.get(), key.get()));
}

PyObject* get_dynamo_callback = nullptr;  // or None

// Whether Dynamo has a callback for the functions of this thread.
//
// A function returns a new reference, but torch 2.6 and 2.7 return a borrowed one. So it is called twice: only new
// references increase the reference count. No Python code and no other thread runs between the calls. (Immortal
// objects, such as None since Python 3.12, are not counted, and need not be released.)
bool has_dynamo_callback() {
  PyObject* callback = PyObject_CallNoArgs(get_dynamo_callback);
  const Py_ssize_t count = callback == nullptr ? 0 : Py_REFCNT(callback);
  PyObject* again = callback == nullptr ? nullptr : PyObject_CallNoArgs(get_dynamo_callback);
  PyErr_Clear();
  const bool has_one = callback != Py_None;
  if (again != nullptr && again == callback && Py_REFCNT(callback) > count) {
    Py_DECREF(again);
    Py_DECREF(callback);
  }
  return has_one;
}

// Whether Dynamo intercepts the functions of this thread: then it has replaced the interpreter's frame evaluation. It
// stays installed after an error, so that the thread's callback is checked too.
bool is_interpreter_watched() {
  if (_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == _PyEval_EvalFrameDefault) {
    return false;
  }
  return get_dynamo_callback == Py_None || has_dynamo_callback();
}

// -- the vectorcall of a generated function

vectorcallfunc run_in_python = nullptr;  // Python's own vectorcall, set by `learn`

PyObject* call_op(PyObject* function, PyObject* const* given, size_t flagged_count, PyObject* keywords) {
  const Owned road(kept_of(function, road_name));
  if (road && !is_interpreter_watched()) {
    PyObject* result = call_kernel(road.get(), given, flagged_count, keywords);
    if (result != nullptr || PyErr_Occurred()) {
      return result;
    }
  }
  return run_in_python(function, given, flagged_count, keywords);
}

PyObject* call_declared(PyObject* function, PyObject* const* given, size_t flagged_count, PyObject* keywords) {
  const Owned table(kept_of(function, table_name));
  if (table) {
    PyObject* module = look_up(table.get(), given, PyVectorcall_NARGS(flagged_count), keywords);
    if (module != nullptr) {
      return module;
    }
    PyErr_Clear();  // an unhashable value: Python reports it
  }
  return run_in_python(function, given, flagged_count, keywords);
}

// -- the functions that kjit/runtime calls

PyObject* learn(PyObject*, PyObject* arguments) {
  PyObject* tensor_class = nullptr;
  PyObject* parameter_class = nullptr;
  PyObject* tensor = nullptr;
  unsigned long long impl = 0;
  PyObject* forward_mode_variables = nullptr;
  PyObject* callback_getter = nullptr;
  PyObject* function = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!O!OKO!OO!", &PyType_Type, &tensor_class, &PyType_Type, &parameter_class, &tensor,
                        &impl, &PyDict_Type, &forward_mode_variables, &callback_getter, &PyFunction_Type, &function)) {
    return nullptr;
  }
  if (tensor_type == nullptr && learn_offset(tensor, static_cast<uintptr_t>(impl))) {
    tensor_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor_class));
    parameter_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(parameter_class));
    forward_mode = Py_NewRef(forward_mode_variables);
    get_dynamo_callback = Py_NewRef(callback_getter);
    run_in_python = reinterpret_cast<PyFunctionObject*>(function)->vectorcall;
  }
  return PyBool_FromLong(tensor_type != nullptr);
}

void set_vectorcall(PyObject* function, vectorcallfunc call) {
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall(reinterpret_cast<PyFunctionObject*>(function), call);
#else
  reinterpret_cast<PyFunctionObject*>(function)->vectorcall = call;
#endif
}

PyObject* take_over(PyObject*, PyObject* function) {
  if (!PyFunction_Check(function)) {
    return PyErr_Format(PyExc_TypeError, "take_over() needs a function");
  }
  const Owned road(kept_of(function, road_name));
  const Owned table(kept_of(function, table_name));
  const bool can_be = tensor_type != nullptr && (road || table);
  if (can_be) {
    set_vectorcall(function, road ? call_op : call_declared);
  }
  return PyBool_FromLong(can_be);
}

PyObject* give_back(PyObject*, PyObject* function) {
  if (!PyFunction_Check(function)) {
    return PyErr_Format(PyExc_TypeError, "give_back() needs a function");
  }
  if (run_in_python != nullptr) {
    set_vectorcall(function, run_in_python);
  }
  Py_RETURN_NONE;
}

PyObject* call_bound_road(PyObject* road, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  PyObject* result = call_kernel(road, given, static_cast<size_t>(count), keywords);
  return result != nullptr || PyErr_Occurred() ? result : Py_NewRef(Py_NotImplemented);
}

template <typename Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef bound_road = {"direct", as_method(call_bound_road), METH_FASTCALL | METH_KEYWORDS,
                          "Calls the kernel's function; NotImplemented where PyTorch may have to see the call."};

PyObject* direct(PyObject*, PyObject* road) {
  if (tensor_type == nullptr || !is_kept(road)) {
    return PyErr_Format(PyExc_TypeError, "direct() needs a road, and to have learnt where tensors are");
  }
  return PyCFunction_NewEx(&bound_road, road, nullptr);
}

PyMethodDef methods[] = {
    {"learn", learn, METH_VARARGS,
     "learn(Tensor, Parameter, tensor, tensor._cdata, forward_ad.__dict__, function): whether a tensor's TensorImpl "
     "can "
     "be found from now on; the function is any of Python's."},
    {"take_over", take_over, METH_O, "take_over(function): have the interpreter run a generated function in C++."},
    {"give_back", give_back, METH_O, "give_back(function): have the interpreter run it in Python again."},
    {"direct", direct, METH_O, "direct(road): what the function of an op calls where Python does not ask it."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kjit_eager_calls", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kjit_eager_calls() {
  level_name = PyUnicode_InternFromString("_current_level");
  road_name = PyUnicode_InternFromString("_kjit_road");
  table_name = PyUnicode_InternFromString("_kjit_table");
  return level_name && road_name && table_name ? PyModule_Create(&module) : nullptr;
}
