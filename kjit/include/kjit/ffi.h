// Arguments and exports over tvm-ffi's stable C ABI: makes a C++ function callable from Python.
//
//   void scale(TensorView x, double alpha, Optional<TensorView> bias, TensorView out) { ... }
//   KJIT_EXPORT(scale, scale)                          // module.scale(x, 2.0, None, out)
//   KJIT_EXPORT(scale_f16, (Scale<fp16_t, 4>::run))    // a symbol with commas goes in parentheses
//
// An export takes TensorView, TensorListView, Optional<T>, integers and floating-point numbers (range-checked), bool,
// DLDataType, DLDevice, StringView, host::ffi::Tensor and raw pointers (such as a stream handle). It returns void,
// bool, an integer, a floating-point number, or a Tensor, which `host::ffi::empty` allocates with torch's allocator. A
// wrong argument is a TypeError that names the function, the position and the value passed; a tensor without data is an
// error. No exception crosses the C ABI.
// Only tvm-ffi's C header is included: a unit compiles in a fraction of the time that tvm-ffi's C++ headers take. A
// unit that includes those too (kjit/tvm_ffi.h) may use all of their types in the same exports; tvm-ffi converts them.

#pragma once

#include <kjit/detail/ffi_python.h>
#include <kjit/utils.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#if KJIT_SIM
#include <kjit_sim/memory.h>
#endif

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <type_traits>
#include <utility>

// Forward declarations; complete in a unit that includes tvm-ffi's C++ headers.
namespace tvm::ffi {
class Any;
class AnyView;
class Error;
}  // namespace tvm::ffi

// The type that CUDA's stream handles point to.
struct CUstream_st;

namespace kjit {

namespace host {

namespace details {

/// A contiguous range of `int64_t`: tvm-ffi's `ShapeView`, `std::vector<int64_t>` and so on.
template <typename T>
concept Sizes = requires(const T& sizes) {
  { sizes.data() } -> std::convertible_to<const std::int64_t*>;
  { sizes.size() } -> std::convertible_to<std::size_t>;
};

/// tvm-ffi's own `Tensor`, in a unit that includes its C++ headers.
template <typename T>
concept TvmTensor = requires { requires T::ContainerType::_type_index == kTVMFFITensor; };

/// tvm-ffi's own `TensorView`.
template <typename T>
concept TvmTensorView = std::is_constructible_v<T, const DLTensor*> && requires(const T& view) {
  { view.byte_offset() } -> std::same_as<std::uint64_t>;
  { view.strides() } -> Sizes;
};

/// DLPack's type code of a C++ arithmetic type; -1 for all other types.
template <typename T>
inline constexpr int kCodeOfNumber = std::is_same_v<T, bool>       ? kDLBool
                                     : std::is_floating_point_v<T> ? kDLFloat
                                     : !std::is_integral_v<T>      ? -1
                                     : std::is_signed_v<T>         ? kDLInt
                                                                   : kDLUInt;

}  // namespace details

/// The sizes of a tensor, one for each dimension, viewed in the tensor's memory. Also made from a list,
/// `ShapeView{rows, columns}`, which is valid until the end of the full expression.
class ShapeView {
 public:
  constexpr ShapeView() noexcept = default;
  constexpr ShapeView(const std::int64_t* data, std::size_t size) noexcept : data_(data), size_(size) {}
  constexpr ShapeView(const std::initializer_list<std::int64_t>& sizes) noexcept
      : ShapeView(sizes.begin(), sizes.size()) {}
  template <details::Sizes T>
  constexpr ShapeView(const T& sizes) noexcept : data_(sizes.data()), size_(sizes.size()) {}

  constexpr const std::int64_t* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr const std::int64_t* begin() const noexcept { return data_; }
  constexpr const std::int64_t* end() const noexcept { return data_ + size_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr std::int64_t front() const noexcept { return data_[0]; }
  constexpr std::int64_t back() const noexcept { return data_[size_ - 1]; }
  /// The product of the sizes: the number of elements, 1 without dimensions.
  std::int64_t Product() const noexcept;

 private:
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The strides of a tensor, in elements; computed from the sizes if the tensor has none (it is contiguous then).
class StrideView {
 public:
  constexpr StrideView(const std::int64_t* strides, ShapeView sizes) noexcept : strides_(strides), sizes_(sizes) {}
  constexpr std::size_t size() const noexcept { return sizes_.size(); }
  std::int64_t operator[](std::size_t i) const noexcept;

 private:
  const std::int64_t* strides_;
  ShapeView sizes_;
};

/// A non-owning view of the caller's tensor: shape, strides, dtype, device and data. Copying it copies no data.
///
/// A negative dimension counts from the end (-1 is the last); one that does not exist is an error. Sizes and strides
/// are in elements.
class TensorView {
 public:
  TensorView(const DLTensor* tensor) noexcept : tensor_(*tensor) {}
  template <typename T>
    requires details::TvmTensorView<T> || details::TvmTensor<T>
  TensorView(const T& tensor)
      : tensor_{tensor.data_ptr(),
                tensor.device(),
                static_cast<std::int32_t>(tensor.ndim()),
                tensor.dtype(),
                const_cast<std::int64_t*>(tensor.shape().data()),
                const_cast<std::int64_t*>(tensor.strides().data()),
                tensor.byte_offset()} {}
  template <details::TvmTensorView T>
  operator T() const {
    return T(&tensor_);
  }

  int ndim() const noexcept { return tensor_.ndim; }
  int dim() const noexcept { return tensor_.ndim; }
  DLDataType dtype() const noexcept { return tensor_.dtype; }
  DLDevice device() const noexcept {
#if KJIT_SIM
    // The simulated GPU's memory is host memory.
    if (tensor_.device.device_type == kDLCPU) return DLDevice{kDLCUDA, 0};
#endif
    return tensor_.device;
  }
  ShapeView shape() const noexcept { return {tensor_.shape, static_cast<std::size_t>(tensor_.ndim)}; }
  ShapeView sizes() const noexcept { return shape(); }
  StrideView strides() const noexcept { return {tensor_.strides, shape()}; }

  std::int64_t size(std::int64_t dimension, DebugInfo where = {}) const {
    return tensor_.shape[checked_dimension(dimension, where)];
  }
  std::int64_t stride(std::int64_t dimension, DebugInfo where = {}) const {
    return strides()[static_cast<std::size_t>(checked_dimension(dimension, where))];
  }

  /// The address of the first element, byte offset included.
  void* data_ptr() const noexcept { return static_cast<char*>(tensor_.data) + tensor_.byte_offset; }
  /// The same as a pointer to `T` (`float`, `const float`). An error if the dtype is another one; for a `T` that is not
  /// an arithmetic type (`fp16_t`, a struct), only the size is compared.
  template <typename T>
  T* data_ptr(DebugInfo where = {}) const {
    check_elements(details::kCodeOfNumber<std::remove_cv_t<T>>, static_cast<int>(sizeof(T)), where);
    return static_cast<T*>(data_ptr());
  }
  /// Always 0: `data_ptr()` includes DLPack's byte offset.
  std::uint64_t byte_offset() const noexcept { return 0; }

  std::int64_t numel() const noexcept;

  /// Whether the elements are contiguous in row-major order. Strides of dimensions of size 1 are ignored, and a tensor
  /// without elements is contiguous.
  bool is_contiguous() const noexcept;
  bool IsContiguous() const noexcept { return is_contiguous(); }
  /// The DLPack description, valid as long as this view.
  const DLTensor* GetDLTensorPtr() const noexcept { return &tensor_; }

 private:
  int checked_dimension(std::int64_t dimension, DebugInfo where) const;
  void check_elements(int code, int bytes, DebugInfo where) const;

  DLTensor tensor_;
};

/// A non-owning view of a list or tuple of tensors. Copying it copies no tensor.
class TensorListView {
 public:
  class Iterator {
   public:
    explicit Iterator(const TVMFFIAny* value) noexcept : value_(value) {}
    TensorView operator*() const noexcept;
    Iterator& operator++() noexcept {
      ++value_;
      return *this;
    }
    bool operator!=(const Iterator& other) const noexcept { return value_ != other.value_; }

   private:
    const TVMFFIAny* value_;
  };

  /// All `values` must be tensors.
  TensorListView(const TVMFFIAny* values, std::size_t size) noexcept : values_(values), size_(size) {}

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  TensorView operator[](std::size_t i) const noexcept { return *Iterator(values_ + i); }
  Iterator begin() const noexcept { return Iterator(values_); }
  Iterator end() const noexcept { return Iterator(values_ + size_); }

 private:
  const TVMFFIAny* values_;
  std::size_t size_;
};

/// A value, or None from Python.
template <typename T>
class Optional {
 public:
  Optional() noexcept : empty_(), has_value_(false) {}
  Optional(T value) noexcept : value_(value), has_value_(true) {}
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }
  const T& value(DebugInfo where = {}) const {
    if (!has_value_) [[unlikely]] {
      panic(where, "value() of an argument that is None");
    }
    return value_;
  }
  T value_or(T other) const noexcept { return has_value_ ? value_ : other; }
  const T& operator*() const noexcept { return value_; }
  const T* operator->() const noexcept { return &value_; }

 private:
  struct Empty {};
  union {
    Empty empty_;
    T value_;
  };
  bool has_value_;
};

/// Tensors that C++ code allocates, keeps or returns.
namespace ffi {

using host::ShapeView;
using host::TensorView;

/// A reference-counted tensor: copies refer to the same tensor, and the last one frees it. An argument or result of an
/// export. A default-constructed one is empty: only `defined()` and `data_ptr()` may be called.
///
/// In a unit that includes tvm-ffi's C++ headers it converts from and to tvm-ffi's `Tensor`.
class Tensor {
 public:
  Tensor() noexcept = default;
  /// Takes over the caller's reference to an object of type `kTVMFFITensor`.
  explicit Tensor(TVMFFIObjectHandle owned) noexcept : object_(static_cast<TVMFFIObject*>(owned)) {}
  Tensor(const Tensor& other) noexcept;
  Tensor(Tensor&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <details::TvmTensor T>
  Tensor(const T& tensor);
  Tensor& operator=(Tensor other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Tensor();

  /// Valid while a `Tensor` refers to the memory; not available on a temporary.
  operator TensorView() const& { return view(); }
  operator TensorView() && = delete;
  template <details::TvmTensor T>
  operator T() const;

  bool defined() const noexcept { return object_ != nullptr; }
  explicit operator bool() const noexcept { return defined(); }

  int ndim() const { return view().ndim(); }
  int dim() const { return view().ndim(); }
  DLDataType dtype() const { return view().dtype(); }
  DLDevice device() const { return view().device(); }
  ShapeView shape() const { return view().shape(); }
  ShapeView sizes() const { return view().shape(); }
  StrideView strides() const { return view().strides(); }
  std::int64_t size(std::int64_t dimension, DebugInfo where = {}) const { return view(where).size(dimension, where); }
  std::int64_t stride(std::int64_t dimension, DebugInfo where = {}) const {
    return view(where).stride(dimension, where);
  }
  /// The address of the first element, byte offset included; null for an empty tensor.
  void* data_ptr() const { return defined() ? view().data_ptr() : nullptr; }
  template <typename T>
  T* data_ptr(DebugInfo where = {}) const {
    return defined() ? view().template data_ptr<T>(where) : nullptr;
  }
  std::uint64_t byte_offset() const noexcept { return 0; }
  std::int64_t numel() const { return view().numel(); }
  bool is_contiguous() const { return view().is_contiguous(); }
  bool IsContiguous() const { return view().is_contiguous(); }
  /// The DLPack description, valid as long as the tensor; null for an empty tensor.
  const DLTensor* GetDLTensorPtr() const noexcept;
  /// The object of tvm-ffi's C ABI, borrowed: its reference count is unchanged.
  TVMFFIObject* object() const noexcept { return object_; }

 private:
  TensorView view(DebugInfo where = {}) const;

  TVMFFIObject* object_ = nullptr;
};

/// An uninitialised contiguous tensor from the caller's allocator: torch's, if the export was called with torch
/// tensors. Rethrows the allocator's error with its kind.
Tensor empty(ShapeView shape, DLDataType dtype, DLDevice device, DebugInfo where = {});
/// `empty` with the shape, dtype and device of `tensor`.
Tensor empty_like(TensorView tensor, DebugInfo where = {});
/// `required_bytes` bytes of memory as a uint8 tensor; for 0, an empty tensor whose `data_ptr()` is null.
Tensor alloc_workspace_tensor(std::size_t required_bytes, DLDevice device, DebugInfo where = {});

namespace details {

struct NoDeleter {
  void operator()(void*) const noexcept {}
};

/// Fills in the description of a tensor over external memory; sizes and strides are copied.
void describe_blob(DLTensor& blob, void* data, ShapeView shape, StrideView strides, DLDataType dtype, DLDevice device,
                   std::uint64_t byte_offset);
Tensor adopt(DLManagedTensor* blob);

/// Everything that lives as long as a tensor over external memory.
template <typename Fn>
class Blob {
 public:
  template <typename Deleter>
  Blob(void* data, Deleter&& deleter) : data_(data), deleter_(std::forward<Deleter>(deleter)) {}
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob() { delete[] managed_.dl_tensor.shape; }

  /// The tensor, which then owns `blob`.
  static Tensor make(Blob* blob, ShapeView shape, StrideView strides, DLDataType dtype, DLDevice device,
                     std::uint64_t byte_offset) {
    try {
      describe_blob(blob->managed_.dl_tensor, blob->data_, shape, strides, dtype, device, byte_offset);
      blob->managed_.manager_ctx = blob;
      blob->managed_.deleter = [](DLManagedTensor* self) {
        Blob* owned = static_cast<Blob*>(self->manager_ctx);
        owned->deleter_(owned->data_);
        delete owned;
      };
      return adopt(&blob->managed_);
    } catch (...) {
      delete blob;
      throw;
    }
  }

 private:
  DLManagedTensor managed_{};
  void* data_;
  Fn deleter_;
};

}  // namespace details

/// A tensor over existing memory: `data` plus `byte_offset`. Contiguous without `stride` (in elements). When the last
/// reference is dropped, `deleter(data)` is called, which must not throw. If `from_blob` itself throws, `deleter` is
/// not called.
template <typename Fn = details::NoDeleter>
Tensor from_blob(void* data, ShapeView shape, DLDataType dtype, DLDevice device, Fn&& deleter = {},
                 Optional<ShapeView> stride = {}, std::uint64_t byte_offset = 0) {
  using Blob = details::Blob<std::decay_t<Fn>>;
  RuntimeCheck(!stride.has_value() || (*stride).size() == shape.size(),
               "from_blob: shape and stride have different ranks");
  const StrideView strides(stride.has_value() ? (*stride).data() : nullptr, shape);
  return Blob::make(new Blob(data, std::forward<Fn>(deleter)), shape, strides, dtype, device, byte_offset);
}

/// `from_blob` with the shape, dtype, device and strides of `tensor`; contiguous if `is_contiguous` is true.
template <typename Fn = details::NoDeleter>
Tensor from_blob_like(void* data, TensorView tensor, Fn&& deleter = {}, bool is_contiguous = false,
                      std::uint64_t byte_offset = 0) {
  using Blob = details::Blob<std::decay_t<Fn>>;
  const StrideView strides = is_contiguous ? StrideView(nullptr, tensor.shape()) : tensor.strides();
  return Blob::make(new Blob(data, std::forward<Fn>(deleter)), tensor.shape(), strides, tensor.dtype(), tensor.device(),
                    byte_offset);
}

}  // namespace ffi

/// None is an empty tensor.
template <>
class Optional<ffi::Tensor> {
 public:
  Optional() noexcept = default;
  Optional(ffi::Tensor value) noexcept : value_(std::move(value)) {}

  bool has_value() const noexcept { return value_.defined(); }
  explicit operator bool() const noexcept { return value_.defined(); }
  const ffi::Tensor& value(DebugInfo where = {}) const;
  ffi::Tensor value_or(ffi::Tensor other) const noexcept { return value_.defined() ? value_ : other; }
  const ffi::Tensor& operator*() const noexcept { return value_; }
  const ffi::Tensor* operator->() const noexcept { return &value_; }

 private:
  ffi::Tensor value_;
};

}  // namespace host

}  // namespace kjit

/// What `tvm::ffi::Tensor` and so on mean in a unit without tvm-ffi's C++ headers.
///
/// Qualified lookup searches a nominated namespace only if the namespace itself does not declare the name
/// [namespace.qual]: tvm-ffi's own types win once they are declared. Outside of namespace kjit, so that `using
/// tvm::ffi::TensorView;` in namespace kjit names tvm-ffi's type from there on.
namespace kjit_tvm_names {
using kjit::host::Optional;
using kjit::host::ShapeView;
using kjit::host::TensorView;
using kjit::host::ffi::Tensor;
}  // namespace kjit_tvm_names

namespace kjit {
using namespace ::kjit_tvm_names;
using host::TensorListView;
}  // namespace kjit

namespace tvm::ffi {
using namespace ::kjit_tvm_names;
}  // namespace tvm::ffi

/// Equality of dtypes and of devices, visible in every namespace. Templates, so that another library's functions for
/// these C types are preferred instead of ambiguous.
template <std::same_as<DLDataType> T>
constexpr bool operator==(const T& a, const T& b) {
  return kjit::host::details::same_dtype(a, b);
}
template <std::same_as<DLDevice> T>
constexpr bool operator==(const T& a, const T& b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

namespace kjit {

namespace ffi_details {

using host::Message;
using host::PanicError;

struct Element;

/// The position of an argument in a call, or of an element in an argument, for messages. Fits two registers.
struct Position {
  static constexpr int kInside = 1 << 29, kOrNone = 1 << 30;  // flags in `count`

  union {
    const char* function;
    const Element* element;  // with kInside, whose other members are then unused
  };
  int index;  // 0-based
  int count;

  constexpr Position(const char* name = "", int place = 0, int of = 0) noexcept
      : function(name), index(place), count(of) {}
  constexpr explicit Position(const Element* inside) noexcept : element(inside), index(0), count(kInside) {}
  constexpr Position or_none() const noexcept {
    Position at = *this;
    at.count |= kOrNone;
    return at;
  }
};

/// The position of an element in an argument.
struct Element {
  enum Kind { kWhole, kIndex, kKey, kValue };

  Position outer;
  const char* type;  // the C++ type of `outer`, from `named`
  Kind kind;
  std::int64_t index;
  const TVMFFIAny* key;
};

/// A string that contains the name of a type, as the compiler prints it.
template <typename T>
constexpr const char* named() noexcept {
  return __PRETTY_FUNCTION__;
}

[[noreturn]] KJIT_COLD void wrong_type(Position at, const char* expected, const TVMFFIAny& value);
/// `type` is a result of `named`.
[[noreturn]] KJIT_COLD void not_of_type(Position at, const char* type, const TVMFFIAny& value);
[[noreturn]] KJIT_COLD void wrong_size(Position at, const char* type, std::int64_t expected, std::int64_t given);
[[noreturn]] KJIT_COLD void without_data(Position at, std::int64_t elements);
[[noreturn]] KJIT_COLD void out_of_range(Position at, const char* expected, const TVMFFIAny& value);
[[noreturn]] KJIT_COLD void wrong_count(const char* function, int expected, int given);
/// Passes the current exception to tvm-ffi, which raises it in Python; returns the export's error code.
KJIT_COLD int raise_current_exception() noexcept;
/// The same for a tvm-ffi error object.
KJIT_COLD int raise_tvm_error(TVMFFIObjectHandle error) noexcept;

template <typename T>
struct is_optional : std::false_type {};
template <typename T>
struct is_optional<host::Optional<T>> : std::true_type {
  using value_type = T;
};

/// A pointer that is passed through unchanged: `void*` or a stream handle.
template <typename T>
concept RawPointer = std::is_pointer_v<T> &&
                     (std::is_void_v<std::remove_pointer_t<T>> || std::same_as<std::remove_pointer_t<T>, CUstream_st>);

/// `U`, looked up only when `T` is known: lets a template name a type that is complete only in some units.
template <typename U, typename T>
struct dependent {
  using type = U;
};

template <typename T>
concept Complete = requires { sizeof(T); };

inline const DLTensor* tensor_of(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(value.v_ptr);
  // A tensor object is a header followed by its DLTensor (tvm/ffi/c_api.h, kTVMFFITensor).
  if (value.type_index == kTVMFFITensor) return reinterpret_cast<const DLTensor*>(value.v_obj + 1);
  return nullptr;
}

/// Refuses a tensor that has elements but no memory (freed, a zero tensor of torch, a fake tensor).
void require_data(const DLTensor& tensor, Position at);

const char* python_type_name(const TVMFFIAny& value);

#if KJIT_SIM
/// Reports to a checker of kernels the memory that an argument makes accessible.
void note_argument(const TVMFFIAny& value, Position at);
#endif

/// The bits of an integer argument, checked to fit an integer of `bytes` bytes.
std::uint64_t integer_of(const TVMFFIAny& value, std::size_t bytes, bool is_signed, Position at);
double floating_of(const TVMFFIAny& value, std::size_t bytes, Position at);
bool bool_of(const TVMFFIAny& value, Position at);
StringView string_of(const TVMFFIAny& value, Position at);
void* pointer_of(const TVMFFIAny& value, Position at);
DLDevice device_of(const TVMFFIAny& value, Position at);

/// The argument as a list of tensors.
host::TensorListView tensors_of(const TVMFFIAny& value, Position at);

/// The argument as a tensor with a reference of its own.
host::ffi::Tensor owned_tensor_of(const TVMFFIAny& value, Position at);

/// tvm-ffi's types that accept any value.
template <typename T>
concept AnyValue = std::same_as<T, typename dependent<::tvm::ffi::Any, T>::type> ||
                   std::same_as<T, typename dependent<::tvm::ffi::AnyView, T>::type>;

/// Refuses a value that is not a `T`, a type of tvm-ffi or of the standard library, checking every element
/// (kjit/detail/ffi_elements.h).
template <typename T>
void require(const TVMFFIAny& value, Position at);

/// The argument `value` as a `T`.
template <typename T>
T argument(const TVMFFIAny& value, Position at) {
#if KJIT_SIM
  if constexpr (!std::same_as<T, host::TensorListView>) note_argument(value, at);
#endif
  if constexpr (std::same_as<T, host::TensorListView>) {
    return tensors_of(value, at);
  } else if constexpr (std::same_as<T, host::TensorView>) {
    const DLTensor* tensor = tensor_of(value);
    if (tensor == nullptr) [[unlikely]] {
      wrong_type(at, "a tensor", value);
    }
    require_data(*tensor, at);
    return host::TensorView(tensor);
  } else if constexpr (std::same_as<T, host::ffi::Tensor>) {
    return owned_tensor_of(value, at);
  } else if constexpr (is_optional<T>::value) {
    if (value.type_index == kTVMFFINone) return T();
    return T(argument<typename is_optional<T>::value_type>(value, at.or_none()));
  } else if constexpr (std::same_as<T, bool>) {
    return bool_of(value, at);
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(integer_of(value, sizeof(T), std::is_signed_v<T>, at));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(floating_of(value, sizeof(T), at));
  } else if constexpr (std::same_as<T, DLDataType>) {
    if (value.type_index != kTVMFFIDataType) [[unlikely]] {
      wrong_type(at, "a dtype", value);
    }
    return value.v_dtype;
  } else if constexpr (std::same_as<T, DLDevice>) {
    return device_of(value, at);
  } else if constexpr (std::same_as<T, StringView>) {
    return string_of(value, at);
  } else if constexpr (RawPointer<T>) {
    return static_cast<T>(pointer_of(value, at));
  } else {
    using AnyView = typename dependent<::tvm::ffi::AnyView, T>::type;
    static_assert(Complete<AnyView>, "an export cannot take this type");
    const AnyView view = AnyView::CopyFromTVMFFIAny(value);
    if constexpr (AnyValue<T>) {
      return T(view);
    } else {
      require<T>(value, at);
      auto converted = view.template try_cast<T>();
      if (!converted.has_value()) not_of_type(at, named<T>(), value);
      return *std::move(converted);
    }
  }
}

/// Returns `tensor` to the caller, reference included; None for an empty tensor.
void set_tensor(TVMFFIAny* result, const host::ffi::Tensor& tensor) noexcept;

template <typename R>
void set_result(TVMFFIAny* result, R&& value) {
  using T = std::remove_cvref_t<R>;
  if constexpr (std::same_as<T, bool> || std::integral<T> || std::floating_point<T>) {
    result->zero_padding = 0;
    if constexpr (std::same_as<T, bool>) {
      result->type_index = kTVMFFIBool;
      result->v_int64 = value ? 1 : 0;
    } else if constexpr (std::integral<T>) {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
        if (value > 0x7fffffffffffffffull) host::panic({}, "the result ", value, " does not fit a 64-bit integer");
      }
      result->type_index = kTVMFFIInt;
      result->v_int64 = static_cast<std::int64_t>(value);
    } else {
      result->type_index = kTVMFFIFloat;
      result->v_float64 = static_cast<double>(value);
    }
  } else if constexpr (std::same_as<T, host::ffi::Tensor>) {
    set_tensor(result, value);
  } else if constexpr (std::same_as<T, host::Optional<host::ffi::Tensor>>) {
    set_tensor(result, *value);
  } else {
    using Any = typename dependent<::tvm::ffi::Any, T>::type;
    static_assert(Complete<Any>, "an export cannot return this type");
    *reinterpret_cast<Any*>(result) = Any(std::forward<R>(value));
  }
}

/// A tensor for tvm-ffi's conversions, which expect it as a `std::optional`.
template <typename T>
struct Converted {
  host::Optional<T> value;

  template <typename O>
    requires std::same_as<typename O::value_type, T>
  operator O() const {
    return value.has_value() ? O(*value) : O();
  }
};

/// How tvm-ffi's own types (`Tuple<Tensor, Tensor>`, `Function`, registered methods) take and return kjit's tensors: a
/// unit may include them without tvm-ffi's `Tensor` header. The names are tvm-ffi's.
template <typename T>
struct TvmTraits {
  static constexpr bool kOwned = std::same_as<T, host::ffi::Tensor>;
  static constexpr bool convert_enabled = true;
  static constexpr bool storage_enabled = kOwned;
  static constexpr std::int32_t field_static_type_index = kOwned ? kTVMFFITensor : kTVMFFIDLTensorPtr;

  static bool CheckAnyStrict(const TVMFFIAny* value) { return value->type_index == field_static_type_index; }
  static Converted<T> TryCastFromAnyView(const TVMFFIAny* value) {
    if (kOwned ? !CheckAnyStrict(value) : tensor_of(*value) == nullptr) return {};
    return {CopyFromAnyViewAfterCheck(value)};
  }
  static T CopyFromAnyViewAfterCheck(const TVMFFIAny* value) { return argument<T>(*value, {}); }
  static T MoveFromAnyAfterCheck(TVMFFIAny* value) { return T(std::exchange(*value, TVMFFIAny{}).v_obj); }
  static void CopyToAnyView(const T& tensor, TVMFFIAny* value) {
    *value = TVMFFIAny{};
    if constexpr (kOwned) {
      if (!tensor.defined()) return;
      value->v_obj = tensor.object();
    } else {
      value->v_ptr = const_cast<DLTensor*>(tensor.GetDLTensorPtr());
    }
    value->type_index = field_static_type_index;
  }
  static void MoveToAny(const T& tensor, TVMFFIAny* value) { set_tensor(value, tensor); }
  static const char* TypeStr() { return kOwned ? "ffi.Tensor" : "DLTensor*"; }
  static const char* TypeSchema() { return kOwned ? R"({"type":"ffi.Tensor"})" : R"({"type":"DLTensor*"})"; }
  static const char* GetMismatchTypeInfo(const TVMFFIAny* value) { return python_type_name(*value); }
};

/// Calls `function`, whose parameters are `Parameters`, with the converted arguments.
template <typename R, typename... Parameters, typename F, std::size_t... I>
void call_converted(F& function, const char* name, [[maybe_unused]] const TVMFFIAny* args, TVMFFIAny* result,
                    std::index_sequence<I...>) {
  constexpr int kCount = static_cast<int>(sizeof...(Parameters));
#if KJIT_SIM
  const ::kjit_sim::CallScope call;
#endif
  if constexpr (std::is_void_v<R>) {
    function(argument<std::remove_cvref_t<Parameters>>(args[I], Position{name, static_cast<int>(I), kCount})...);
    result->type_index = kTVMFFINone;
    result->zero_padding = 0;
    result->v_int64 = 0;
  } else {
    set_result(result, function(argument<std::remove_cvref_t<Parameters>>(
                           args[I], Position{name, static_cast<int>(I), kCount})...));
  }
}

template <typename R, typename... Parameters, typename F>
void call_checked(F& function, const char* name, const TVMFFIAny* args, std::int32_t given, TVMFFIAny* result) {
  constexpr int kCount = static_cast<int>(sizeof...(Parameters));
  if (given != kCount) [[unlikely]] {
    wrong_count(name, kCount, given);
  }
  call_converted<R, Parameters...>(function, name, args, result, std::index_sequence_for<Parameters...>());
}

/// Calls a function, or an object with one call operator (a lambda); the second parameter only carries the signature.
template <typename F, typename R, typename... Parameters>
void call(F& function, R (*)(Parameters...), const char* name, const TVMFFIAny* args, std::int32_t given,
          TVMFFIAny* result) {
  call_checked<R, Parameters...>(function, name, args, given, result);
}
template <typename F, typename C, typename R, typename... Parameters>
void call(F& function, R (C::*)(Parameters...) const, const char* name, const TVMFFIAny* args, std::int32_t given,
          TVMFFIAny* result) {
  call_checked<R, Parameters...>(function, name, args, given, result);
}
template <typename F>
void call(F& function, const char* name, const TVMFFIAny* args, std::int32_t given, TVMFFIAny* result) {
  if constexpr (std::is_class_v<F>) {
    call(function, &F::operator(), name, args, given, result);
  } else {
    call(function, function, name, args, given, result);
  }
}

}  // namespace ffi_details

inline host::TensorView host::TensorListView::Iterator::operator*() const noexcept {
  return ffi_details::tensor_of(*value_);
}

template <host::details::TvmTensor T>
host::ffi::Tensor::Tensor(const T& tensor) {
  using AnyView = typename ffi_details::dependent<::tvm::ffi::AnyView, T>::type;
  const TVMFFIAny value = AnyView(tensor).CopyToTVMFFIAny();
  if (value.type_index == kTVMFFITensor) *this = ffi_details::owned_tensor_of(value, {});
}

template <host::details::TvmTensor T>
host::ffi::Tensor::operator T() const {
  using AnyView = typename ffi_details::dependent<::tvm::ffi::AnyView, T>::type;
  if (!defined()) return T();
  TVMFFIAny value{};
  value.type_index = kTVMFFITensor;
  value.v_obj = object_;
  return AnyView::CopyFromTVMFFIAny(value).template cast<T>();
}

namespace ffi_details {

/// `tvm::ffi::Error` is looked up only when `F` is known: if it is complete, its kind, message and backtrace are kept.
template <typename F>
int invoke(F function, const char* name, const TVMFFIAny* args, std::int32_t given, TVMFFIAny* result) noexcept {
  using TvmError = typename dependent<::tvm::ffi::Error, F>::type;
  if constexpr (Complete<TvmError>) {
    try {
      call(function, name, args, given, result);
      return 0;
    } catch (const TvmError& error) {
      return raise_tvm_error(const_cast<void*>(static_cast<const void*>(error.get())));
    } catch (...) {
      return raise_current_exception();
    }
  } else {
    try {
      call(function, name, args, given, result);
      return 0;
    } catch (...) {
      return raise_current_exception();
    }
  }
}

}  // namespace ffi_details

}  // namespace kjit

namespace tvm::ffi {
template <typename, typename>
struct TypeTraits;
template <>
struct TypeTraits<kjit::host::TensorView, void> : kjit::ffi_details::TvmTraits<kjit::host::TensorView> {};
template <>
struct TypeTraits<kjit::host::ffi::Tensor, void> : kjit::ffi_details::TvmTraits<kjit::host::ffi::Tensor> {};
}  // namespace tvm::ffi

/// Makes `Symbol` (a function, a static member function, or a lambda) callable from Python as `Name`. At namespace
/// scope; a symbol that contains commas goes in parentheses.
#define KJIT_EXPORT(Name, ...)                                                                    \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##Name(                         \
      void*, const TVMFFIAny* kjit_args, ::std::int32_t kjit_count, TVMFFIAny* kjit_result) {     \
    return ::kjit::ffi_details::invoke((__VA_ARGS__), #Name, kjit_args, kjit_count, kjit_result); \
  }

/// Instantiates a function if an editor reads the file, `KJIT_EDITOR_CHECKS(Scale<fp32_t>::run);`, so that it shows
/// errors that only an instance has. Once in a file; no effect in a build.
#ifdef KJIT_EDITOR
#define KJIT_EDITOR_CHECKS(...) [[maybe_unused]] constexpr auto* kjit_editor_checks = &__VA_ARGS__
#else
#define KJIT_EDITOR_CHECKS(...) static_assert(true)
#endif

/// Declares `Ref`, a non-null handle to an object of class `Object`. The unit includes tvm-ffi's C++ headers.
#define KJIT_REGISTER_FFI_REFERENCE_CLASS(Ref, Object)                                 \
  struct Ref : public ::tvm::ffi::ObjectRef {                                          \
    TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Ref, ::tvm::ffi::ObjectRef, Object); \
  }

#ifndef __CUDA_ARCH__  // device code has no exports
#include <kjit/detail/ffi_elements.h>
#endif

#ifndef KJIT_PRECOMPILED
#include <kjit/ffi.cpp>
#include <kjit/impl/errors.cpp>
#endif
