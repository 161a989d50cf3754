// Arguments and exports over tvm-ffi's stable C ABI: makes a C++ function callable from Python.
//
//   void scale(TensorView x, double alpha, Optional<TensorView> bias, TensorView out) { ... }
//   KJIT_EXPORT(scale, scale)                          // module.scale(x, 2.0, None, out)
//   KJIT_EXPORT(scale_f16, (Scale<fp16_t, 4>::run))    // a symbol with commas goes in parentheses
//
// An export takes TensorView, Optional<T>, integers and floating-point numbers (range-checked), bool, DLDataType,
// DLDevice, StringView and raw pointers (a stream handle); it returns void, bool, an integer or a floating-point
// number. Wrong arguments are a TypeError that names function, position and what came. No exception crosses the C ABI.
//
// Only tvm-ffi's C header is included, so that a unit compiles in a fraction of the time that its C++ headers take. A
// unit that includes those too (kjit/tvm_ffi.h) may use every type of theirs in the same exports: their own conversion
// is used.

#pragma once

#include <kjit/dtype.h>
#include <kjit/utils.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>

// Known only by name here; complete in a unit that includes tvm-ffi's C++ headers.
namespace tvm::ffi {
class Any;
class AnyView;
class Error;
}  // namespace tvm::ffi

// CUDA's and HIP's stream handles point to these.
struct CUstream_st;
struct ihipStream_t;

namespace kjit {

namespace host {

/// The sizes of a tensor, which belong to the tensor.
class SizeView {
 public:
  constexpr SizeView() noexcept = default;
  constexpr SizeView(const std::int64_t* data, int size) noexcept : data_(data), size_(size) {}
  constexpr const std::int64_t* data() const noexcept { return data_; }
  constexpr int size() const noexcept { return size_; }
  constexpr const std::int64_t* begin() const noexcept { return data_; }
  constexpr const std::int64_t* end() const noexcept { return data_ + size_; }
  constexpr std::int64_t operator[](int i) const noexcept { return data_[i]; }

 private:
  const std::int64_t* data_ = nullptr;
  int size_ = 0;
};

/// The strides of a tensor, in elements; worked out from the sizes where the tensor came without (it is contiguous
/// then).
class StrideView {
 public:
  constexpr StrideView(const std::int64_t* strides, SizeView sizes) noexcept : strides_(strides), sizes_(sizes) {}
  constexpr int size() const noexcept { return sizes_.size(); }
  std::int64_t operator[](int i) const noexcept;

 private:
  const std::int64_t* strides_;
  SizeView sizes_;
};

/// A tensor that belongs to the caller: shape, strides, dtype, device and data. Copying it copies no data.
///
/// Dimensions may be counted from the end (-1 is the last); one that does not exist is an error. Sizes and strides are
/// in elements.
class TensorView {
 public:
  TensorView(const DLTensor* tensor) noexcept : tensor_(*tensor) {}
  /// From tvm-ffi's own `Tensor` or `TensorView`, in a unit that includes its C++ headers.
  template <typename T>
    requires requires(const T& tensor) {
      { tensor.strides().data() } -> std::convertible_to<const std::int64_t*>;
      { tensor.byte_offset() } -> std::convertible_to<std::uint64_t>;
      { tensor.data_ptr() } -> std::convertible_to<void*>;
    }
  TensorView(const T& tensor)
      : tensor_{tensor.data_ptr(),
                tensor.device(),
                static_cast<std::int32_t>(tensor.ndim()),
                tensor.dtype(),
                const_cast<std::int64_t*>(tensor.shape().data()),
                const_cast<std::int64_t*>(tensor.strides().data()),
                tensor.byte_offset()} {}

  int ndim() const noexcept { return tensor_.ndim; }
  int dim() const noexcept { return tensor_.ndim; }
  DLDataType dtype() const noexcept { return tensor_.dtype; }
  DLDevice device() const noexcept { return tensor_.device; }
  SizeView shape() const noexcept { return {tensor_.shape, tensor_.ndim}; }
  SizeView sizes() const noexcept { return shape(); }
  StrideView strides() const noexcept { return {tensor_.strides, shape()}; }

  std::int64_t size(std::int64_t dimension, DebugInfo where = {}) const {
    return tensor_.shape[checked_dimension(dimension, where)];
  }
  std::int64_t stride(std::int64_t dimension, DebugInfo where = {}) const {
    return strides()[checked_dimension(dimension, where)];
  }

  /// Where the first element is; the byte offset is counted in.
  void* data_ptr() const noexcept { return static_cast<char*>(tensor_.data) + tensor_.byte_offset; }

  std::int64_t numel() const noexcept;

  /// Whether the elements lie one after another in row-major order. The stride of a dimension of size 1 does not
  /// matter, and a tensor without elements is contiguous.
  bool is_contiguous() const noexcept;

 private:
  int checked_dimension(std::int64_t dimension, DebugInfo where) const;

  DLTensor tensor_;
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
      panic(where, "the value of an argument that is None was asked for");
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

}  // namespace host

using host::Optional;
using host::TensorView;

namespace ffi_details {

using host::Message;
using host::PanicError;

/// The place of an argument in a call, for messages.
struct Position {
  const char* function;
  int index;  // from 0
  int count;
};

[[noreturn]] KJIT_COLD void wrong_type(Position at, const char* expected, const TVMFFIAny& value);
[[noreturn]] KJIT_COLD void out_of_range(Position at, const char* expected, const TVMFFIAny& value);
[[noreturn]] KJIT_COLD void wrong_count(const char* function, int expected, int given);
/// Hands the exception in flight to tvm-ffi, which raises it in Python; returns what an export returns then.
KJIT_COLD int raise_current_exception() noexcept;

template <typename T>
struct is_optional : std::false_type {};
template <typename T>
struct is_optional<host::Optional<T>> : std::true_type {
  using value_type = T;
};

/// A pointer that may be passed as it is: `void*` or a stream handle.
template <typename T>
concept RawPointer = std::is_pointer_v<T> &&
                     (std::is_void_v<std::remove_pointer_t<T>> || std::same_as<std::remove_pointer_t<T>, CUstream_st> ||
                      std::same_as<std::remove_pointer_t<T>, ihipStream_t>);

/// `U`, but looked up only when `T` is known: a type that is complete only in some units can be named in a template.
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

/// The bits of an integer argument, after the check that an integer of that many bytes can hold it.
std::uint64_t integer_of(const TVMFFIAny& value, std::size_t bytes, bool is_signed, Position at);
double floating_of(const TVMFFIAny& value, std::size_t bytes, Position at);
bool bool_of(const TVMFFIAny& value, Position at);
StringView string_of(const TVMFFIAny& value, Position at);
void* pointer_of(const TVMFFIAny& value, Position at);

/// What tvm-ffi converted, if it could.
template <typename T, typename Converted>
T value_of(Converted&& converted, Position at, const TVMFFIAny& value) {
  if (!converted.has_value()) wrong_type(at, "another type", value);
  return *std::forward<Converted>(converted);
}

/// The argument `value` as a `T`.
template <typename T>
T argument(const TVMFFIAny& value, Position at) {
  if constexpr (std::same_as<T, host::TensorView>) {
    const DLTensor* tensor = tensor_of(value);
    if (tensor == nullptr) [[unlikely]] {
      wrong_type(at, "a tensor", value);
    }
    return host::TensorView(tensor);
  } else if constexpr (is_optional<T>::value) {
    if (value.type_index == kTVMFFINone) return T();
    return T(argument<typename is_optional<T>::value_type>(value, at));
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
    if (value.type_index != kTVMFFIDevice) [[unlikely]] {
      wrong_type(at, "a device", value);
    }
    return value.v_device;
  } else if constexpr (std::same_as<T, StringView>) {
    return string_of(value, at);
  } else if constexpr (RawPointer<T>) {
    return static_cast<T>(pointer_of(value, at));
  } else {
    using AnyView = typename dependent<::tvm::ffi::AnyView, T>::type;
    static_assert(Complete<AnyView>, "an export cannot take this type; include kjit/tvm_ffi.h for tvm-ffi's own types");
    const AnyView view = AnyView::CopyFromTVMFFIAny(value);
    if constexpr (std::is_constructible_v<T, AnyView> && requires(T t) { t.type_index(); }) {
      return T(view);  // Any or AnyView itself
    } else {
      return value_of<T>(view.template try_cast<T>(), at, value);
    }
  }
}

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
  } else {
    using Any = typename dependent<::tvm::ffi::Any, T>::type;
    static_assert(Complete<Any>, "an export cannot return this type; include kjit/tvm_ffi.h for tvm-ffi's own types");
    *reinterpret_cast<Any*>(result) = Any(std::forward<R>(value));
  }
}

/// Calls `function`, whose parameters are `Parameters`, with the converted arguments.
template <typename R, typename... Parameters, typename F, std::size_t... I>
void call_converted(F& function, const char* name, [[maybe_unused]] const TVMFFIAny* args, TVMFFIAny* result,
                    std::index_sequence<I...>) {
  constexpr int kCount = static_cast<int>(sizeof...(Parameters));
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

/// Calls a function, or an object with one call operator (a lambda): the second argument only tells the signature.
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

/// `tvm::ffi::Error` is looked up only when `F` is known: a unit that knows it keeps its kind, message and backtrace.
template <typename F>
int invoke(F function, const char* name, const TVMFFIAny* args, std::int32_t given, TVMFFIAny* result) noexcept {
  using TvmError = typename dependent<::tvm::ffi::Error, F>::type;
  if constexpr (Complete<TvmError>) {
    try {
      call(function, name, args, given, result);
      return 0;
    } catch (const TvmError& error) {
      TVMFFIErrorSetRaised(const_cast<void*>(static_cast<const void*>(error.get())));
      return -1;
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

/// Makes `Symbol` (a function, a static member function, or a lambda) callable from Python as `Name`. At namespace
/// scope; a symbol that contains commas goes in parentheses.
#define KJIT_EXPORT(Name, ...)                                                                                      \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##Name(void*, const TVMFFIAny* args,              \
                                                                         ::std::int32_t count, TVMFFIAny* result) { \
    return ::kjit::ffi_details::invoke((__VA_ARGS__), #Name, args, count, result);                                  \
  }

#ifndef KJIT_PRECOMPILED
#include <kjit/ffi.cpp>
#endif
