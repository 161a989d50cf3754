// The functions of kjit/tensor.h that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/tensor.h>

namespace kjit::host {

namespace details {

KJIT_IMPL void Binding::append_name(Message& message) const {
  message << name;
  if (index >= 0) message << "[" << index << "]";
}

KJIT_IMPL void Binding::describe(Message& message) const {
  if (where.line() == 0) return;
  message << " (bound";
  if (name != nullptr) {
    message << " by ";
    append_name(message);
  }
  message << " at " << where.short_file_name() << ":" << where.line() << ")";
}

constexpr const char* name_of(DLDataType) {
  return "Dtype";
}
constexpr const char* name_of(DLDevice) {
  return "Device";
}
constexpr bool is_same(DLDataType a, DLDataType b) {
  return same_dtype(a, b);
}
constexpr bool is_same(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}
constexpr bool is_allowed(DLDataType dtype, DLDataType option) {
  return is_same(dtype, option);
}
constexpr bool is_allowed(DLDevice device, DLDevice option) {
  return is_same(device, option) || (device.device_type == option.device_type && option.device_id == kAnyDeviceId);
}

template <typename T>
void Symbol<T>::set_value(T value, DebugInfo where) {
  if (has_value_) panic(where, name_of(value), " value already set");
  verify(value, where);
}

template <typename T>
T Symbol<T>::unwrap(DebugInfo where) const {
  if (!has_value_) panic(where, name_of(value_), " value is not set");
  return value_;
}

template <typename T>
void Symbol<T>::verify(T value, DebugInfo where) {
  if (accept(value, {nullptr, where})) return;
  Message cause;
  describe_mismatch(cause, value);
  panic(where, cause);
}

template <typename T>
void Symbol<T>::allow(const T* begin, std::size_t size, DebugInfo where) {
  if (size > static_cast<std::size_t>(kMaxOptions)) {
    panic(where, "at most ", kMaxOptions, " options can be given, not ", size);
  }
  option_count_ = static_cast<int>(size);
  for (int i = 0; i < option_count_; ++i) options_[i] = begin[i];
}

template <typename T>
void Symbol<T>::assign(const Symbol& other) noexcept {
  allow(other.options_, static_cast<std::size_t>(other.option_count_), {});
  value_ = other.value_;
  bound_ = other.bound_;
  has_value_ = other.has_value_;
}

template <typename T>
bool Symbol<T>::accept(T value, Binding by) noexcept {
  bool allowed = option_count_ == 0;
  for (int i = 0; i < option_count_; ++i) allowed = allowed || is_allowed(value, options_[i]);
  if (!allowed || has_value_) return allowed && is_same(value_, value);
  value_ = value;
  bound_ = by;
  has_value_ = true;
  return true;
}

template <typename T>
void Symbol<T>::describe_mismatch(Message& cause, T value) const {
  cause << (std::is_same_v<T, DLDevice> ? "Device" : "DType") << " mismatch: expected ";
  if (has_value_) {
    cause << value_;
    bound_.describe(cause);
  } else {
    if (option_count_ != 1) cause << "one of [";
    for (int i = 0; i < option_count_; ++i) cause << (i > 0 ? ", " : "") << options_[i];
    if (option_count_ != 1) cause << "]";
  }
  cause << " but got " << value;
}

#ifdef KJIT_PRECOMPILED
template class Symbol<DLDataType>;
template class Symbol<DLDevice>;
#endif

}  // namespace details

KJIT_IMPL void SymbolicSize::set_value(std::int64_t value, DebugInfo where) {
  if (has_value_) panic(where, "Size value already set");
  bind(value, {nullptr, where});
}

KJIT_IMPL std::int64_t SymbolicSize::unwrap(DebugInfo where) const {
  if (!has_value_) panic(where, "Size value is not set", name_[0] == '\0' ? "" : ": ", name_);
  return value_;
}

KJIT_IMPL void SymbolicSize::verify(std::int64_t value, const char* what, std::int64_t dimension, DebugInfo where) {
  if (accept(value, {nullptr, where})) return;
  Message cause;
  describe_mismatch(cause, value, what, dimension);
  panic(where, cause);
}

KJIT_IMPL void SymbolicSize::bind(std::int64_t value, details::Binding by, bool weak) noexcept {
  value_ = value;
  bound_ = by;
  has_value_ = true;
  weak_ = weak;
}

KJIT_IMPL bool SymbolicSize::accept(std::int64_t value, details::Binding by) noexcept {
  if (has_value_ && !weak_) return value_ == value;
  bind(value, by);
  return true;
}

KJIT_IMPL void SymbolicSize::suggest(std::int64_t value, details::Binding by) noexcept {
  if (!has_value_) bind(value, by, /*weak=*/true);
}

KJIT_IMPL Message SymbolicSize::value_or_name(const char* what, std::int64_t dimension) const {
  Message message;
  if (has_value_) {
    message << value_;
  } else {
    describe(message, what, dimension);
  }
  return message;
}

KJIT_IMPL void SymbolicSize::describe(Message& message, const char* what, std::int64_t dimension) const {
  message << what << "#" << dimension;
  if (name_[0] != '\0') message << "('" << name_ << "')";
}

KJIT_IMPL void SymbolicSize::describe_mismatch(Message& cause, std::int64_t value, const char* what,
                                               std::int64_t dimension) const {
  cause << "Size mismatch for ";
  describe(cause, what, dimension);
  cause << ": expected " << value_;
  bound_.describe(cause);
  cause << " but got " << value;
}

KJIT_IMPL ShapeView SymbolicShape::unwrap(DebugInfo where) const {
  if (!has_value_) panic(where, "Shape is not set", name_[0] == '\0' ? "" : ": ", name_);
  return value_;
}

KJIT_IMPL std::int64_t SymbolicShape::numel(DebugInfo where) const {
  return unwrap(where).Product();
}

namespace details {

/// `<2, 3>`, of sizes or strides.
template <typename Sizes>
void describe_list(Message& message, const Sizes& sizes) {
  message << "<";
  for (std::size_t i = 0; i < sizes.size(); ++i) message << (i > 0 ? ", " : "") << sizes[i];
  message << ">";
}

/// One `verify`: compares, and reports the first mismatch.
class Matching {
 public:
  Matching(TensorMatcher& matcher, const TensorView& view, Binding by) : matcher_(matcher), view_(view), by_(by) {}

  bool matches() {
    return shape_matches() && strides_match() && value_matches<DLDataType>(matcher_.dtype_, view_.dtype()) &&
           value_matches<DLDevice>(matcher_.device_, view_.device()) && data_matches();
  }

  [[noreturn]] KJIT_COLD void fail() const {
    Message message;
    message << "Tensor match failed for ";
    if (by_.name != nullptr) {
      by_.append_name(message);
      message << ": ";
    }
    message << "Tensor";
    describe_list(message, view_.shape());
    message << "[strides=";
    describe_list(message, view_.strides());
    message << ", dtype=" << view_.dtype() << ", device=" << view_.device() << "] at " << by_.where.short_file_name()
            << ":" << by_.where.line() << "\n- Root cause: " << cause_;
    throw PanicError(message);
  }

 private:
  bool size_matches(const SizeRef& expected, std::int64_t size, const char* what, std::size_t dimension) {
    if (expected.is_computed) return computed_matches(expected, size, what, dimension);
    if (expected.symbol != nullptr) {
      if (expected.symbol->accept(size, by_)) return true;
      expected.symbol->describe_mismatch(cause_, size, what, static_cast<std::int64_t>(dimension));
      return false;
    }
    if (expected.value == kAnySize || expected.value == size) return true;
    cause_ << "Size mismatch for " << what << "#" << dimension << ": expected " << expected.value << " but got "
           << size;
    return false;
  }

  /// The name of a symbolic expression in messages: `2*D`.
  static void describe_computed(Message& message, const SizeRef& size) {
    if (size.value != 1) message << size.value << "*";
    message << size.symbol->get_name();
    if (size.times != nullptr) message << "*" << size.times->get_name();
    if (size.divisor != 1) message << "/" << size.divisor;
    if (size.more != nullptr) message << "+" << size.more->get_name();
    if (size.plus != 0) message << (size.plus > 0 ? "+" : "") << size.plus;
  }

  /// `, as D is 3 (bound by out at scale.cuh:40)`
  static void describe_values(Message& message, const SizeRef& size) {
    const char* word = ", as ";
    for (const SymbolicSize* symbol : {size.symbol, size.times, size.more}) {
      if (symbol == nullptr || !symbol->has_value_) continue;
      message << word << symbol->get_name() << " is " << symbol->value_;
      symbol->bound_.describe(message);
      word = " and ";
    }
  }

  /// Reports why a size does not match; always returns false.
  KJIT_COLD bool is_wrong(const SizeRef& expected, std::int64_t size, const char* what, std::size_t dimension,
                          std::initializer_list<Piece> parts) {
    cause_ << "Size mismatch for " << what << "#" << dimension << "('";
    describe_computed(cause_, expected);
    cause_ << "'): ";
    for (const Piece& part : parts) cause_ << part;
    describe_values(cause_, expected);
    cause_ << " but got " << size;
    return false;
  }

  /// Compares a size with an expression, or solves it for its unbound symbol.
  bool computed_matches(const SizeRef& expected, std::int64_t size, const char* what, std::size_t dimension) {
    SymbolicSize* unknown = nullptr;
    for (SymbolicSize* symbol : {expected.symbol, expected.times, expected.more}) {
      if (symbol == nullptr || symbol->has_value_) continue;
      if (unknown != nullptr) {
        panic(by_.where, "'", unknown->get_name(), "' and '", symbol->get_name(),
              "' have no value yet: verify a tensor that has one of these sizes before this one");
      }
      unknown = symbol;
    }
    const auto value = [](const SymbolicSize* symbol, std::int64_t other) {
      return symbol != nullptr && symbol->has_value_ ? symbol->value_ : other;
    };
    std::int64_t product = 0, rest = 0, plus = 0;
    if (__builtin_mul_overflow(expected.value, value(expected.symbol, 1), &product) ||
        __builtin_mul_overflow(product, value(expected.times, 1), &product) ||
        __builtin_add_overflow(expected.plus, value(expected.more, 0), &plus) ||
        __builtin_sub_overflow(size, plus, &rest)) {
      return is_wrong(expected, size, what, dimension, {"expected a size of more than 63 bits"});
    }
    if (unknown != nullptr && unknown != expected.more) {  // (size - plus) * divisor must be a multiple of the product
      std::int64_t multiple = 0;
      const bool fits = rest >= 0 && !__builtin_mul_overflow(rest, expected.divisor, &multiple);
      if (fits && (product == 0 ? multiple == 0 : multiple % product == 0)) {
        unknown->bind(product == 0 ? 0 : multiple / product, by_, /*weak=*/product == 0);
        return true;
      }
      if (plus == 0) return is_wrong(expected, size, what, dimension, {"expected a multiple of ", product});
      if (product == 1) return is_wrong(expected, size, what, dimension, {"expected at least ", plus});
      return is_wrong(expected, size, what, dimension, {"expected ", plus, " and a multiple of ", product});
    }
    if (product % expected.divisor != 0) {
      return is_wrong(expected, size, what, dimension, {expected.divisor, " does not divide ", product});
    }
    const std::int64_t quotient = product / expected.divisor;
    if (unknown != nullptr && rest >= quotient) {
      unknown->bind(rest - quotient, by_);
      return true;
    }
    if (unknown == nullptr && rest == quotient) return true;
    return is_wrong(expected, size, what, dimension,
                    {unknown == nullptr ? "expected " : "expected at least ", quotient + plus});
  }

  bool shape_matches() {
    const bool leading = matcher_.whole_shape_ != nullptr;
    if (leading ? view_.ndim() < matcher_.ndim_ : view_.ndim() != matcher_.ndim_) {
      cause_ << "Tensor dimension mismatch: expected " << (leading ? "at least " : "") << matcher_.ndim_ << " but got "
             << view_.ndim();
      return false;
    }
    const std::size_t first = view_.shape().size() - static_cast<std::size_t>(matcher_.ndim_);
    if (leading && !leading_shape_matches(*matcher_.whole_shape_, ShapeView(view_.shape().data(), first))) return false;
    for (std::size_t i = first; i < view_.shape().size(); ++i) {
      if (!size_matches(matcher_.shape_[i - first], view_.shape()[i], "shape", i)) return false;
    }
    return true;
  }

  bool leading_shape_matches(SymbolicShape& expected, ShapeView shape) {
    if (!expected.has_value_) {
      expected.value_ = shape;
      expected.bound_ = by_;
      expected.has_value_ = true;
      return true;
    }
    bool same = expected.value_.size() == shape.size();
    for (std::size_t i = 0; same && i < shape.size(); ++i) same = expected.value_[i] == shape[i];
    if (same) return true;
    cause_ << "Shape mismatch";
    if (expected.name_[0] != '\0') cause_ << " for '" << expected.name_ << "'";
    cause_ << ": expected ";
    describe_list(cause_, expected.value_);
    expected.bound_.describe(cause_);
    cause_ << " but got ";
    describe_list(cause_, shape);
    return false;
  }

  bool strides_match() {
    if (!matcher_.has_strides_) {
      if (view_.is_contiguous()) return true;
      cause_ << "Tensor is not contiguous as expected; its .contiguous() is a copy that is";
      return false;
    }
    for (std::size_t i = 0; i < view_.shape().size(); ++i) {
      const SizeRef& expected = matcher_.strides_[i];
      const std::int64_t stride = view_.strides()[i];
      if (view_.shape()[i] == 1) {
        if (expected.symbol != nullptr) expected.symbol->suggest(stride, by_);
      } else if (!size_matches(expected, stride, "stride", i)) {
        return false;
      }
    }
    return !matcher_.no_overlap_ || elements_are_apart();
  }

  /// Whether no two elements share memory; for tensors of any rank that a matcher supports.
  bool elements_are_apart() {
    if (view_.numel() == 0) return true;
    const auto stride = [this](std::size_t i) {
      const std::int64_t value = view_.strides()[i];
      return value < 0 ? -value : value;
    };
    std::int64_t taken = 1;  // extent of the dimensions so far, from the smallest stride on
    bool seen[kMaxDimensions] = {};
    for (std::size_t count = 0; count < view_.shape().size(); ++count) {
      std::size_t next = view_.shape().size();
      for (std::size_t i = 0; i < view_.shape().size(); ++i) {
        if (!seen[i] && (next == view_.shape().size() || stride(i) < stride(next))) next = i;
      }
      seen[next] = true;
      if (view_.shape()[next] == 1) continue;
      if (stride(next) < taken) {
        cause_ << "Tensor has overlapping elements, and is written to: the stride of dimension " << next << " is "
               << stride(next) << ", and the dimensions within it span " << taken;
        return false;
      }
      taken += (view_.shape()[next] - 1) * stride(next);
    }
    return true;
  }

  template <typename T>
  bool value_matches(Symbol<T>* symbol, T value) {
    if (symbol == nullptr || symbol->accept(value, by_)) return true;
    symbol->describe_mismatch(cause_, value);
    return false;
  }

  /// The alignment required to read single elements, in bytes; 1 for elements of less than a byte.
  std::uintptr_t element_alignment() const {
    const unsigned bits = view_.dtype().bits;
    return bits >= 8 && is_pow2(bits) ? bits / 8 : 1;
  }

  bool data_matches() {
    const auto address = reinterpret_cast<std::uintptr_t>(view_.data_ptr());
    const auto alignment = static_cast<std::uintptr_t>(matcher_.alignment_);
    const bool of_element = address % element_alignment() == 0;
    const bool of_vector = alignment == 0 || address % alignment == 0;
    if (address != 0 && of_element && alignment == 0) return true;
    if (view_.numel() == 0) return true;  // nothing is read or written
    if (address == 0) {
      cause_ << "Tensor has no data";
      return false;
    }
    if (!of_element) {
      cause_ << "Tensor data pointer is not aligned to its elements: " << view_.dtype() << " takes "
             << element_alignment() << " bytes";
      return false;
    }
    if (!of_vector) {
      cause_ << "Tensor data pointer is not aligned to " << alignment << " bytes";
      return false;
    }
    const std::int64_t bits = static_cast<std::int64_t>(view_.dtype().bits) * view_.dtype().lanes;
    for (std::size_t i = 0; i + 1 < view_.shape().size(); ++i) {
      if (view_.shape()[i] != 1 && (view_.strides()[i] * bits) % (matcher_.alignment_ * 8) != 0) {
        cause_ << "Tensor stride for dimension " << i << " is not aligned to " << alignment << " bytes";
        return false;
      }
    }
    return true;
  }

  TensorMatcher& matcher_;
  const TensorView& view_;
  Binding by_;
  Message cause_;
};

}  // namespace details

using details::Matching;

KJIT_IMPL details::SizeRef operator*(const details::SizeRef& a, const details::SizeRef& b) {
  const auto is_product = [](const details::SizeRef& size) {
    return size.divisor == 1 && size.more == nullptr && size.plus == 0;
  };
  SymbolicSize* symbols[4] = {a.symbol, a.times, b.symbol, b.times};
  SymbolicSize* found[2] = {nullptr, nullptr};
  int count = 0;
  for (SymbolicSize* symbol : symbols) {
    if (symbol != nullptr && count++ < 2) found[count - 1] = symbol;
  }
  details::SizeRef size(std::int64_t{1});
  if (count > 2 || !is_product(a) || !is_product(b) || __builtin_mul_overflow(a.value, b.value, &size.value) ||
      size.value < 1) {
    panic({}, "a size is a product of positive numbers and at most two symbols, before any division or sum");
  }
  size.symbol = found[0];
  size.times = found[1];
  size.is_computed = count > 0;
  return size;
}

KJIT_IMPL details::SizeRef operator/(const details::SizeRef& size, std::int64_t divisor) {
  if (divisor < 1) panic({}, "a size cannot be divided by ", divisor);
  if (size.divisor != 1 || size.more != nullptr || size.plus != 0 || (!size.is_computed && size.symbol == nullptr)) {
    panic({}, "a size is divided at most once, before any sum");
  }
  details::SizeRef quotient = size;
  quotient.divisor = divisor;
  quotient.is_computed = true;
  return quotient;
}

KJIT_IMPL details::SizeRef operator+(const details::SizeRef& a, const details::SizeRef& b) {
  details::SizeRef sum = a.symbol != nullptr ? a : b;
  const details::SizeRef& other = a.symbol != nullptr ? b : a;
  const bool is_number = other.symbol == nullptr;
  if (sum.symbol == nullptr || (!is_number && (sum.more != nullptr || other.is_computed))) {
    panic({}, "a sum of sizes has one product and at most one more symbol");
  }
  if (is_number) {
    sum.plus += other.value;
  } else {
    sum.more = other.symbol;
  }
  sum.is_computed = true;
  return sum;
}

KJIT_IMPL details::SizeRef operator-(const details::SizeRef& size, std::int64_t number) {
  return size + details::SizeRef(-number);
}

KJIT_IMPL TensorMatcher::TensorMatcher(std::initializer_list<details::SizeRef> shape, DebugInfo where)
    : ndim_(copy(shape, shape_, where)) {}

KJIT_IMPL TensorMatcher::TensorMatcher(SymbolicShape& leading, std::initializer_list<details::SizeRef> last,
                                       DebugInfo where)
    : ndim_(copy(last, shape_, where)), whole_shape_(&leading) {}

KJIT_IMPL TensorMatcher& TensorMatcher::operator=(const TensorMatcher& other) noexcept {
  for (int i = 0; i < other.ndim_; ++i) {
    shape_[i] = other.shape_[i];
    if (other.has_strides_) strides_[i] = other.strides_[i];
  }
  ndim_ = other.ndim_;
  has_strides_ = other.has_strides_;
  no_overlap_ = other.no_overlap_;
  alignment_ = other.alignment_;
  whole_shape_ = other.whole_shape_;
  own_dtype_.assign(other.own_dtype_);
  own_device_.assign(other.own_device_);
  dtype_ = other.dtype_ == &other.own_dtype_ ? &own_dtype_ : other.dtype_;
  device_ = other.device_ == &other.own_device_ ? &own_device_ : other.device_;
  return *this;
}

KJIT_IMPL TensorMatcher& TensorMatcher::with_strides(std::initializer_list<details::SizeRef> strides, DebugInfo where) {
  if (has_strides_) panic(where, "Strides already specified");
  if (whole_shape_ != nullptr) panic(where, "Strides need a shape that is given dimension by dimension");
  if (copy(strides, strides_, where) != ndim_) panic(where, "Strides size must match shape size");
  has_strides_ = true;
  return *this;
}

KJIT_IMPL TensorMatcher& TensorMatcher::with_dtype(std::initializer_list<DLDataType> dtypes, DebugInfo where) {
  own_dtype_.set_options(dtypes, where);
  return use(own_dtype_, where);
}

KJIT_IMPL TensorMatcher& TensorMatcher::with_device(std::initializer_list<DLDevice> devices, DebugInfo where) {
  own_device_.set_options(devices, where);
  return use(own_device_, where);
}

KJIT_IMPL TensorMatcher& TensorMatcher::ensure_alignment(std::int64_t alignment, DebugInfo where) {
  if (alignment_ != 0) panic(where, "Alignment already specified");
  if (alignment <= 0 || !is_pow2(static_cast<std::uint64_t>(alignment))) {
    panic(where, "Alignment must be a power of 2, not ", alignment);
  }
  alignment_ = alignment;
  return *this;
}

KJIT_IMPL TensorMatcher& TensorMatcher::verify(const TensorView& view, const char* name, DebugInfo where) {
  verify(view, details::Binding{name, where});
  return *this;
}

KJIT_IMPL TensorMatcher& TensorMatcher::verify(const TensorListView& views, const char* name, DebugInfo where) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    verify(views[i], details::Binding{name, where, static_cast<std::int64_t>(i)});
  }
  return *this;
}

KJIT_IMPL void TensorMatcher::verify(const TensorView& view, details::Binding by) {
#if KJIT_SIM
  if (::kjit_sim::note_name != nullptr && by.name != nullptr) ::kjit_sim::note_name(view.data_ptr(), by.name);
#endif
  Matching matching(*this, view, by);
  if (!matching.matches()) matching.fail();
}

KJIT_IMPL int TensorMatcher::copy(std::initializer_list<details::SizeRef> from, details::SizeRef* to, DebugInfo where) {
  if (from.size() > static_cast<std::size_t>(details::kMaxDimensions)) {
    panic(where, "a tensor of ", from.size(), " dimensions cannot be described; at most ", details::kMaxDimensions,
          " can");
  }
  int count = 0;
  for (const details::SizeRef& size : from) to[count++] = size;
  return count;
}

KJIT_IMPL TensorMatcher& TensorMatcher::use(SymbolicDType& dtype, DebugInfo where) {
  if (dtype_ != nullptr) panic(where, "DType already specified");
  dtype_ = &dtype;
  return *this;
}

KJIT_IMPL TensorMatcher& TensorMatcher::use(SymbolicDevice& device, DebugInfo where) {
  if (device_ != nullptr) panic(where, "Device already specified");
  device_ = &device;
  return *this;
}

}  // namespace kjit::host
