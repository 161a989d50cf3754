// Checks tensors against what a kernel expects, and binds sizes, dtype and device on the way.
//
//   SymbolicSize N{"num_tokens"}, D{"head_dim"};
//   SymbolicDevice device;
//   TensorMatcher({N, D}).with_device<kDLCUDA>(device).with_dtype<fp16_t, bf16_t>()
//       .verify(dst, "dst").verify(src, "src");
//   const int64_t rows = N.unwrap();
//
// A symbol is bound by the first tensor and must agree with every later one. Sizes may be expressions,
// `TensorMatcher({N, 2 * D})` or `{N, D / 128}`: they are checked if their symbols are bound, and solved for one that
// is not. -1 matches any size or stride. Without `with_strides` a tensor must be contiguous. A mismatch message names
// the argument, what was expected, where the symbol was bound, and what was found.
//
// In a template, write `.with_device<...>()` before `.with_dtype<T>()`: calls after one that depends on T would need
// the keyword `template`. nvcc 13.3 requires it after `.ensure_alignment(sizeof(T))`, too.

#pragma once

#include <kjit/bits.h>
#include <kjit/dtype.h>
#include <kjit/ffi.h>
#include <kjit/utils.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace kjit {

namespace host {

namespace details {

inline constexpr std::int64_t kAnySize = -1;
inline constexpr int kAnyDeviceId = -1;
inline constexpr int kMaxDimensions = 16;
inline constexpr int kMaxOptions = 32;

/// What bound a symbol: `src at scale.cuh:40`, or a tensor of a list, `xs[2]`.
struct Binding {
  const char* name = nullptr;
  DebugInfo where = source_location_t();
  std::int64_t index = -1;

  void append_name(Message& message) const;
  void describe(Message& message) const;
};

/// A `std::array`, `std::span`, `std::vector`, ... of `T`.
template <typename R, typename T>
concept ListOf = requires(const R& list) {
  { list.data() } -> std::convertible_to<const T*>;
  { list.size() } -> std::convertible_to<std::size_t>;
};

class Matching;

}  // namespace details

class TensorMatcher;

/// A named size or stride.
class SymbolicSize {
 public:
  SymbolicSize(const char* name = "") noexcept : name_(name) {}
  SymbolicSize(const SymbolicSize&) = delete;
  SymbolicSize& operator=(const SymbolicSize&) = delete;

  StringView get_name() const noexcept { return name_; }
  bool has_value() const noexcept { return has_value_; }

  /// Its value, if bound.
  Optional<std::int64_t> get_value() const noexcept {
    return has_value_ ? Optional<std::int64_t>(value_) : Optional<std::int64_t>();
  }

  /// Its value, or its name in messages: `shape#1('head_dim')`.
  Message value_or_name(const char* what, std::int64_t dimension) const;

  /// Binds it; an error if it is bound already.
  void set_value(std::int64_t value, DebugInfo where = {});

  /// Its value; an error if no tensor has bound it.
  std::int64_t unwrap(DebugInfo where = {}) const;

  /// Binds it to `value`, or requires that it equals `value`. `what` and `dimension` are for the message.
  void verify(std::int64_t value, const char* what, std::int64_t dimension, DebugInfo where = {});

 private:
  friend class TensorMatcher;
  friend class details::Matching;

  void bind(std::int64_t value, details::Binding by, bool weak = false) noexcept;
  bool accept(std::int64_t value, details::Binding by) noexcept;
  /// The stride of a dimension of size 1 is arbitrary: it binds a symbol only if nothing else does.
  void suggest(std::int64_t value, details::Binding by) noexcept;
  void describe(Message& message, const char* what, std::int64_t dimension) const;
  KJIT_COLD void describe_mismatch(Message& cause, std::int64_t value, const char* what, std::int64_t dimension) const;

  const char* name_;
  std::int64_t value_ = 0;
  details::Binding bound_;
  bool has_value_ = false;
  bool weak_ = false;
};

/// A named shape of any rank: for element-wise kernels, `TensorMatcher(shape)`.
class SymbolicShape {
 public:
  SymbolicShape(const char* name = "") noexcept : name_(name) {}
  SymbolicShape(const SymbolicShape&) = delete;
  SymbolicShape& operator=(const SymbolicShape&) = delete;

  bool has_value() const noexcept { return has_value_; }

  /// The shape, viewed in the first tensor that was verified; an error if there is none.
  ShapeView unwrap(DebugInfo where = {}) const;

  /// The number of elements; an error if no tensor has bound the shape.
  std::int64_t numel(DebugInfo where = {}) const;

 private:
  friend class TensorMatcher;
  friend class details::Matching;

  const char* name_;
  ShapeView value_;
  details::Binding bound_;
  bool has_value_ = false;
};

namespace details {

/// A named dtype or device, optionally restricted to a list.
template <typename T>
class Symbol {
 public:
  Symbol() noexcept = default;
  Symbol(const Symbol&) = delete;
  Symbol& operator=(const Symbol&) = delete;

  bool has_value() const noexcept { return has_value_; }
  /// Its value, if bound.
  Optional<T> get_value() const noexcept { return has_value_ ? Optional<T>(value_) : Optional<T>(); }
  /// Binds it; an error if it is bound already.
  void set_value(T value, DebugInfo where = {});
  /// Its value; an error if no tensor has bound it.
  T unwrap(DebugInfo where = {}) const;
  /// Binds it to `value`, or requires that it equals `value`.
  void verify(T value, DebugInfo where = {});

 protected:
  void allow(const T* begin, std::size_t size, DebugInfo where);

  T value_{};
  bool has_value_ = false;

 private:
  friend class host::TensorMatcher;
  friend class Matching;

  void assign(const Symbol& other) noexcept;
  bool accept(T value, Binding by) noexcept;
  KJIT_COLD void describe_mismatch(Message& cause, T value) const;

  T options_[kMaxOptions];
  int option_count_ = 0;
  Binding bound_;
};

}  // namespace details

/// A named dtype, optionally restricted to a list.
class SymbolicDType : public details::Symbol<DLDataType> {
 public:
  template <typename T>
  bool is_type() const {
    return has_value_ && host::is_type<T>(value_);
  }

  template <typename... Ts>
  void set_options(DebugInfo where = {}) {
    set_options({details::DLDataTypeTrait<Ts>::value...}, where);
  }
  void set_options(std::initializer_list<DLDataType> options, DebugInfo where = {}) {
    allow(options.begin(), options.size(), where);
  }
  template <details::ListOf<DLDataType> R>
  void set_options(const R& options, DebugInfo where = {}) {
    allow(options.data(), options.size(), where);
  }
};

/// A named device, optionally restricted to a list; an id of -1 in the list allows every id.
class SymbolicDevice : public details::Symbol<DLDevice> {
 public:
  template <DLDeviceType... kTypes>
  void set_options(DebugInfo where = {}) {
    set_options({DLDevice{kTypes, details::kAnyDeviceId}...}, where);
  }
  void set_options(std::initializer_list<DLDevice> options, DebugInfo where = {}) {
    allow(options.begin(), options.size(), where);
  }
  template <details::ListOf<DLDevice> R>
  void set_options(const R& options, DebugInfo where = {}) {
    allow(options.data(), options.size(), where);
  }
};

namespace details {

/// A size in a matcher: a number, -1 for any, a symbol, or an expression in symbols:
/// `value * symbol * times / divisor + more + plus`, where the division has no remainder.
struct SizeRef {
  SizeRef(SymbolicSize& size) noexcept : symbol(&size), value(1) {}
  template <std::integral T>
  SizeRef(T size) noexcept : symbol(nullptr), value(static_cast<std::int64_t>(size)) {}
  SizeRef() noexcept = default;  // uninitialised: a matcher has room for many and uses few

  SymbolicSize* symbol;
  std::int64_t value;
  bool is_computed = false;
  SymbolicSize* times = nullptr;
  std::int64_t divisor = 1;
  SymbolicSize* more = nullptr;
  std::int64_t plus = 0;
};

}  // namespace details

/// `2 * D`, `H * D`: at most two symbols, before any division or sum.
details::SizeRef operator*(const details::SizeRef& a, const details::SizeRef& b);
/// `D / 128`: an error if there is a remainder.
details::SizeRef operator/(const details::SizeRef& size, std::int64_t divisor);
/// `A + B`, `D + 1`.
details::SizeRef operator+(const details::SizeRef& a, const details::SizeRef& b);
/// `D - 1`.
details::SizeRef operator-(const details::SizeRef& size, std::int64_t number);

/// What a kernel expects of a tensor: `TensorMatcher({N, 128}).with_device<kDLCUDA>().with_dtype<fp32_t>().verify(x)`.
///
/// Symbols are kept by reference and must outlive it. Errors are `PanicError`s, a `RuntimeError` in Python. It can be
/// stored, `auto matcher = TensorMatcher({N}).with_device<kDLCPU>();`, and copied; a reference to a temporary one
/// dangles.
class TensorMatcher {
 public:
  /// Sizes: numbers, -1 (any), or symbols. At most 16 dimensions.
  explicit TensorMatcher(std::initializer_list<details::SizeRef> shape, DebugInfo where = {});
  /// Any rank; every tensor verified against the same symbol must have the same shape.
  explicit TensorMatcher(SymbolicShape& shape) noexcept : whole_shape_(&shape) {}
  /// The dimensions of `leading`, of any number, then these sizes: `TensorMatcher(batch, {D})`.
  TensorMatcher(SymbolicShape& leading, std::initializer_list<details::SizeRef> last, DebugInfo where = {});
  TensorMatcher(const TensorMatcher& other) noexcept { *this = other; }
  TensorMatcher& operator=(const TensorMatcher& other) noexcept;

  /// Strides in elements, one for each dimension: numbers, -1 (any), or symbols. The stride of a dimension of size 1 is
  /// not checked.
  TensorMatcher& with_strides(std::initializer_list<details::SizeRef> strides, DebugInfo where = {});

  /// One of the dtypes of `Ts`.
  template <typename... Ts>
  TensorMatcher& with_dtype() {
    static_assert(sizeof...(Ts) > 0, "with_dtype needs a type, a symbol, or a dtype");
    own_dtype_.set_options<Ts...>();
    return use(own_dtype_, {});
  }
  /// Matches and binds `dtype`. With types, they replace its options; without, it keeps its own.
  template <typename... Ts>
  TensorMatcher& with_dtype(SymbolicDType& dtype, DebugInfo where = {}) {
    if constexpr (sizeof...(Ts) > 0) dtype.set_options<Ts...>();
    return use(dtype, where);
  }
  /// Exactly this dtype, or one of these.
  TensorMatcher& with_dtype(DLDataType dtype, DebugInfo where = {}) { return with_dtype({dtype}, where); }
  TensorMatcher& with_dtype(std::initializer_list<DLDataType> dtypes, DebugInfo where = {});
  template <details::ListOf<DLDataType> R>
  TensorMatcher& with_dtype(const R& dtypes, DebugInfo where = {}) {
    own_dtype_.set_options(dtypes, where);
    return use(own_dtype_, where);
  }

  /// A device of one of these types: `with_device<kDLCUDA>()`.
  template <DLDeviceType... kTypes>
  TensorMatcher& with_device() {
    static_assert(sizeof...(kTypes) > 0, "with_device needs a type of device, a symbol, or a device");
    own_device_.set_options<kTypes...>();
    return use(own_device_, {});
  }
  /// Matches and binds `device`. With types, they replace its options; without, it keeps its own.
  template <DLDeviceType... kTypes>
  TensorMatcher& with_device(SymbolicDevice& device, DebugInfo where = {}) {
    if constexpr (sizeof...(kTypes) > 0) device.set_options<kTypes...>();
    return use(device, where);
  }
  /// Exactly this device, or one of these.
  TensorMatcher& with_device(DLDevice device, DebugInfo where = {}) { return with_device({device}, where); }
  TensorMatcher& with_device(std::initializer_list<DLDevice> devices, DebugInfo where = {});
  template <details::ListOf<DLDevice> R>
  TensorMatcher& with_device(const R& devices, DebugInfo where = {}) {
    own_device_.set_options(devices, where);
    return use(own_device_, where);
  }

  /// The data is aligned to `alignment` bytes, and so is every row: all strides except the last are multiples of it.
  /// What vector loads of that size need.
  TensorMatcher& ensure_alignment(std::int64_t alignment, DebugInfo where = {});

  /// No two elements share memory: every stride is at least the extent of the dimensions with smaller strides. Needed
  /// by ops that write to a strided tensor.
  TensorMatcher& ensure_no_overlap() noexcept {
    no_overlap_ = true;
    return *this;
  }

  /// Throws unless `view` matches and its data is aligned to its element size. `name` identifies it in the message.
  TensorMatcher& verify(const TensorView& view, const char* name, DebugInfo where = {});
  TensorMatcher& verify(const TensorView& view, DebugInfo where = {}) { return verify(view, nullptr, where); }
  /// The same for a tensor that may be absent, then without a check.
  TensorMatcher& verify(const Optional<TensorView>& view, const char* name, DebugInfo where = {}) {
    return view.has_value() ? verify(view.value(), name, where) : *this;
  }
  /// The same for every tensor of a list.
  TensorMatcher& verify(const TensorListView& views, const char* name, DebugInfo where = {});

 private:
  friend class details::Matching;

  void verify(const TensorView& view, details::Binding by);
  static int copy(std::initializer_list<details::SizeRef> from, details::SizeRef* to, DebugInfo where);
  TensorMatcher& use(SymbolicDType& dtype, DebugInfo where);
  TensorMatcher& use(SymbolicDevice& device, DebugInfo where);

  details::SizeRef shape_[details::kMaxDimensions];
  details::SizeRef strides_[details::kMaxDimensions];
  int ndim_ = 0;
  bool has_strides_ = false;
  bool no_overlap_ = false;
  std::int64_t alignment_ = 0;
  SymbolicShape* whole_shape_ = nullptr;
  SymbolicDType* dtype_ = nullptr;
  SymbolicDevice* device_ = nullptr;
  SymbolicDType own_dtype_;
  SymbolicDevice own_device_;
};

/// The data pointer of a tensor as a kernel parameter: `data_of<const T>(x)`; null if it is absent.
template <typename T>
T* data_of(const TensorView& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
template <typename T>
T* data_of(const Optional<TensorView>& tensor) {
  return tensor.has_value() ? data_of<T>(tensor.value()) : nullptr;
}

/// Copies the data pointers of a list of tensors into an array, for a kernel; an error for an empty list, or one longer
/// than the array. `name` identifies the list in the message.
template <typename T, std::size_t N>
void fill_pointers(T* (&pointers)[N], const TensorListView& tensors, const char* name, DebugInfo where = {}) {
  if (tensors.empty() || tensors.size() > N) [[unlikely]] {
    panic(where, name, ": expected 1 to ", N, " tensors but got ", tensors.size());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) pointers[i] = static_cast<T*>(tensors[i].data_ptr());
}

}  // namespace host

}  // namespace kjit

#ifndef KJIT_PRECOMPILED
#include <kjit/tensor.cpp>
#endif
