// The source location of a call, without <source_location> (which nvcc 12 cannot always compile).
//
//   void check(bool ok, kjit::source_location_t where = kjit::source_location_t::current());
//   where.file_name(); where.line();          // of the caller

#pragma once

#include <kjit/language.h>

namespace kjit {

#if defined(__GNUC__) || defined(__clang__)

/// `std::source_location` in terms of the compiler's builtins.
class source_location_t {
 public:
  static constexpr source_location_t current(const char* file = __builtin_FILE(),
                                             unsigned line = static_cast<unsigned>(__builtin_LINE()),
                                             const char* function = __builtin_FUNCTION()) noexcept;
  constexpr const char* file_name() const noexcept;
  constexpr const char* function_name() const noexcept;
  constexpr unsigned line() const noexcept;
  /// Always 0: no builtin provides it.
  constexpr unsigned column() const noexcept;

 private:
  const char* file_ = "";
  const char* function_ = "";
  unsigned line_ = 0;
};

constexpr source_location_t source_location_t::current(const char* file, unsigned line, const char* function) noexcept {
  source_location_t location;
  location.file_ = file;
  location.function_ = function;
  location.line_ = line;
  return location;
}

constexpr const char* source_location_t::file_name() const noexcept {
  return file_;
}
constexpr const char* source_location_t::function_name() const noexcept {
  return function_;
}
constexpr unsigned source_location_t::line() const noexcept {
  return line_;
}
constexpr unsigned source_location_t::column() const noexcept {
  return 0;
}

#else

/// For compilers without the builtins: locations are empty, everything else works.
class source_location_t {
 public:
  static constexpr source_location_t current() noexcept { return {}; }
  constexpr const char* file_name() const noexcept { return ""; }
  constexpr const char* function_name() const noexcept { return ""; }
  constexpr unsigned line() const noexcept { return 0; }
  constexpr unsigned column() const noexcept { return 0; }
};

#endif

}  // namespace kjit
