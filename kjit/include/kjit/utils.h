// Host-side basics: checks that throw with a readable message, integer helpers, ranges, pointer arithmetic.
//
//   RuntimeCheck(n > 0, "n must be positive, got ", n);    // throws PanicError, a RuntimeError in Python
//   CHECK_HOST(n > 0) << "n must be positive, got " << n;  // the same; arguments are evaluated only on failure
//   for (auto i : irange(n)) blocks += div_ceil(size[i], 256);
//
// Messages are formatted in a fixed buffer, without <string> or <sstream>: this header is nearly free to compile.

#pragma once

#include <dlpack/dlpack.h>
#include <kjit/source_location.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <type_traits>

// Functions that only report errors, kept out of the hot code.
#if defined(__GNUC__) || defined(__clang__)
#define KJIT_COLD __attribute__((cold))
#else
#define KJIT_COLD
#endif

// Where functions without template parameters are defined. By default in the headers, as inline functions: nothing has
// to be linked. A unit compiled with -DKJIT_PRECOMPILED only declares them and links against
// kjit/csrc/support/host.cpp. kjit's own builds do that, because compiling these functions again costs more than
// compiling a small kernel.
#ifdef KJIT_PRECOMPILED
#define KJIT_IMPL
#else
#define KJIT_IMPL inline
#endif

namespace kjit {

/// A non-owning view of text: what a Python `str` argument becomes. Not necessarily null-terminated.
class StringView {
 public:
  constexpr StringView() noexcept = default;
  constexpr StringView(const char* data, std::size_t size) noexcept : data_(data), size_(size) {}
  constexpr StringView(const char* text) noexcept : data_(text) {
    while (text != nullptr && text[size_] != '\0') ++size_;
  }

  constexpr const char* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr const char* begin() const noexcept { return data_; }
  constexpr const char* end() const noexcept { return data_ + size_; }
  constexpr char operator[](std::size_t i) const noexcept { return data_[i]; }

  friend constexpr bool operator==(StringView a, StringView b) noexcept {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i) {
      if (a.data_[i] != b.data_[i]) return false;
    }
    return true;
  }

 private:
  const char* data_ = "";
  std::size_t size_ = 0;
};

namespace host {

template <typename>
inline constexpr bool dependent_false_v = false;

/// The caller's source location, as a default argument: `void f(int n, DebugInfo where = {})`.
struct DebugInfo : source_location_t {
  constexpr DebugInfo(source_location_t where = source_location_t::current()) noexcept : source_location_t(where) {}

  /// The file name without its folders: messages do not depend on where the sources are.
  const char* short_file_name() const noexcept;
};

/// A printable part of a message. Plain data, so that a check in a kernel costs a few stores on its failing path and no
/// formatting code of its own.
struct Piece {
  enum Kind { kText, kSizedText, kSigned, kUnsigned, kReal, kBool, kPointer, kDType, kDevice };

  Kind kind;
  std::size_t size = 0;  // of text with a size
  union {
    const char* text;
    std::int64_t integer;
    std::uint64_t natural;
    double real;
    const void* pointer;
    DLDataType dtype;
    DLDevice device;
  };

  constexpr Piece(const char* value) : kind(kText), text(value == nullptr ? "(null)" : value) {}
  constexpr Piece(bool value) : kind(kBool), integer(value ? 1 : 0) {}
  constexpr Piece(double value) : kind(kReal), real(value) {}
  constexpr Piece(const void* value) : kind(kPointer), pointer(value) {}
  constexpr Piece(DLDataType value) : kind(kDType), dtype(value) {}
  constexpr Piece(DLDevice value) : kind(kDevice), device(value) {}
  constexpr Piece(StringView value) : kind(kSizedText), size(value.size()), text(value.data()) {}
  constexpr Piece(const char& value) : kind(kSizedText), size(1), text(&value) {}
  template <typename T>
    requires std::integral<T> || std::is_enum_v<T>
  constexpr Piece(T value)
      : kind(std::is_unsigned_v<T> ? kUnsigned : kSigned), integer(static_cast<std::int64_t>(value)) {}
  /// Any other text (std::string and the like), and types that convert to float (half types).
  template <typename T>
    requires std::is_class_v<T>
  constexpr Piece(const T& value) : kind(kSizedText), text("") {
    if constexpr (requires { value.data(), value.size(); }) {
      text = value.data(), size = value.size();
    } else if constexpr (std::is_convertible_v<const T&, float>) {
      kind = kReal, real = static_cast<double>(static_cast<float>(value));
    } else {
      static_assert(dependent_false_v<T>, "this type cannot be part of a kjit message");
    }
  }
};

/// A message under construction in a fixed buffer; text that does not fit is cut between two characters and replaced by
/// `...`. Dtypes and devices are printed as by torch: `float32`, `cuda:1`.
class Message {
 public:
  static constexpr std::size_t kCapacity = 4096;

  Message() noexcept { text_[0] = '\0'; }

  const char* c_str() const noexcept { return text_; }
  const char* data() const noexcept { return text_; }
  std::size_t size() const noexcept { return size_; }

  KJIT_COLD Message& operator<<(const Piece& piece) noexcept;

 private:
  void append(const Piece& piece) noexcept;
  void append_text(const char* text, std::size_t size) noexcept;
  void append_text(const char* text) noexcept;
  void append_digits(std::uint64_t value, unsigned base) noexcept;
  void append_real(double value) noexcept;
  void append_dtype(DLDataType dtype) noexcept;
  void append_device(DLDevice device) noexcept;

  std::size_t size_ = 0;
  bool is_cut_ = false;
  char text_[kCapacity];
};

/// The exception of `RuntimeCheck`, `Panic` and `CHECK_HOST`; an export turns it into the Python exception `kind`.
class PanicError : public std::exception {
 public:
  explicit PanicError(const Message& message, StringView kind = "RuntimeError") noexcept;

  const char* what() const noexcept override { return message_.c_str(); }
  /// The size of `what()`, which may contain nulls.
  std::size_t size() const noexcept { return message_.size(); }
  /// The name of the Python exception class.
  const char* kind() const noexcept { return kind_; }
  /// The message without the location: the part after the first ": ".
  StringView root_cause() const noexcept;

 private:
  Message message_;
  char kind_[48];
};

namespace details {

/// A message that begins with a source location.
KJIT_COLD Message failed_at(DebugInfo where);

[[noreturn]] KJIT_COLD void panic(DebugInfo where, const Piece* pieces, std::size_t count);

}  // namespace details

/// Throws a `PanicError` with the location and the arguments, concatenated.
template <typename... Args>
[[noreturn]] void panic(DebugInfo where, const Args&... args) {
  if constexpr (sizeof...(args) == 0) {
    details::panic(where, nullptr, 0);
  } else {
    const Piece pieces[] = {Piece(args)...};
    details::panic(where, pieces, sizeof...(args));
  }
}

/// `RuntimeCheck(condition, args...)`: throws, with the arguments as its message, if the condition is false.
template <typename... Args>
struct RuntimeCheck {
  template <typename Condition>
  explicit RuntimeCheck(const Condition& condition, const Args&... args, DebugInfo where = {}) {
    if (!static_cast<bool>(condition)) [[unlikely]] {
      host::panic(where, args...);
    }
  }
  template <typename Condition>
  explicit RuntimeCheck(DebugInfo where, const Condition& condition, const Args&... args) {
    if (!static_cast<bool>(condition)) [[unlikely]] {
      host::panic(where, args...);
    }
  }
};

template <typename Condition, typename... Args>
explicit RuntimeCheck(const Condition&, const Args&...) -> RuntimeCheck<Args...>;
template <typename Condition, typename... Args>
explicit RuntimeCheck(DebugInfo, const Condition&, const Args&...) -> RuntimeCheck<Args...>;

/// `Panic(args...)`: always throws.
template <typename... Args>
struct Panic {
  [[noreturn]] explicit Panic(const Args&... args, DebugInfo where = {}) { host::panic(where, args...); }
  [[noreturn]] explicit Panic(DebugInfo where, const Args&... args)
    requires(sizeof...(Args) > 0)
  {
    host::panic(where, args...);
  }
};

template <typename... Args>
explicit Panic(const Args&...) -> Panic<Args...>;
template <typename... Args>
explicit Panic(DebugInfo, const Args&...) -> Panic<Args...>;

/// The right-hand side of `CHECK_HOST`: collects the streamed values and throws at the end of the statement.
struct Error {
  Message stream;
  explicit Error(DebugInfo where = {}) : stream(details::failed_at(where)) { stream << ": "; }
  Error(const Error&) = delete;
  Error& operator=(const Error&) = delete;
  [[noreturn]] ~Error() noexcept(false) { throw PanicError(stream); }
};

#define KJIT_PANIC ::kjit::host::Error().stream

/// `CHECK_HOST(ok) << "text " << value;`: the message is formatted only if `ok` is false.
#define CHECK_HOST(...)              \
  if (__VA_ARGS__) [[likely]] {      \
  } else /* NOLINT(readability-*) */ \
    KJIT_PANIC

/// `a / b` rounded up, for a positive `b`. Does not overflow, unlike `(a + b - 1) / b`.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> div_ceil(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T quotient = static_cast<T>(static_cast<T>(a) / static_cast<T>(b));
  const T rest = static_cast<T>(static_cast<T>(a) % static_cast<T>(b));
  return static_cast<T>(quotient + static_cast<T>(rest > 0 ? 1 : 0));
}

/// The bytes of one element of `dtype`, including its lanes, rounded up.
constexpr std::size_t dtype_bytes(DLDataType dtype) {
  return (static_cast<std::size_t>(dtype.bits) * dtype.lanes + 7) / 8;
}

namespace details {

constexpr bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace details

/// The result of `irange`: the integers from `begin` to `end`, `end` excluded; empty if `end` is not larger.
template <std::integral T>
class IntegerRange {
 public:
  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    constexpr iterator() = default;
    constexpr explicit iterator(T value) : value_(value) {}
    constexpr T operator*() const { return value_; }
    constexpr iterator& operator++() {
      ++value_;
      return *this;
    }
    constexpr iterator operator++(int) {
      iterator before = *this;
      ++value_;
      return before;
    }
    friend constexpr bool operator==(iterator a, iterator b) { return a.value_ == b.value_; }

   private:
    T value_{};
  };

  constexpr IntegerRange(T begin, T end) : begin_(begin), end_(end < begin ? begin : end) {}
  constexpr iterator begin() const { return iterator(begin_); }
  constexpr iterator end() const { return iterator(end_); }
  constexpr std::size_t size() const { return static_cast<std::size_t>(end_) - static_cast<std::size_t>(begin_); }
  constexpr bool empty() const { return begin_ == end_; }

 private:
  T begin_;
  T end_;
};

/// `for (auto i : irange(n))`: 0, 1, ..., n - 1.
template <std::integral T>
constexpr IntegerRange<T> irange(T end) {
  return {T{0}, end};
}

/// `for (auto i : irange(a, b))`: a, a + 1, ..., b - 1.
template <std::integral T>
constexpr IntegerRange<T> irange(T begin, T end) {
  return {begin, end};
}

namespace pointer {

/// `ptr` plus the sum of `offsets`, in elements of `T` (bytes by default). Only for `void*`: any other pointer type
/// already has a unit, and mixing the two is how offsets go wrong.
template <typename T = char, std::integral... U>
void* offset(void* ptr, U... offsets) {
  return static_cast<T*>(ptr) + (std::ptrdiff_t{0} + ... + static_cast<std::ptrdiff_t>(offsets));
}

template <typename T = char, std::integral... U>
const void* offset(const void* ptr, U... offsets) {
  return static_cast<const T*>(ptr) + (std::ptrdiff_t{0} + ... + static_cast<std::ptrdiff_t>(offsets));
}

}  // namespace pointer

}  // namespace host

}  // namespace kjit

#ifndef KJIT_PRECOMPILED
#include <kjit/utils.cpp>
#endif
