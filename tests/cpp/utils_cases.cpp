// Exports for test_utils.py.

#include <kjit/bits.h>
#include <kjit/tensor.h>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

static_assert(div_ceil(7, 2) == 4 && div_ceil(8, 2) == 4 && div_ceil(0, 3) == 0 && div_ceil(-3, 2) == -1);
static_assert(div_ceil(std::int64_t{1} << 62, 3u) == 1537228672809129302);
static_assert(div_ceil(0xffffffffffffffffull, 2) == 0x8000000000000000ull, "the sum in (a + b - 1) / b would overflow");
static_assert(dtype_bytes({kDLFloat, 32, 1}) == 4 && dtype_bytes({kDLFloat, 16, 8}) == 16);
static_assert(dtype_bytes({kDLFloat4_e2m1fn, 4, 2}) == 1, "two 4-bit lanes are one byte");
static_assert(dtype_bytes({kDLInt, 4, 1}) == 1 && dtype_bytes({kDLInt, 4, 3}) == 2);

static_assert(!dependent_false_v<int>);
static_assert(std::is_convertible_v<source_location_t, DebugInfo>);

static_assert(!is_pow2(0u) && is_pow2(1u) && is_pow2(64u) && !is_pow2(96u) && is_pow2(std::uint64_t{1} << 63));
static_assert(log2_floor(0u) == -1 && log2_floor(1u) == 0 && log2_floor(7u) == 2 && log2_floor(8u) == 3);
static_assert(log2_ceil(0u) == -1 && log2_ceil(1u) == 0 && log2_ceil(8u) == 3 && log2_ceil(9u) == 4);
static_assert(log2_ceil(std::uint64_t{1} << 63) == 63 && log2_ceil(~std::uint64_t{0}) == 64);
static_assert(round_up_pow2(0u) == 1 && round_up_pow2(5u) == 8 && round_up_pow2(8u) == 8);
static_assert(round_up_pow2(std::uint8_t{128}) == 128 && round_up_pow2(std::uint8_t{129}) == 0,
              "does not fit any more");
static_assert(round_up_pow2(0x80000001u) == 0 && round_up_pow2(0x80000000u) == 0x80000000u);
static_assert(round_down_pow2(0u) == 0 && round_down_pow2(5u) == 4 && round_down_pow2(~0u) == 0x80000000u);
static_assert(std::is_same_v<decltype(round_up_pow2(std::uint16_t{3})), std::uint16_t>);

std::uint64_t powers_around(std::uint64_t x) {
  return round_up_pow2(x) - round_down_pow2(x);
}

std::int64_t sum_of_range(std::int64_t begin, std::int64_t end) {
  std::int64_t sum = 0;
  for (const auto i : irange(begin, end)) sum += i;
  return sum;
}
std::int64_t length_of_range(std::int64_t end) {
  return static_cast<std::int64_t>(irange(end).size());
}

bool offsets() {
  char bytes[64];
  const void* start = bytes;
  return pointer::offset(start, 3, 4) == bytes + 7 &&
         pointer::offset<double>(static_cast<void*>(bytes), 2) == bytes + 16 &&
         pointer::offset(static_cast<void*>(bytes + 8), -8) == bytes;
}

bool arguments_of_a_passing_check_are_not_evaluated() {
  int evaluated = 0;
  CHECK_HOST(true) << ++evaluated;
  return evaluated == 0;
}

void failing_check(std::int64_t n) {
  CHECK_HOST(n > 0) << "n must be positive, got " << n;
}
void failing_runtime_check(std::int64_t n) {
  RuntimeCheck(n > 0, "n must be positive, got ", n);
}
void panic_without_words() {
  Panic();
}

void all_kinds_of_values(double real) {
  enum Color { kGreen = 7 };
  const float number = 2.5f;
  Panic("text ", StringView("view"), ' ', -3, ' ', 4u, ' ', true, ' ', real, ' ', number, ' ', fp16_t(0.5f), ' ',
        kGreen, ' ', DLDataType{kDLBfloat, 16, 1}, ' ', DLDataType{kDLFloat, 32, 4}, ' ', DLDevice{kDLCUDA, 1}, ' ',
        DLDevice{kDLCPU, 0}, ' ', static_cast<const char*>(nullptr));
}

/// `offset` times x, then `text` repeated.
void very_long_message(std::int64_t offset, kjit::StringView text) {
  kjit::host::Message message;
  for (std::int64_t i = 0; i < offset; ++i) message << "x";
  for (int i = 0; i < 6000; ++i) message << text;
  throw kjit::host::PanicError(message);
}

void root_cause_of_a_failure() {
  try {
    Panic("the cause: with a colon");
  } catch (const PanicError& error) {
    RuntimeCheck(error.root_cause() == "the cause: with a colon", "wrong root cause: ", error.root_cause());
  }
}

template <typename T>
void to_float(TensorView from, TensorView to) {
  const auto* in = static_cast<const T*>(from.data_ptr());
  auto* out = static_cast<float*>(to.data_ptr());
  for (std::int64_t i = 0; i < from.numel(); ++i) out[i] = static_cast<float>(in[i]);
}
template <typename T>
void from_float(TensorView from, TensorView to) {
  const auto* in = static_cast<const float*>(from.data_ptr());
  auto* out = static_cast<T*>(to.data_ptr());
  for (std::int64_t i = 0; i < from.numel(); ++i) out[i] = static_cast<T>(in[i]);
}
static_assert(!KJIT_CUDA_TYPES, "a plain C++ unit has kjit's own types");

/// The bits of x after x += 2, x *= 3, x -= 1, x /= 2, in sequence.
template <typename T>
std::int64_t in_place(float start) {
  T x = start;
  x += 2.0f;
  x *= 3.0f;
  x -= 1.0f;
  x /= 2.0f;
  return x.bits;
}

}  // namespace

KJIT_EXPORT(float16_to_float, to_float<fp16_t>)
KJIT_EXPORT(float16_from_float, from_float<fp16_t>)
KJIT_EXPORT(bfloat16_to_float, to_float<bf16_t>)
KJIT_EXPORT(bfloat16_from_float, from_float<bf16_t>)
KJIT_EXPORT(float8_e4m3fn_to_float, to_float<fp8_e4m3_t>)
KJIT_EXPORT(float8_e4m3fn_from_float, from_float<fp8_e4m3_t>)
KJIT_EXPORT(float8_e5m2_to_float, to_float<fp8_e5m2_t>)
KJIT_EXPORT(float8_e5m2_from_float, from_float<fp8_e5m2_t>)
KJIT_EXPORT(float16_in_place, in_place<fp16_t>)
KJIT_EXPORT(bfloat16_in_place, in_place<bf16_t>)
KJIT_EXPORT(float8_e4m3fn_in_place, in_place<fp8_e4m3_t>)
KJIT_EXPORT(float8_e5m2_in_place, in_place<fp8_e5m2_t>)
