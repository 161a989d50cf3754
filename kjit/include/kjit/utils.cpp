// The functions of kjit/utils.h that have no template parameters (see KJIT_PRECOMPILED there).

#pragma once

#include <kjit/utils.h>

namespace kjit::host {

KJIT_IMPL const char* DebugInfo::short_file_name() const noexcept {
  const char* name = file_name();
  for (const char* c = name; *c != '\0'; ++c) {
    if (*c == '/' || *c == '\\') name = c + 1;
  }
  return name;
}

KJIT_IMPL Message& Message::operator<<(const Piece& piece) noexcept {
  append(piece);
  return *this;
}

KJIT_IMPL void Message::append(const Piece& piece) noexcept {
  switch (piece.kind) {
    case Piece::kText:
      return append_text(piece.text);
    case Piece::kSizedText:
      return append_text(piece.text, piece.size);
    case Piece::kSigned:
      if (piece.integer < 0) append_text("-", 1);
      return append_digits(piece.integer < 0 ? ~piece.natural + 1 : piece.natural, 10);
    case Piece::kUnsigned:
      return append_digits(piece.natural, 10);
    case Piece::kReal:
      return append_real(piece.real);
    case Piece::kBool:
      return append_text(piece.integer != 0 ? "true" : "false");
    case Piece::kPointer:
      append_text("0x", 2);
      return append_digits(piece.natural, 16);
    case Piece::kDType:
      return append_dtype(piece.dtype);
    case Piece::kDevice:
      return append_device(piece.device);
  }
}

KJIT_IMPL void Message::append_text(const char* text, std::size_t size) noexcept {
  if (is_cut_) return;
  constexpr std::size_t kMost = kCapacity - 1;
  is_cut_ = size > kMost - size_;
  for (std::size_t i = 0; i < size && size_ < kMost; ++i) text_[size_++] = text[i];
  if (is_cut_) {
    size_ = kMost - 3;
    // UTF-8 continuation bytes begin with the bits 10.
    while (size_ > 0 && (text_[size_] & 0xC0) == 0x80) --size_;
    for (int i = 0; i < 3; ++i) text_[size_++] = '.';
  }
  text_[size_] = '\0';
}

KJIT_IMPL void Message::append_text(const char* text) noexcept {
  std::size_t size = 0;
  while (text[size] != '\0') ++size;
  append_text(text, size);
}

KJIT_IMPL void Message::append_digits(std::uint64_t value, unsigned base) noexcept {
  char digits[24];
  int begin = 24;
  do {
    digits[--begin] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  append_text(digits + begin, static_cast<std::size_t>(24 - begin));
}

// Six significant digits, as `%g`; enough for a message, without <cstdio>.
KJIT_IMPL void Message::append_real(double value) noexcept {
  if (value != value) return append_text("nan");
  if (value < 0) {
    append_text("-", 1);
    value = -value;
  }
  if (value > 1.7976931348623157e308) return append_text("inf");
  if (value == 0) return append_text("0", 1);
  int exponent = 0;
  for (; value >= 10; ++exponent) value /= 10;
  for (; value < 1; --exponent) value *= 10;
  std::uint64_t digits = static_cast<std::uint64_t>(value * 1e5 + 0.5);
  if (digits >= 1000000) {  // 9.999996 rounds to 10
    digits /= 10;
    ++exponent;
  }
  int count = 6;
  for (; count > 1 && digits % 10 == 0; --count) digits /= 10;
  char text[8];
  for (int i = count - 1; i >= 0; --i, digits /= 10) text[i] = static_cast<char>('0' + digits % 10);
  const bool scientific = exponent < -5 || exponent >= 15;
  const int whole = scientific ? 1 : exponent + 1;  // digits before the decimal point
  if (whole <= 0) append_text("0.", 2);
  for (int i = whole; i < 0; ++i) append_text("0", 1);
  for (int i = 0; i < count || i < whole; ++i) {
    if (i == whole && i > 0) append_text(".", 1);
    append_text(i < count ? text + i : "0", 1);
  }
  if (scientific) *this << "e" << exponent;
}

KJIT_IMPL void Message::append_dtype(DLDataType dtype) noexcept {
  // Indexed by DLDataTypeCode.
  static constexpr const char* kNames[] = {"int",
                                           "uint",
                                           "float",
                                           "handle",
                                           "bfloat",
                                           "complex",
                                           "bool",
                                           "float8_e3m4",
                                           "float8_e4m3",
                                           "float8_e4m3b11fnuz",
                                           "float8_e4m3fn",
                                           "float8_e4m3fnuz",
                                           "float8_e5m2",
                                           "float8_e5m2fnuz",
                                           "float8_e8m0fnu",
                                           "float6_e2m3fn",
                                           "float6_e3m2fn",
                                           "float4_e2m1fn"};
  constexpr unsigned kNamedWithWidth =
      1u << kDLInt | 1u << kDLUInt | 1u << kDLFloat | 1u << kDLBfloat | 1u << kDLComplex;
  const bool known = dtype.code < sizeof(kNames) / sizeof(kNames[0]);
  append_text(known ? kNames[dtype.code] : "unknown");
  if (!known || (kNamedWithWidth >> dtype.code & 1u) != 0) append_digits(dtype.bits, 10);
  if (dtype.lanes != 1) *this << "x" << dtype.lanes;
}

KJIT_IMPL void Message::append_device(DLDevice device) noexcept {
  // Indexed by DLDeviceType.
  static constexpr const char* kNames[] = {
      "",     "cpu",       "cuda",    "cuda_host",    "opencl", "",       "",        "vulkan", "metal", "vpi",
      "rocm", "rocm_host", "ext_dev", "cuda_managed", "oneapi", "webgpu", "hexagon", "maia",   "trn"};
  const auto type = static_cast<unsigned>(device.device_type);
  const bool known = type < sizeof(kNames) / sizeof(kNames[0]) && kNames[type][0] != '\0';
  append_text(known ? kNames[type] : "unknown_device");
  if (device.device_type != kDLCPU && device.device_id >= 0) *this << ":" << device.device_id;
}

KJIT_IMPL PanicError::PanicError(const Message& message, StringView kind) noexcept : message_(message) {
  std::size_t size = 0;
  for (; size < kind.size() && size + 1 < sizeof(kind_); ++size) kind_[size] = kind[size];
  kind_[size] = '\0';
}

KJIT_IMPL StringView PanicError::root_cause() const noexcept {
  const char* text = message_.c_str();
  for (const char* c = text; *c != '\0'; ++c) {
    if (c[0] == ':' && c[1] == ' ') return StringView(c + 2);
  }
  return StringView(text);
}

KJIT_IMPL Message details::failed_at(DebugInfo where) {
  Message message;
  message << "Failed at " << where.short_file_name() << ":" << where.line();
  return message;
}

KJIT_IMPL void details::panic(DebugInfo where, const Piece* pieces, std::size_t count) {
  Message message = failed_at(where);
  if (count == 0) message << " in " << where.function_name();
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0) message << ": ";
    message << pieces[i];
  }
  throw PanicError(message);
}

}  // namespace kjit::host
