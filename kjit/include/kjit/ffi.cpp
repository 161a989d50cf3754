// The functions of kjit/ffi.h that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <cxxabi.h>
#include <kjit/ffi.h>

#include <cstdlib>
#include <typeinfo>

namespace kjit {

namespace host {

KJIT_IMPL std::int64_t ShapeView::Product() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t size : *this) product *= size;
  return product;
}

KJIT_IMPL std::int64_t StrideView::operator[](std::size_t i) const noexcept {
  if (strides_ != nullptr) return strides_[i];
  return ShapeView(sizes_.data() + i + 1, sizes_.size() - i - 1).Product();
}

KJIT_IMPL std::int64_t TensorView::numel() const noexcept {
  return shape().Product();
}

KJIT_IMPL bool TensorView::is_contiguous() const noexcept {
  if (tensor_.strides == nullptr) return true;
  std::int64_t expected = 1;
  bool contiguous = true;
  for (int i = tensor_.ndim - 1; i >= 0; --i) {
    const std::int64_t size = tensor_.shape[i];
    if (size == 0) return true;
    if (size != 1 && tensor_.strides[i] != expected) contiguous = false;
    expected *= size;
  }
  return contiguous;
}

KJIT_IMPL int TensorView::checked_dimension(std::int64_t dimension, DebugInfo where) const {
  const std::int64_t from_front = dimension < 0 ? dimension + tensor_.ndim : dimension;
  if (from_front < 0 || from_front >= tensor_.ndim) [[unlikely]] {
    panic(where, "dimension ", dimension, " of a tensor with ", tensor_.ndim, " dimensions");
  }
  return static_cast<int>(from_front);
}

namespace ffi {

namespace details {

/// Throws the error that a function of tvm-ffi's C ABI left behind when it returned `code`.
KJIT_IMPL void check(int code, DebugInfo where) {
  if (code == 0) return;
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) panic(where, "tvm-ffi reported an error without saying which");
  const auto* cell = reinterpret_cast<const TVMFFIErrorCell*>(static_cast<const TVMFFIObject*>(error) + 1);
  Message message = host::details::failed_at(where);
  message << ": " << StringView(cell->message.data, cell->message.size);
  const PanicError raised(message, StringView(cell->kind.data, cell->kind.size));
  TVMFFIObjectDecRef(error);
  throw raised;
}

KJIT_IMPL void describe_blob(DLTensor& blob, void* data, ShapeView shape, StrideView strides, DLDataType dtype,
                             DLDevice device, std::uint64_t byte_offset) {
  const std::size_t rank = shape.size();
  blob = DLTensor{static_cast<char*>(data) + byte_offset, device, static_cast<int>(rank), dtype, nullptr, nullptr, 0};
  blob.shape = new std::int64_t[2 * rank + 1];
  blob.strides = blob.shape + rank;
  for (std::size_t i = 0; i < rank; ++i) {
    blob.shape[i] = shape[i];
    blob.strides[i] = strides[i];
  }
}

KJIT_IMPL Tensor adopt(DLManagedTensor* blob) {
  TVMFFIObjectHandle made = nullptr;
  check(TVMFFITensorFromDLPack(blob, /*require_alignment=*/0, /*require_contiguous=*/0, &made), {});
  return Tensor(made);
}

}  // namespace details

using details::check;

KJIT_IMPL Tensor::Tensor(const Tensor& other) noexcept : object_(other.object_) {
  if (object_ != nullptr) TVMFFIObjectIncRef(object_);
}

KJIT_IMPL Tensor::~Tensor() {
  if (object_ != nullptr) TVMFFIObjectDecRef(object_);
}

// A tensor object is a header followed by its DLTensor (tvm/ffi/c_api.h, kTVMFFITensor).
KJIT_IMPL const DLTensor* Tensor::GetDLTensorPtr() const noexcept {
  return object_ == nullptr ? nullptr : reinterpret_cast<const DLTensor*>(object_ + 1);
}

KJIT_IMPL TensorView Tensor::view(DebugInfo where) const {
  if (object_ == nullptr) panic(where, "this is no tensor: it was never given one");
#if KJIT_SIM
  if (::kjit_sim::note_tensor != nullptr) ::kjit_sim::note_tensor(*GetDLTensorPtr(), nullptr, -1);
#endif
  return GetDLTensorPtr();
}

KJIT_IMPL Tensor empty(ShapeView shape, DLDataType dtype, DLDevice device, DebugInfo where) {
  DLTensor wanted{};
#if KJIT_SIM
  wanted.device = DLDevice{kDLCPU, 0};
  static_cast<void>(device);
#else
  wanted.device = device;
#endif
  if (TVMFFIEnvGetDLPackManagedTensorAllocator() == nullptr) {
    panic(where,
          "a new tensor takes its memory from where the tensors of the call come from (torch), and this call has ",
          "been given none");
  }
  wanted.dtype = dtype;
  wanted.ndim = static_cast<int>(shape.size());
  wanted.shape = const_cast<std::int64_t*>(shape.data());
  TVMFFIObjectHandle made = nullptr;
  check(TVMFFIEnvTensorAlloc(&wanted, &made), where);
  return Tensor(made);
}

KJIT_IMPL Tensor empty_like(TensorView tensor, DebugInfo where) {
  return empty(tensor.shape(), tensor.dtype(), tensor.device(), where);
}

KJIT_IMPL Tensor alloc_workspace_tensor(std::size_t required_bytes, DLDevice device, DebugInfo where) {
  if (required_bytes == 0) return {};
  return empty({static_cast<std::int64_t>(required_bytes)}, DLDataType{kDLUInt, 8, 1}, device, where);
}

}  // namespace ffi

KJIT_IMPL const ffi::Tensor& Optional<ffi::Tensor>::value(DebugInfo where) const {
  if (!has_value()) panic(where, "the value of an argument that is None was asked for");
  return value_;
}

}  // namespace host

namespace ffi_details {

// kTVMFFIBigInt: an integer that needs more than 64 signed bits. Headers of tvm-ffi before 0.1.16 do not name it.
inline constexpr std::int32_t kBigInt = 78;

/// What came, in the words of a Python user.
KJIT_IMPL const char* python_type_name(const TVMFFIAny& value) {
  switch (value.type_index) {
    case kTVMFFINone:
      return "None";
    case kTVMFFIInt:
    case kBigInt:
      return "int";
    case kTVMFFIBool:
      return "bool";
    case kTVMFFIFloat:
      return "float";
    case kTVMFFIOpaquePtr:
      return "a raw pointer";
    case kTVMFFIDataType:
      return "a dtype";
    case kTVMFFIDevice:
      return "a device";
    case kTVMFFIDLTensorPtr:
    case kTVMFFITensor:
      return "a tensor";
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr:
      return "str";
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallBytes:
    case kTVMFFIBytes:
      return "bytes";
    case kTVMFFIFunction:
      return "a function";
    case kTVMFFIArray:
    case kTVMFFIList:
      return "a list or tuple";
    case kTVMFFIMap:
    case kTVMFFIDict:
      return "dict";
    default:
      return "another object";
  }
}

#if KJIT_SIM
KJIT_IMPL void note_argument(const TVMFFIAny& value, Position at) {
  const DLTensor* tensor = tensor_of(value);
  if (tensor != nullptr && tensor->device.device_type == kDLCUDA) {
    Message message;
    message << at.function << "(): argument " << at.index + 1 << " is on " << tensor->device
            << ", and this module runs in the simulator, on tensors of the CPU";
    throw PanicError(message, "ValueError");
  }
  if (::kjit_sim::note_tensor == nullptr) return;
  if (tensor != nullptr) return ::kjit_sim::note_tensor(*tensor, at.function, at.index);
  // Pointers, also those that come as integers; and lists, objects and functions of tvm-ffi.
  const bool is_pointer = value.type_index == kTVMFFIOpaquePtr && value.v_ptr != nullptr;
  const bool is_address = value.type_index == kTVMFFIInt && value.v_int64 >> 32 != 0 && value.v_int64 >> 47 == 0;
  const bool is_object = value.type_index >= kTVMFFIStaticObjectBegin && value.type_index != kTVMFFIStr;
  if (is_pointer || is_address || is_object) ::kjit_sim::note_unknown();
}
#endif

KJIT_IMPL bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

KJIT_IMPL std::size_t size_if_prefix(const char* text, const char* prefix) {
  std::size_t size = 0;
  for (; prefix[size] != '\0'; ++size) {
    if (text[size] != prefix[size]) return 0;
  }
  return size;
}

/// A type out of what `named` gives, as people write it: without tvm-ffi's and kjit's namespaces, `int64_t` for
/// `long int`; and what has a name in Python, by that.
KJIT_IMPL void append_type(Message& message, const char* pretty) {
  struct Spelling {
    const char* compiler;
    const char* people;
  };
  static constexpr Spelling kPython[] = {{"tvm::ffi::String", "str"},
                                         {"std::string", "str"},
                                         {"std::__cxx11::basic_string<char>", "str"},
                                         {"tvm::ffi::Bytes", "bytes"},
                                         {"tvm::ffi::Function", "a function"},
                                         {"tvm::ffi::Tensor", "a tensor"},
                                         {"tvm::ffi::TensorView", "a tensor"},
                                         {"DLTensor*", "a tensor"},
                                         {"tvm::ffi::Module", "a module"},
                                         {"tvm::ffi::Shape", "a list of int"},
                                         {"DLDataType", "a dtype"},
                                         {"DLDevice", "a device"},
                                         {"float", "float"},
                                         {"double", "float"},
                                         {"bool", "bool"}};
  static constexpr Spelling kCpp[] = {
      {"tvm::ffi::", ""},
      {"kjit::host::ffi::", ""},
      {"kjit::host::", ""},
      {"kjit::", ""},
      {"(anonymous namespace)::", ""},
      {"{anonymous}::", ""},
      {"<unnamed>::", ""},
      {"std::__cxx11::basic_string<char>", "std::string"},
      {"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"},
      {"std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"},
      {"std::basic_string<char>", "std::string"},
      {"std::__cxx11::", "std::"},
      {"std::__1::", "std::"},
      {"long unsigned int", "uint64_t"},
      {"unsigned long", "uint64_t"},
      {"long int", "int64_t"},
      {"short unsigned int", "uint16_t"},
      {"unsigned short", "uint16_t"},
      {"short int", "int16_t"},
      {"unsigned char", "uint8_t"},
      {"signed char", "int8_t"},
      {"unsigned int", "uint32_t"},
      {"long", "int64_t"},
      {"short", "int16_t"},
      {", void>", ">"}};  // what tvm-ffi gives by default
  // g++: `constexpr const char* named() [with T = int]`; clang: `const char *named() [T = int]`.
  const char* begin = pretty;
  for (const char* c = pretty; *c != '\0'; ++c) {
    if (size_if_prefix(c, "T = ") != 0 && c != pretty && (c[-1] == '[' || c[-1] == ' ')) {
      begin = c + 4;
      break;
    }
  }
  std::size_t size = StringView(begin).size();
  if (begin != pretty && size > 0) --size;  // the bracket
  for (const Spelling& each : kPython) {
    if (StringView(begin, size) == each.compiler) {
      message << each.people;
      return;
    }
  }
  for (const char* c = begin; c < begin + size;) {
    const bool starts_word = c == begin || !is_word(c[-1]);
    std::size_t known = 0;
    for (const Spelling& each : kCpp) {
      const std::size_t length = starts_word || !is_word(*c) ? size_if_prefix(c, each.compiler) : 0;
      if (length == 0 || (is_word(c[length - 1]) && is_word(c[length]))) continue;
      message << each.people;
      known = length;
      break;
    }
    const bool is_between_brackets = c[0] == ' ' && c[1] == '>' && c > begin && c[-1] == '>';
    if (known == 0 && !is_between_brackets) message << StringView(c, 1);
    c += known == 0 ? 1 : known;
  }
}

/// What came, in the words of a Python user.
KJIT_IMPL void append_what_came(Message& message, const TVMFFIAny& value) {
  if (python::type_name(value, message)) return;
  if (value.type_index >= kTVMFFIDynObjectBegin) {
    const TVMFFIByteArray key = TVMFFIGetTypeInfo(value.type_index)->type_key;
    message << "a " << StringView(key.data, key.size);
  } else {
    message << python_type_name(value);
  }
}

/// A short text or a number that came, else its type.
KJIT_IMPL void append_key(Message& message, const TVMFFIAny& key) {
  if (key.type_index == kTVMFFIInt) {
    message << key.v_int64;
  } else if (key.type_index == kTVMFFIStr || key.type_index == kTVMFFISmallStr) {
    message << "'" << string_of(key, {}) << "'";
  } else {
    append_what_came(message, key);
  }
}

/// `[1]['a']`, the way from the argument to an element.
KJIT_IMPL void append_way(Message& message, const Element& element) {
  if ((element.outer.count & Position::kInside) != 0) append_way(message, *element.outer.element);
  if (element.kind == Element::kWhole || element.kind == Element::kKey) return;
  message << "[";
  if (element.kind == Element::kIndex) {
    message << element.index;
  } else {
    append_key(message, *element.key);
  }
  message << "]";
}

/// `f(): argument 1 of 2`, or of an element `f(): argument 1 of 2 must be Array<int64_t>: element [1]`. True where what
/// follows is said of the argument itself.
KJIT_IMPL bool append_position(Message& message, Position at) {
  const Element* inner = nullptr;
  const char* type = nullptr;
  bool is_whole = true;
  Position outer = at;
  for (; (outer.count & Position::kInside) != 0; outer = outer.element->outer) {
    if (inner == nullptr) inner = outer.element;
    type = outer.element->type;
    if (outer.element->kind != Element::kWhole) is_whole = false;
  }
  const int count = outer.count & ~Position::kOrNone;
  message << outer.function << "(): argument " << outer.index + 1 << " of " << count;
  if (is_whole) return true;
  message << " must be ";
  append_type(message, type);
  if (inner->kind == Element::kKey) {
    message << ": key ";
    append_key(message, *inner->key);
    if ((inner->outer.count & Position::kInside) == 0) return false;
    message << " of element ";
    append_way(message, *inner->outer.element);
  } else {
    message << ": element ";
    append_way(message, *inner);
  }
  return false;
}

/// The type to name where an argument is a `MayBeNone`: that, and not what is in it.
KJIT_IMPL const char* type_of_whole(Position at, const char* type) {
  for (; (at.count & Position::kInside) != 0; at = at.element->outer) {
    if (at.element->kind != Element::kWhole) break;
    type = at.element->type;
  }
  return type;
}

KJIT_IMPL void wrong_type(Position at, const char* expected, const TVMFFIAny& value) {
  Message message;
  append_position(message, at);
  message << " must be ";
  const char* whole = type_of_whole(at, nullptr);
  if (whole != nullptr) {
    append_type(message, whole);
  } else {
    message << expected;
  }
  if ((at.count & Position::kOrNone) != 0) message << " or None";
  message << ", not ";
  append_what_came(message, value);
  throw PanicError(message, "TypeError");
}

KJIT_IMPL void not_of_type(Position at, const char* type, const TVMFFIAny& value) {
  Message expected;
  append_type(expected, type);
  wrong_type(at, expected.c_str(), value);
}

KJIT_IMPL void wrong_size(Position at, const char* type, std::int64_t expected, std::int64_t given) {
  Message message;
  append_position(message, at);
  message << " must be ";
  append_type(message, type_of_whole(at, type));
  message << ", and has " << given << (given == 1 ? " element" : " elements") << " instead of " << expected;
  throw PanicError(message, "TypeError");
}

KJIT_IMPL void out_of_range(Position at, const char* expected, const TVMFFIAny& value) {
  Message message;
  append_position(message, at);
  message << " is out of range for " << expected;
  if (value.type_index == kTVMFFIInt) message << ": " << value.v_int64;
  if (value.type_index == kTVMFFIFloat) message << ": " << value.v_float64;
  throw PanicError(message, "ValueError");
}

#ifdef KJIT_PRECOMPILED
LazyBits lazy_bits{};
#endif

/// The bits of `lazy_bits` that a tensor has.
KJIT_IMPL std::uint64_t lazy_bits_of(const TVMFFIAny& value) {
  if (value.type_index != kTVMFFITensor) return 0;
  if (reinterpret_cast<std::uintptr_t>(value.v_obj->deleter) != lazy_bits.object_deleter) return 0;
  // So this is tvm-ffi's class for a tensor from DLPack, and if the next one is torch's deleter, that has its tensor
  // there.
  const auto* managed =
      *reinterpret_cast<DLManagedTensorVersioned* const*>(reinterpret_cast<const DLTensor*>(value.v_obj + 1) + 1);
  if (reinterpret_cast<std::uintptr_t>(managed->deleter) != lazy_bits.dlpack_deleter) return 0;
  const char* tensor = *static_cast<const char* const*>(managed->manager_ctx);
  return *reinterpret_cast<const std::uint64_t*>(tensor + lazy_bits.offset) &
         (lazy_bits.conjugate | lazy_bits.opposite);
}

KJIT_COLD KJIT_IMPL void not_readable(Position at, const DLTensor& tensor, std::uint64_t bits) {
  Message message;
  append_position(message, at);
  const std::int64_t elements = host::ShapeView(tensor.shape, static_cast<std::size_t>(tensor.ndim)).Product();
  if (bits == 0) {
    message << " is a tensor of " << elements << (elements == 1 ? " element" : " elements")
            << " without data: its memory was freed, or it never had any";
  } else {
    const bool is_conjugate = (bits & lazy_bits.conjugate) != 0;
    message << " is the " << (is_conjugate ? "conjugate" : "opposite") << " of what lies in memory"
            << (is_conjugate ? "; pass what resolve_conj() makes of it" : "; pass what resolve_neg() makes of it");
  }
  throw PanicError(message, "RuntimeError");
}

KJIT_IMPL void require_readable(const TVMFFIAny& value, Position at) {
  const DLTensor& tensor = *tensor_of(value);
  const std::uint64_t bits = lazy_bits_of(value);
  if (tensor.data != nullptr && bits == 0) [[likely]] {
    return;
  }
  if (host::ShapeView(tensor.shape, static_cast<std::size_t>(tensor.ndim)).Product() != 0)
    not_readable(at, tensor, bits);
}

KJIT_IMPL void wrong_count(const char* function, int expected, int given) {
  Message message;
  message << function << "() takes " << expected << (expected == 1 ? " argument" : " arguments") << ", but " << given
          << (given == 1 ? " was given" : " were given");
  throw PanicError(message, "TypeError");
}

/// The bytes of the character of UTF-8 that text begins with; 0 where it begins with none, or with a null.
KJIT_IMPL std::size_t utf8_size(const char* text, std::size_t size) {
  const auto byte = [&](std::size_t i) -> unsigned { return i < size ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first < 0xF5                  ? 4
                                                             : 0;
  if (length < 2 || (length == 4 && first < 0xF0)) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than it need be, half of a pair of UTF-16, past the last character.
  const unsigned second = byte(1);
  const bool is_none = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return is_none ? 0 : length;
}

/// `text` as the message of a Python exception can be, which is UTF-8 and ends with the first null: what is no such
/// character becomes the one that stands for that. To be freed; null where the text is good as it is, or memory is out.
KJIT_IMPL char* mended(const char* text, std::size_t size) {
  std::size_t valid = 0;
  for (std::size_t length = 1; valid < size && length != 0; valid += length) {
    length = utf8_size(text + valid, size - valid);
  }
  char* mended = valid == size ? nullptr : static_cast<char*>(std::malloc(3 * size + 1));
  if (mended == nullptr) return nullptr;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < size;) {
    const std::size_t length = utf8_size(text + i, size - i);
    const char* from = length == 0 ? "\xEF\xBF\xBD" : text + i;
    for (std::size_t k = 0; k < (length == 0 ? 3 : length); ++k) mended[filled++] = from[k];
    i += length == 0 ? 1 : length;
  }
  mended[filled] = '\0';
  return mended;
}

/// Appends what the type of the exception in flight is called.
KJIT_IMPL void append_type_in_flight(Message& message) {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return;
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  message << (name != nullptr ? name : type->name());
  std::free(name);
}

/// The exception in flight as one that has a message.
KJIT_IMPL PanicError described_in_flight() noexcept {
  Message message;
  try {
    throw;
  } catch (const std::exception&) {
    append_type_in_flight(message);
    message << " was thrown, without a message";
  } catch (...) {
    message << "a kernel threw something that is not a std::exception: ";
    append_type_in_flight(message);
  }
  return PanicError(message);
}

// tvm-ffi notes who calls `TVMFFIErrorSetRaisedFromCStr`, and Python shows it: as few functions as can be.
KJIT_IMPL int raise_current_exception() noexcept {
  const auto raise = [](const char* kind, const char* text, std::size_t size) __attribute__((always_inline)) {
    char* better = mended(text, size);
    TVMFFIErrorSetRaisedFromCStr(kind, better != nullptr ? better : text);
    std::free(better);
  };
  try {
    throw;
  } catch (const PanicError& error) {
    raise(error.kind(), error.what(), error.size());
  } catch (const std::exception& error) {
    const StringView text = error.what();
    if (text.empty()) {
      const PanicError described = described_in_flight();
      raise(described.kind(), described.what(), described.size());
    } else {
      raise("RuntimeError", text.data(), text.size());
    }
  } catch (const char* thrown) {
    const StringView text = thrown == nullptr ? "a null pointer to text was thrown" : thrown;
    raise("RuntimeError", text.data(), text.size());
  } catch (...) {
    const PanicError described = described_in_flight();
    raise(described.kind(), described.what(), described.size());
  }
  return -1;
}

KJIT_IMPL int raise_tvm_error(TVMFFIObjectHandle error) noexcept {
  const auto& cell = *reinterpret_cast<const TVMFFIErrorCell*>(static_cast<const TVMFFIObject*>(error) + 1);
  char* better = mended(cell.message.data, cell.message.size);
  TVMFFIObjectHandle readable = error;
  if (better != nullptr) {
    const TVMFFIByteArray message = {better, StringView(better).size()};
    if (TVMFFIErrorCreate(&cell.kind, &message, &cell.backtrace, &readable) != 0) readable = error;
    std::free(better);
  }
  TVMFFIErrorSetRaised(readable);
  if (readable != error) TVMFFIObjectDecRef(readable);
  return -1;
}

KJIT_IMPL std::uint64_t integer_of(const TVMFFIAny& value, std::size_t bytes, bool is_signed, Position at) {
  static constexpr const char* kNames[2][4] = {
      {"an unsigned 8-bit integer", "an unsigned 16-bit integer", "an unsigned 32-bit integer",
       "an unsigned 64-bit integer"},
      {"an 8-bit integer", "a 16-bit integer", "a 32-bit integer", "a 64-bit integer"}};
  const char* name = kNames[is_signed ? 1 : 0][bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
  if (value.type_index == kBigInt) {
    // The object is its header, a count of 64-bit words, and the words from the lowest; 2^63 to 2^64 - 1 take two.
    const auto* count = reinterpret_cast<const std::size_t*>(value.v_obj + 1);
    const auto* words = reinterpret_cast<const std::uint64_t*>(count + 1);
    if (is_signed || bytes != 8 || *count != 2 || words[1] != 0) out_of_range(at, name, value);
    return words[0];
  }
  if (value.type_index == kTVMFFIBool) return value.v_int64 != 0 ? 1 : 0;
  if (value.type_index != kTVMFFIInt) wrong_type(at, "int", value);
  const std::int64_t integer = value.v_int64;
  const int unused_bits = static_cast<int>(64 - 8 * bytes);
  const bool fits = is_signed ? (integer << unused_bits >> unused_bits) == integer
                              : integer >= 0 && (bytes == 8 || integer >> (8 * bytes) == 0);
  if (!fits) out_of_range(at, name, value);
  return static_cast<std::uint64_t>(integer);
}

/// An integer of more than 64 bits.
KJIT_IMPL double real_of_big(const TVMFFIAny& value) {
  // Its header, a count of 64-bit words, and the words from the lowest; the highest has the sign.
  const auto* count = reinterpret_cast<const std::size_t*>(value.v_obj + 1);
  const auto* words = reinterpret_cast<const std::uint64_t*>(count + 1);
  long double sum = static_cast<long double>(static_cast<std::int64_t>(words[*count - 1]));
  for (std::size_t i = *count - 1; i > 0; --i) sum = sum * 0x1p64L + static_cast<long double>(words[i - 1]);
  return static_cast<double>(sum);
}

KJIT_IMPL double floating_of(const TVMFFIAny& value, std::size_t bytes, Position at) {
  if (value.type_index == kTVMFFIFloat) {
    const double real = value.v_float64;
    const bool finite = real - real == 0;
    // Half an ulp above the largest float: from there on the conversion would round to infinity.
    if (bytes == 4 && finite && (real >= 0x1.ffffffp+127 || real <= -0x1.ffffffp+127)) {
      out_of_range(at, "a 32-bit floating-point number", value);
    }
    return real;
  }
  if (value.type_index == kTVMFFIInt) return static_cast<double>(value.v_int64);
  if (value.type_index == kTVMFFIBool) return value.v_int64 != 0 ? 1.0 : 0.0;
  if (value.type_index == kBigInt) {
    const double real = real_of_big(value);
    const bool is_too_large = bytes == 4 ? real >= 0x1.ffffffp+127 || real <= -0x1.ffffffp+127 : real - real != 0;
    if (is_too_large)
      out_of_range(at, bytes == 4 ? "a 32-bit floating-point number" : "a floating-point number", value);
    return real;
  }
  wrong_type(at, "float", value);
}

KJIT_IMPL bool bool_of(const TVMFFIAny& value, Position at) {
  const bool is_bool = value.type_index == kTVMFFIBool;
  bool of_numpy = false;
  if (python::to_bool(value, of_numpy)) return of_numpy;
  if (!is_bool && !(value.type_index == kTVMFFIInt && (value.v_int64 == 0 || value.v_int64 == 1))) {
    wrong_type(at, "bool", value);
  }
  return value.v_int64 != 0;
}

KJIT_IMPL StringView string_of(const TVMFFIAny& value, Position at) {
  if (value.type_index == kTVMFFIRawStr) return StringView(value.v_c_str);
  if (value.type_index == kTVMFFISmallStr) return StringView(value.v_bytes, value.small_str_len);
  if (value.type_index != kTVMFFIStr) wrong_type(at, "str", value);
  const auto* bytes = reinterpret_cast<const TVMFFIByteArray*>(value.v_obj + 1);
  return StringView(bytes->data, bytes->size);
}

KJIT_IMPL host::ffi::Tensor owned_tensor_of(const TVMFFIAny& value, Position at) {
  if (value.type_index != kTVMFFITensor) {
    wrong_type(at, tensor_of(value) != nullptr ? "a tensor that can be kept" : "a tensor", value);
  }
  require_readable(value, at);
  TVMFFIObjectIncRef(value.v_obj);
  return host::ffi::Tensor(value.v_obj);
}

KJIT_IMPL DLDevice device_of(const TVMFFIAny& value, Position at) {
  DLDevice device{};
  if (value.type_index == kTVMFFIDevice) {
    device = value.v_device;
  } else if (!python::to_device(value, device)) {
    wrong_type(at, "a device (cpu or cuda)", value);
  }
#if KJIT_SIM
  // As of the tensors that are there.
  if (device.device_type == kDLCPU) return DLDevice{kDLCUDA, 0};
#endif
  return device;
}

KJIT_IMPL void set_tensor(TVMFFIAny* result, const host::ffi::Tensor& tensor) noexcept {
  *result = TVMFFIAny{};
  if (!tensor.defined()) return;
  TVMFFIObjectIncRef(tensor.object());
  result->type_index = kTVMFFITensor;
  result->v_obj = tensor.object();
}

KJIT_IMPL void* pointer_of(const TVMFFIAny& value, Position at) {
  // torch gives a stream as an integer (`stream.cuda_stream`); None is the null pointer.
  if (value.type_index == kTVMFFINone) return nullptr;
  if (value.type_index == kTVMFFIInt) return reinterpret_cast<void*>(static_cast<std::intptr_t>(value.v_int64));
  if (value.type_index != kTVMFFIOpaquePtr) wrong_type(at, "a raw pointer or its address", value);
  return value.v_ptr;
}

}  // namespace ffi_details

}  // namespace kjit
