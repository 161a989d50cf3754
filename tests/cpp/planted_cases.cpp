// Planted errors for test_sanitizers.py, each in an export of its own.

#include <kjit/ffi.h>

namespace {

std::int64_t write_past_the_end(std::int64_t n) {
  auto* numbers = new std::int64_t[static_cast<std::size_t>(n)];
  for (std::int64_t i = 0; i <= n; ++i) numbers[i] = i;
  const std::int64_t last = numbers[n - 1];
  delete[] numbers;
  return last;
}

std::int64_t overflow(std::int64_t n) {
  return n + std::int64_t{0x7fffffffffffffff};
}

std::int64_t none(std::int64_t n) {
  return n;
}

}  // namespace
