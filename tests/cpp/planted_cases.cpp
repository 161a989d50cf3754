// Planted errors for test_sanitizers.py, each in an export of its own.

#include <kjit/tensor.h>

namespace {

using kjit::TensorView;

std::int64_t write_past_the_end(std::int64_t n) {
  auto* numbers = new std::int64_t[static_cast<std::size_t>(n)];
  for (std::int64_t i = 0; i <= n; ++i) numbers[i] = i;
  const std::int64_t last = numbers[n - 1];
  delete[] numbers;
  return last;
}

std::int64_t read_a_tensor_past_its_end(std::int64_t n) {
  auto* numbers = new std::int64_t[static_cast<std::size_t>(n)]();
  DLTensor tensor{numbers, DLDevice{kDLCPU, 0}, 1, DLDataType{kDLInt, 64, 1}, &n, nullptr, 0};
  const TensorView view(&tensor);
  const std::int64_t past = static_cast<const std::int64_t*>(view.data_ptr())[view.numel()];
  delete[] numbers;
  return past;
}

std::int64_t use_after_free(std::int64_t n) {
  auto* number = new std::int64_t(n);
  delete number;
  return *static_cast<volatile std::int64_t*>(number);
}

std::int64_t overflow(std::int64_t n) {
  return n + std::int64_t{0x7fffffffffffffff};
}

std::int64_t misaligned_load(std::int64_t n) {
  alignas(8) char bytes[16] = {};
  const void* place = bytes + n % 8;
  return *static_cast<const std::int64_t*>(place);
}

std::int64_t none(std::int64_t n) {
  return n;
}

}  // namespace

KJIT_EXPORT(write_past_the_end, write_past_the_end)
KJIT_EXPORT(read_a_tensor_past_its_end, read_a_tensor_past_its_end)
KJIT_EXPORT(use_after_free, use_after_free)
KJIT_EXPORT(overflow, overflow)
KJIT_EXPORT(misaligned_load, misaligned_load)
KJIT_EXPORT(none, none)
