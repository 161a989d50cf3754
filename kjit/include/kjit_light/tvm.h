// The part of tvm-ffi's C++ API that most kernels use, over its C ABI: errors and checks, `ShapeView`, `Shape`,
// `TensorView`, `Tensor`, `Optional`, and exports of functions that take these and numbers.
//
// CUDA units that are compiled in two halves include it under the names of tvm-ffi's own headers
// (kjit/engine/toolchain/toolchain.py), which take longer to parse than most kernels to compile. It behaves as tvm-ffi
// does, including the texts of errors. A unit that uses other parts does not compile, and is then compiled with
// tvm-ffi's own headers (kjit/engine/compile/compile.py).

#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if TVM_FFI_DLL_EXPORT_INCLUDE_METADATA || TVM_FFI_ALWAYS_LOG_BEFORE_THROW
#error "kjit_light: this asks for more of tvm-ffi"
#endif

#define TVM_FFI_INLINE [[gnu::always_inline]] inline
#define TVM_FFI_NO_INLINE [[gnu::noinline]]
#define TVM_FFI_COLD_CODE [[gnu::cold]]
#define TVM_FFI_UNREACHABLE() __builtin_unreachable()
#define TVM_FFI_PREDICT_FALSE(cond) (__builtin_expect(static_cast<bool>(cond), 0))
#define TVM_FFI_PREDICT_TRUE(cond) (__builtin_expect(static_cast<bool>(cond), 1))
#define TVM_FFI_FUNC_SIG __PRETTY_FUNCTION__

namespace tvm::ffi {

/// An error with a kind (`TypeError`), a message and a backtrace: a reference to a tvm-ffi object.
class Error : public std::exception {
 public:
  Error(const std::string& kind, const std::string& message, const std::string& backtrace) {
    const TVMFFIByteArray trace{backtrace.data(), backtrace.size()};
    make(kind, message, trace);
  }
  Error(const std::string& kind, const std::string& message, const TVMFFIByteArray* backtrace) {
    make(kind, message, *backtrace);
  }
  Error(const Error& other) noexcept : std::exception(other), object_(other.object_) { TVMFFIObjectIncRef(object_); }
  Error& operator=(const Error& other) noexcept {
    TVMFFIObjectIncRef(other.object_);
    TVMFFIObjectDecRef(std::exchange(object_, other.object_));
    return *this;
  }
  ~Error() override { TVMFFIObjectDecRef(object_); }

  /// The error that a function of the C ABI has set.
  static Error raised() {
    TVMFFIObjectHandle object = nullptr;
    TVMFFIErrorMoveFromRaised(&object);
    return Error(object);
  }

  std::string kind() const { return text(cell()->kind); }
  std::string message() const { return text(cell()->message); }
  std::string backtrace() const { return text(cell()->backtrace); }
  const char* what() const noexcept override { return cell()->message.data; }
  void UpdateBacktrace(const TVMFFIByteArray* more, std::int32_t mode) {
    cell()->update_backtrace(object_, more, mode);
  }
  std::string TracebackMostRecentCallLast() const {
    const std::string lines = backtrace();
    std::string result;
    for (std::size_t end = lines.rfind('\n'); end != std::string::npos && end != 0;) {
      const std::size_t before = lines.rfind('\n', end - 1);
      const std::size_t begin = before == std::string::npos ? 0 : before + 1;
      if (begin != end) result.append(lines, begin, end - begin + 1);
      end = before;
    }
    return result;
  }
  std::string FullMessage() const {
    return "Traceback (most recent call last):\n" + TracebackMostRecentCallLast() + kind() + ": " + message() + '\n';
  }
  const void* get() const noexcept { return object_; }

 private:
  explicit Error(TVMFFIObjectHandle owned) noexcept : object_(owned) {}

  void make(const std::string& kind, const std::string& message, const TVMFFIByteArray& backtrace) {
    const TVMFFIByteArray kind_text{kind.data(), kind.size()};
    const TVMFFIByteArray message_text{message.data(), message.size()};
    if (TVMFFIErrorCreate(&kind_text, &message_text, &backtrace, &object_) != 0) std::terminate();
  }
  TVMFFIErrorCell* cell() const noexcept {
    return reinterpret_cast<TVMFFIErrorCell*>(static_cast<TVMFFIObject*>(object_) + 1);
  }
  static std::string text(const TVMFFIByteArray& bytes) { return {bytes.data, bytes.size}; }

  TVMFFIObjectHandle object_ = nullptr;
};

namespace detail {

inline Error MoveFromSafeCallRaised() {
  return Error::raised();
}
inline void SetSafeCallRaised(const Error& error) {
  TVMFFIErrorSetRaised(const_cast<void*>(error.get()));
}

/// Collects a message, and throws it at the end of the statement.
template <bool kIsLogged>
class ErrorBuilder {
 public:
  TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE ErrorBuilder(const char* kind, const TVMFFIByteArray* backtrace)
      : kind_(kind), backtrace_(backtrace->data, backtrace->size) {}
  [[noreturn]] TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE ~ErrorBuilder() noexcept(false) {
    const Error error(kind_, stream_.str(), backtrace_);
    if constexpr (kIsLogged) ::fprintf(stderr, "%s", error.FullMessage().c_str());
    throw error;
  }
  std::ostringstream& stream() { return stream_; }

 private:
  const char* kind_;
  std::string backtrace_;
  std::ostringstream stream_;
};

}  // namespace detail

#define TVM_FFI_KJIT_THROW(Kind, kIsLogged) \
  ::tvm::ffi::detail::ErrorBuilder<kIsLogged>(#Kind, TVMFFIBacktrace(__FILE__, __LINE__, TVM_FFI_FUNC_SIG, 0)).stream()
#define TVM_FFI_THROW(ErrorKind) TVM_FFI_KJIT_THROW(ErrorKind, false)
#define TVM_FFI_LOG_AND_THROW(ErrorKind) TVM_FFI_KJIT_THROW(ErrorKind, true)

#define TVM_FFI_CHECK_SAFE_CALL(func)                                                           \
  {                                                                                             \
    if (TVM_FFI_PREDICT_FALSE((func) != 0)) throw ::tvm::ffi::detail::MoveFromSafeCallRaised(); \
  }
#define TVM_FFI_SAFE_CALL_BEGIN() \
  try {                           \
  static_cast<void>(0)
#define TVM_FFI_SAFE_CALL_END()                                                                  \
  return 0;                                                                                      \
  }                                                                                              \
  catch (const ::tvm::ffi::Error& error) {                                                       \
    ::tvm::ffi::detail::SetSafeCallRaised(error);                                                \
    return -1;                                                                                   \
  }                                                                                              \
  catch (const std::exception& error) {                                                          \
    ::tvm::ffi::detail::SetSafeCallRaised(::tvm::ffi::Error("InternalError", error.what(), "")); \
    return -1;                                                                                   \
  }                                                                                              \
  TVM_FFI_UNREACHABLE()

namespace detail {

/// The operands of a failed comparison, as text.
template <typename X, typename Y>
TVM_FFI_COLD_CODE std::optional<std::string> compared(const X& x, const Y& y) {
  std::ostringstream text;
  text << " (" << x << " vs. " << y << ") ";
  return text.str();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define TVM_FFI_KJIT_COMPARE(Name, op)                                               \
  template <typename X, typename Y>                                                  \
  TVM_FFI_INLINE std::optional<std::string> LogCheck##Name(const X& x, const Y& y) { \
    return (x op y) ? std::optional<std::string>() : compared(x, y);                 \
  }                                                                                  \
  TVM_FFI_INLINE std::optional<std::string> LogCheck##Name(int x, int y) {           \
    return LogCheck##Name<int, int>(x, y);                                           \
  }
TVM_FFI_KJIT_COMPARE(_LT, <)
TVM_FFI_KJIT_COMPARE(_GT, >)
TVM_FFI_KJIT_COMPARE(_LE, <=)
TVM_FFI_KJIT_COMPARE(_GE, >=)
TVM_FFI_KJIT_COMPARE(_EQ, ==)
TVM_FFI_KJIT_COMPARE(_NE, !=)
#undef TVM_FFI_KJIT_COMPARE
#pragma GCC diagnostic pop

}  // namespace detail

#define TVM_FFI_CHECK_BINARY_OP(Name, op, x, y, ErrorKind)           \
  if (auto kjit_compared = ::tvm::ffi::detail::LogCheck##Name(x, y)) \
  TVM_FFI_THROW(ErrorKind) << "Check failed: " #x " " #op " " #y << *kjit_compared << ": "
#define TVM_FFI_CHECK(cond, ErrorKind) \
  if (TVM_FFI_PREDICT_FALSE(!(cond))) TVM_FFI_THROW(ErrorKind) << "Check failed: (" #cond << ") is false: "
#define TVM_FFI_CHECK_LT(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_LT, <, x, y, ErrorKind)
#define TVM_FFI_CHECK_GT(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_GT, >, x, y, ErrorKind)
#define TVM_FFI_CHECK_LE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_LE, <=, x, y, ErrorKind)
#define TVM_FFI_CHECK_GE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_GE, >=, x, y, ErrorKind)
#define TVM_FFI_CHECK_EQ(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_EQ, ==, x, y, ErrorKind)
#define TVM_FFI_CHECK_NE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_NE, !=, x, y, ErrorKind)
#define TVM_FFI_ICHECK(x) TVM_FFI_CHECK(x, InternalError)
#define TVM_FFI_ICHECK_LT(x, y) TVM_FFI_CHECK_LT(x, y, InternalError)
#define TVM_FFI_ICHECK_GT(x, y) TVM_FFI_CHECK_GT(x, y, InternalError)
#define TVM_FFI_ICHECK_LE(x, y) TVM_FFI_CHECK_LE(x, y, InternalError)
#define TVM_FFI_ICHECK_GE(x, y) TVM_FFI_CHECK_GE(x, y, InternalError)
#define TVM_FFI_ICHECK_EQ(x, y) TVM_FFI_CHECK_EQ(x, y, InternalError)
#define TVM_FFI_ICHECK_NE(x, y) TVM_FFI_CHECK_NE(x, y, InternalError)

/// A view of sizes or strides, of a tensor or of the list that it is made from.
class ShapeView {
 public:
  ShapeView() = default;
  ShapeView(const std::int64_t* data, std::size_t size) : data_(data), size_(size) {}
  ShapeView(const std::initializer_list<std::int64_t>& sizes) : data_(sizes.begin()), size_(sizes.size()) {}

  const std::int64_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::int64_t* begin() const { return data_; }
  const std::int64_t* end() const { return data_ + size_; }
  std::int64_t operator[](std::size_t i) const { return data_[i]; }
  std::int64_t at(std::size_t i) const {
    if (i >= size_) TVM_FFI_THROW(IndexError) << "indexing " << i << " on a Shape of size " << size_;
    return data_[i];
  }
  std::int64_t front() const { return at(0); }
  std::int64_t back() const { return at(size_ - 1); }
  std::int64_t Product() const {
    std::int64_t product = 1;
    for (const std::int64_t size : *this) product *= size;
    return product;
  }

 private:
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owned sizes.
class Shape {
 public:
  Shape() = default;
  template <typename Iterator>
  Shape(Iterator begin, Iterator end) : sizes_(begin, end) {}
  Shape(std::initializer_list<std::int64_t> sizes) : sizes_(sizes) {}
  Shape(std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {}
  Shape(ShapeView sizes) : sizes_(sizes.begin(), sizes.end()) {}

  operator ShapeView() const { return {sizes_.data(), sizes_.size()}; }
  const std::int64_t* data() const { return sizes_.data(); }
  std::size_t size() const { return sizes_.size(); }
  bool empty() const { return sizes_.empty(); }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + size(); }
  std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
  std::int64_t at(std::size_t i) const { return ShapeView(*this).at(i); }
  std::int64_t front() const { return at(0); }
  std::int64_t back() const { return at(size() - 1); }
  std::int64_t Product() const { return ShapeView(*this).Product(); }

 private:
  std::vector<std::int64_t> sizes_;
};

inline bool IsDirectAddressDevice(const DLDevice& device) {
  const DLDeviceType type = device.device_type;
  return type <= kDLCUDAHost || type == kDLCUDAManaged || type == kDLROCM || type == kDLROCMHost;
}
inline bool IsContiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  bool is_contiguous = true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    const std::int64_t size = tensor.shape[i];
    if (size == 0) return true;
    if (size != 1 && tensor.strides[i] != expected) is_contiguous = false;
    expected *= size;
  }
  return is_contiguous;
}
inline bool IsAligned(const DLTensor& tensor, std::size_t alignment) {
  if (!IsDirectAddressDevice(tensor.device)) return tensor.byte_offset % alignment == 0;
  return (reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset) % alignment == 0;
}
inline std::size_t GetDataSize(std::size_t numel, DLDataType dtype) {
  return static_cast<std::size_t>((static_cast<std::uint64_t>(numel) * dtype.bits * dtype.lanes + 7) / 8);
}
inline std::size_t GetDataSize(const DLTensor& tensor) {
  const ShapeView shape(tensor.shape, static_cast<std::size_t>(tensor.ndim));
  return GetDataSize(static_cast<std::size_t>(shape.Product()), tensor.dtype);
}

namespace detail {

[[noreturn]] TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE inline void no_strides(const char* checked) {
  TVM_FFI_THROW(InternalError) << "Check failed: (" << checked << ") is false: ";
}
[[noreturn]] TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE inline void no_dimension(std::int64_t dimension, std::int32_t ndim) {
  TVM_FFI_THROW(IndexError) << "Index " << dimension << " out of bounds for tensor with " << ndim << " dimensions";
}

}  // namespace detail

/// The common functions of owned and unowned tensors; `Self` has `tensor()`.
template <typename Self>
class KjitTensor {
 public:
  void* data_ptr() const { return tensor().data; }
  DLDevice device() const { return tensor().device; }
  std::int32_t ndim() const { return tensor().ndim; }
  std::int32_t dim() const { return tensor().ndim; }
  DLDataType dtype() const { return tensor().dtype; }
  std::uint64_t byte_offset() const { return tensor().byte_offset; }
  ShapeView shape() const { return {tensor().shape, static_cast<std::size_t>(tensor().ndim)}; }
  ShapeView sizes() const { return shape(); }
  ShapeView strides() const {
    const DLTensor& t = tensor();
    if (TVM_FFI_PREDICT_FALSE(t.strides == nullptr && t.ndim != 0)) detail::no_strides(Self::kStridesChecked);
    return {t.strides, static_cast<std::size_t>(t.ndim)};
  }
  std::int64_t size(std::int64_t dimension) const { return tensor().shape[checked(dimension)]; }
  std::int64_t stride(std::int64_t dimension) const { return tensor().strides[checked(dimension)]; }
  std::int64_t numel() const { return shape().Product(); }
  bool IsContiguous() const { return ::tvm::ffi::IsContiguous(tensor()); }
  bool is_contiguous() const { return IsContiguous(); }

 private:
  const DLTensor& tensor() const { return static_cast<const Self*>(this)->tensor(); }
  std::int64_t checked(std::int64_t dimension) const {
    const std::int32_t ndim = tensor().ndim;
    const std::int64_t from_front = dimension >= 0 ? dimension : ndim + dimension;
    if (TVM_FFI_PREDICT_FALSE(from_front < 0 || from_front >= ndim)) detail::no_dimension(dimension, ndim);
    return from_front;
  }
};

/// A reference-counted tensor, possibly empty.
class Tensor : public KjitTensor<Tensor> {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) TVMFFIObjectIncRef(object_);
  }
  Tensor(Tensor&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Tensor() {
    if (object_ != nullptr) TVMFFIObjectDecRef(object_);
  }

  static Tensor FromEnvAlloc(int (*allocate)(DLTensor*, TVMFFIObjectHandle*), ShapeView shape, DLDataType dtype,
                             DLDevice device) {
    DLTensor wanted{};
    wanted.device = device;
    wanted.dtype = dtype;
    wanted.shape = const_cast<std::int64_t*>(shape.data());
    wanted.ndim = static_cast<std::int32_t>(shape.size());
    TVMFFIObjectHandle made = nullptr;
    TVM_FFI_CHECK_SAFE_CALL(allocate(&wanted, &made));
    return Tensor(made);
  }

  bool defined() const noexcept { return object_ != nullptr; }
  bool same_as(const Tensor& other) const noexcept { return object_ == other.object_; }
  bool operator==(std::nullptr_t) const noexcept { return object_ == nullptr; }
  bool IsAligned(std::size_t alignment) const { return ::tvm::ffi::IsAligned(tensor(), alignment); }
  const DLTensor* GetDLTensorPtr() const { return TVMFFITensorGetDLTensorPtr(object_); }

 private:
  static constexpr const char* kStridesChecked = "obj->strides != nullptr || obj->ndim == 0";

  explicit Tensor(TVMFFIObjectHandle owned) noexcept : object_(owned) {}
  const DLTensor& tensor() const { return *GetDLTensorPtr(); }

  TVMFFIObjectHandle object_ = nullptr;

  friend class KjitTensor<Tensor>;
  template <typename, typename>
  friend struct KjitValue;
};

/// A non-owning view of the caller's tensor.
class TensorView : public KjitTensor<TensorView> {
 public:
  TensorView(const Tensor& tensor) {
    TVM_FFI_ICHECK(tensor.defined());
    tensor_ = *tensor.GetDLTensorPtr();
  }
  TensorView(const DLTensor* tensor) {
    TVM_FFI_ICHECK(tensor != nullptr);
    tensor_ = *tensor;
  }
  TensorView(Tensor&& tensor) = delete;
  TensorView& operator=(Tensor&& tensor) = delete;
  TensorView& operator=(const Tensor& tensor) { return *this = TensorView(tensor); }
  TensorView(const TensorView& tensor) = default;
  TensorView& operator=(const TensorView& tensor) = default;

  TensorView as_strided(ShapeView shape, ShapeView strides, std::optional<std::int64_t> element_offset = {}) const {
    TVM_FFI_ICHECK_EQ(shape.size(), strides.size());
    const std::int64_t elem_offset_as_i64 = element_offset.value_or(0);
    TVM_FFI_ICHECK_GE(elem_offset_as_i64, 0);
    TensorView result = *this;
    DLTensor& made = result.tensor_;
    made.shape = const_cast<std::int64_t*>(shape.data());
    made.ndim = static_cast<std::int32_t>(shape.size());
    made.strides = const_cast<std::int64_t*>(strides.data());
    made.byte_offset += GetDataSize(static_cast<std::size_t>(elem_offset_as_i64), made.dtype);
    if (IsDirectAddressDevice(made.device)) {
      made.data = static_cast<char*>(made.data) + std::exchange(made.byte_offset, 0);
    }
    return result;
  }

 private:
  static constexpr const char* kStridesChecked = "tensor_.strides != nullptr || tensor_.ndim == 0";

  const DLTensor& tensor() const { return tensor_; }

  DLTensor tensor_;

  friend class KjitTensor<TensorView>;
};

inline std::size_t GetDataSize(const Tensor& tensor) {
  return GetDataSize(static_cast<std::size_t>(tensor.numel()), tensor.dtype());
}
inline std::size_t GetDataSize(const TensorView& tensor) {
  return GetDataSize(static_cast<std::size_t>(tensor.numel()), tensor.dtype());
}

inline std::string DLDataTypeToString(DLDataType dtype) {
  TVMFFIAny text{};
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIDataTypeToString(&dtype, &text));
  if (text.type_index == kTVMFFISmallStr) return {text.v_bytes, text.small_str_len};
  const auto* bytes = reinterpret_cast<const TVMFFIByteArray*>(text.v_obj + 1);
  std::string result(bytes->data, bytes->size);
  TVMFFIObjectDecRef(text.v_obj);
  return result;
}
inline DLDataType StringToDLDataType(const std::string& text) {
  const TVMFFIByteArray bytes{text.data(), text.size()};
  DLDataType result;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIDataTypeFromString(&bytes, &result));
  return result;
}

/// tvm-ffi's name of a type: `text` in `optionals` levels of `Optional<...>`.
struct KjitName {
  const char* text = nullptr;
  int optionals = 0;

  void append_to(std::string& out) const {
    for (int i = 0; i < optionals; ++i) out += "Optional<";
    out += text;
    out.append(static_cast<std::size_t>(optionals), '>');
  }
};

/// Conversion of a `T` from a value of the caller, as `std::optional<T>`, and to one. `kIsKnown` is false for types
/// that this header lacks.
template <typename T, typename = void>
struct KjitValue {
  static constexpr bool kIsKnown = false, kIsStored = false;
  static constexpr KjitName name() { return {"", 0}; }
};

struct KjitKnown {
  static constexpr bool kIsKnown = true, kIsStored = true;
};

template <>
struct KjitValue<bool> : KjitKnown {
  static constexpr KjitName name() { return {"bool", 0}; }
  static std::optional<bool> take(const TVMFFIAny& value) {
    if (value.type_index != kTVMFFIInt && value.type_index != kTVMFFIBool) return {};
    return value.v_int64 != 0;
  }
  static void give(bool value, TVMFFIAny* result) {
    result->type_index = kTVMFFIBool;
    result->v_int64 = value;
  }
};

template <typename T>
struct KjitValue<T, std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>>> : KjitKnown {
  static constexpr KjitName name() { return {"int", 0}; }
  static std::optional<T> take(const TVMFFIAny& value) {
    if (value.type_index != kTVMFFIInt && value.type_index != kTVMFFIBool) return {};
    return static_cast<T>(value.v_int64);
  }
  static void give(T value, TVMFFIAny* result) {
    result->type_index = kTVMFFIInt;
    result->v_int64 = static_cast<std::int64_t>(value);
  }
};

template <typename T>
struct KjitValue<T, std::enable_if_t<std::is_floating_point_v<T>>> : KjitKnown {
  static constexpr KjitName name() { return {"float", 0}; }
  static std::optional<T> take(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFIFloat) return static_cast<T>(value.v_float64);
    if (value.type_index != kTVMFFIInt && value.type_index != kTVMFFIBool) return {};
    return static_cast<T>(value.v_int64);
  }
  static void give(T value, TVMFFIAny* result) {
    result->type_index = kTVMFFIFloat;
    result->v_float64 = static_cast<double>(value);
  }
};

template <>
struct KjitValue<void*> : KjitKnown {
  static constexpr KjitName name() { return {"void*", 0}; }
  static std::optional<void*> take(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFINone) return nullptr;
    if (value.type_index != kTVMFFIOpaquePtr) return {};
    return value.v_ptr;
  }
  static void give(void* value, TVMFFIAny* result) {
    result->type_index = kTVMFFIOpaquePtr;
    result->v_ptr = value;
  }
};

template <>
struct KjitValue<DLTensor*> : KjitKnown {
  static constexpr bool kIsStored = false;
  static constexpr KjitName name() { return {"DLTensor*", 0}; }
  static std::optional<DLTensor*> take(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<DLTensor*>(value.v_ptr);
    if (value.type_index != kTVMFFITensor) return {};
    return TVMFFITensorGetDLTensorPtr(value.v_obj);
  }
};

template <>
struct KjitValue<TensorView> : KjitKnown {
  static constexpr bool kIsStored = false;
  static constexpr KjitName name() { return {"DLTensor*", 0}; }
  static std::optional<TensorView> take(const TVMFFIAny& value) {
    const std::optional<DLTensor*> tensor = KjitValue<DLTensor*>::take(value);
    if (!tensor) return {};
    return TensorView(*tensor);
  }
};

template <>
struct KjitValue<Tensor> : KjitKnown {
  static constexpr KjitName name() { return {"ffi.Tensor", 0}; }
  static std::optional<Tensor> take(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFINone) return Tensor();
    if (value.type_index != kTVMFFITensor) return {};
    TVMFFIObjectIncRef(value.v_obj);
    return Tensor(value.v_obj);
  }
  static void give(Tensor value, TVMFFIAny* result) {
    if (!value.defined()) return;
    result->type_index = kTVMFFITensor;
    result->v_obj = static_cast<TVMFFIObject*>(std::exchange(value.object_, nullptr));
  }
};

/// A value, or None from Python.
template <typename T, typename = void>
class Optional {
  static_assert(KjitValue<T>::kIsKnown && !std::is_same_v<T, Tensor>, "kjit_light: tvm-ffi knows this type");
  using Value = std::conditional_t<KjitValue<T>::kIsStored, T, const T&>;

 public:
  Optional() = default;
  Optional(std::nullopt_t) {}
  Optional(std::optional<T> value) : value_(std::move(value)) {}
  Optional(T value) : value_(std::move(value)) {}

  bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return value_.has_value(); }
  Value value() const {
    if (TVM_FFI_PREDICT_FALSE(!has_value())) TVM_FFI_THROW(RuntimeError) << "Back optional access";
    return *value_;
  }
  Value operator*() const noexcept { return *value_; }
  template <typename U = T>
  T value_or(U&& other) const {
    return value_.value_or(std::forward<U>(other));
  }
  bool operator==(std::nullopt_t) const noexcept { return !has_value(); }
  bool operator!=(std::nullopt_t) const noexcept { return has_value(); }

 private:
  std::optional<T> value_;
};

template <typename T>
struct KjitValue<Optional<T>> : KjitKnown {
  static constexpr bool kIsStored = false;
  static constexpr KjitName name() { return {KjitValue<T>::name().text, KjitValue<T>::name().optionals + 1}; }
  static std::optional<Optional<T>> take(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFINone) return Optional<T>();
    std::optional<T> taken = KjitValue<T>::take(value);
    if (!taken) return {};
    return Optional<T>(std::move(taken));
  }
};

namespace detail {

/// The parameter and result types of a function.
struct Signature {
  const char* function;
  const KjitName* parameters;
  std::int32_t count;
  KjitName result;

  /// `add(0: DLTensor*, 1: int) -> void`
  TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE std::string text() const {
    std::string out = function;
    out += '(';
    for (std::int32_t i = 0; i < count; ++i) {
      if (i != 0) out += ", ";
      out += std::to_string(i);
      out += ": ";
      parameters[i].append_to(out);
    }
    out += ") -> ";
    result.append_to(out);
    return out;
  }
};

template <typename T>
constexpr KjitName name_of_result() {
  if constexpr (std::is_void_v<T>) {
    return {"void", 0};
  } else {
    return KjitValue<T>::name();
  }
}

[[noreturn]] TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE inline void mismatched(const Signature& signature, int index,
                                                                        const TVMFFIAny& value) {
  const TVMFFIByteArray& got = TVMFFIGetTypeInfo(value.type_index)->type_key;
  std::string expected;
  signature.parameters[index].append_to(expected);
  TVM_FFI_THROW(TypeError) << "Mismatched type on argument #" << index << " when calling: `" << signature.text()
                           << "`. Expected `" << expected << "` but got `" << std::string(got.data, got.size) << '`';
}
[[noreturn]] TVM_FFI_COLD_CODE TVM_FFI_NO_INLINE inline void miscounted(const Signature& signature,
                                                                        std::int32_t given) {
  TVM_FFI_THROW(TypeError) << "Mismatched number of arguments when calling: `" << signature.text() << "`. Expected "
                           << signature.count << " but got " << given << " arguments";
}

template <typename T>
TVM_FFI_INLINE T taken(const Signature& signature, const TVMFFIAny* args, int index) {
  std::optional<T> value = KjitValue<T>::take(args[index]);
  if (TVM_FFI_PREDICT_FALSE(!value.has_value())) mismatched(signature, index, args[index]);
  return *std::move(value);
}

template <typename... Parameters>
inline constexpr KjitName kNames[sizeof...(Parameters) + 1] = {KjitValue<Parameters>::name()...};

template <typename R, typename... Parameters, typename F, std::size_t... I>
TVM_FFI_INLINE void unpack(const F& function, const char* name, [[maybe_unused]] const TVMFFIAny* args,
                           std::int32_t given, [[maybe_unused]] TVMFFIAny* result, std::index_sequence<I...>) {
  static_assert((KjitValue<Parameters>::kIsKnown && ...) &&
                    (std::is_void_v<R> || (KjitValue<R>::kIsKnown && KjitValue<R>::kIsStored)),
                "kjit_light: tvm-ffi knows this type");
  constexpr auto kCount = static_cast<std::int32_t>(sizeof...(Parameters));
  const Signature signature{name, kNames<Parameters...>, kCount, name_of_result<R>()};
  if (TVM_FFI_PREDICT_FALSE(given != kCount)) miscounted(signature, given);
  if constexpr (std::is_void_v<R>) {
    function(taken<Parameters>(signature, args, static_cast<int>(I))...);
  } else {
    KjitValue<R>::give(function(taken<Parameters>(signature, args, static_cast<int>(I))...), result);
  }
}

/// Calls a function, or an object with one call operator (a lambda); the second parameter only carries the signature.
template <typename F, typename R, typename... Parameters>
TVM_FFI_INLINE void call(const F& function, R (*)(Parameters...), const char* name, const TVMFFIAny* args,
                         std::int32_t given, TVMFFIAny* result) {
  unpack<R, std::decay_t<Parameters>...>(function, name, args, given, result, std::index_sequence_for<Parameters...>());
}
template <typename F, typename C, typename R, typename... Parameters>
TVM_FFI_INLINE void call(const F& function, R (C::*)(Parameters...) const, const char* name, const TVMFFIAny* args,
                         std::int32_t given, TVMFFIAny* result) {
  unpack<R, std::decay_t<Parameters>...>(function, name, args, given, result, std::index_sequence_for<Parameters...>());
}
template <typename F>
TVM_FFI_INLINE void call(F function, const char* name, const TVMFFIAny* args, std::int32_t given, TVMFFIAny* result) {
  if constexpr (std::is_class_v<F>) {
    call(function, &F::operator(), name, args, given, result);
  } else {
    call(function, function, name, args, given, result);
  }
}

}  // namespace detail

}  // namespace tvm::ffi

#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(ExportName, Function)                                                \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##ExportName(void*, const TVMFFIAny* args, int32_t num_args, \
                                                           TVMFFIAny* result) {                            \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                             \
    ::tvm::ffi::detail::call(Function, #ExportName, args, num_args, result);                               \
    TVM_FFI_SAFE_CALL_END();                                                                               \
  }

inline std::ostream& operator<<(std::ostream& os, DLDataType dtype) {
  return os << ::tvm::ffi::DLDataTypeToString(dtype);
}
inline bool operator==(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool operator!=(const DLDataType& a, const DLDataType& b) {
  return !(a == b);
}
