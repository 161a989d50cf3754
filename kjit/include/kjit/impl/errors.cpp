// Errors for wrong arguments, and raising an export's exceptions in Python: implementation of kjit/ffi.h (see
// KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <cxxabi.h>
#include <kjit/ffi.h>

#include <cstdlib>
#include <typeinfo>

namespace kjit::ffi_details {

/// The type of a value, in Python's terms.
KJIT_IMPL const char* python_type_name(const TVMFFIAny& value) {
  static constexpr struct {
    const char* name;
    std::int32_t types[3];  // None is 0, as are those that are left out, and comes first
  } kNames[] = {
      {"None", {kTVMFFINone}},
      {"int", {kTVMFFIInt, kBigInt}},
      {"bool", {kTVMFFIBool}},
      {"float", {kTVMFFIFloat}},
      {"a raw pointer", {kTVMFFIOpaquePtr}},
      {"a dtype", {kTVMFFIDataType}},
      {"a device", {kTVMFFIDevice}},
      {"a tensor", {kTVMFFIDLTensorPtr, kTVMFFITensor}},
      {"str", {kTVMFFIRawStr, kTVMFFISmallStr, kTVMFFIStr}},
      {"bytes", {kTVMFFIByteArrayPtr, kTVMFFISmallBytes, kTVMFFIBytes}},
      {"a function", {kTVMFFIFunction}},
      {"a list or tuple", {kTVMFFIArray, kTVMFFIList}},
      {"dict", {kTVMFFIMap, kTVMFFIDict}},
  };
  for (const auto& each : kNames) {
    for (const std::int32_t type : each.types) {
      if (type == value.type_index) return each.name;
    }
  }
  return "another object";
}

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

/// A type in a result of `named`, in readable form: without tvm-ffi's and kjit's namespaces, `int64_t` for `long int`,
/// and Python's names for types that have one.
KJIT_IMPL void append_type(Message& message, const char* pretty) {
  struct Spelling {
    const char* compiler;
    const char* people;
  };
  static constexpr Spelling kPython[] = {{"tvm::ffi::String", "str"},
                                         {"std::string", "str"},
                                         {"std::__cxx11::basic_string<char>", "str"},
                                         {"std::basic_string<char>", "str"},
                                         {"tvm::ffi::Bytes", "bytes"},
                                         {"tvm::ffi::Function", "a function"},
                                         {"tvm::ffi::Tensor", "a tensor"},
                                         {"tvm::ffi::TensorView", "a tensor"},
                                         {"DLTensor*", "a tensor"},
                                         {"kjit::host::TensorListView", "a list of tensors"},
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
      {", void>", ">"}};  // tvm-ffi's default arguments
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

/// The value or type that was passed, in Python's terms.
KJIT_IMPL void append_what_came(Message& message, const TVMFFIAny& value) {
  if (python::type_name(value, message)) return;
  if (value.type_index >= kTVMFFIDynObjectBegin) {
    const TVMFFIByteArray key = TVMFFIGetTypeInfo(value.type_index)->type_key;
    message << "a " << StringView(key.data, key.size);
  } else {
    message << python_type_name(value);
  }
}

/// A short string or a number, otherwise its type.
KJIT_IMPL void append_key(Message& message, const TVMFFIAny& key) {
  if (key.type_index == kTVMFFIInt) {
    message << key.v_int64;
  } else if (key.type_index == kTVMFFIStr || key.type_index == kTVMFFISmallStr) {
    message << "'" << string_of(key, {}) << "'";
  } else {
    append_what_came(message, key);
  }
}

/// `[1]['a']`, the path from the argument to an element.
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

/// `f(): argument 1 of 2`, or for an element `f(): argument 1 of 2 must be Array<int64_t>: element [1]`. True if the
/// message continues about the argument itself.
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

/// The type to name for an argument that is a `MayBeNone`: the whole type, not the contained one.
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

KJIT_IMPL void without_data(Position at, std::int64_t elements) {
  Message message;
  append_position(message, at);
  message << " is a tensor of " << elements << (elements == 1 ? " element" : " elements")
          << " without data: its memory was freed, or it never had any";
  throw PanicError(message, "RuntimeError");
}

KJIT_IMPL void wrong_count(const char* function, int expected, int given) {
  Message message;
  message << function << "() takes " << expected << (expected == 1 ? " argument" : " arguments") << ", but " << given
          << (given == 1 ? " was given" : " were given");
  throw PanicError(message, "TypeError");
}

/// The size in bytes of the UTF-8 character at the start of text; 0 if it is invalid, or a null.
KJIT_IMPL std::size_t utf8_size(const char* text, std::size_t size) {
  const auto byte = [&](std::size_t i) -> unsigned { return i < size ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong, a surrogate, or beyond the last code point.
  const unsigned second = byte(1);
  const bool is_none = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return is_none ? 0 : length;
}

/// `text` as a Python exception's message, which is UTF-8 and ends at the first null: invalid characters are replaced
/// by U+FFFD. To be freed by the caller; null if the text needs no change, or memory is exhausted.
KJIT_IMPL char* repaired(const char* text, std::size_t size) {
  std::size_t valid = 0;
  for (std::size_t length = 1; valid < size && length != 0; valid += length) {
    length = utf8_size(text + valid, size - valid);
  }
  char* repaired = valid == size ? nullptr : static_cast<char*>(std::malloc(3 * size + 1));
  if (repaired == nullptr) return nullptr;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < size;) {
    const std::size_t length = utf8_size(text + i, size - i);
    const char* from = length == 0 ? "\xEF\xBF\xBD" : text + i;
    for (std::size_t k = 0; k < (length == 0 ? 3 : length); ++k) repaired[filled++] = from[k];
    i += length == 0 ? 1 : length;
  }
  repaired[filled] = '\0';
  return repaired;
}

/// Appends the type name of the current exception.
KJIT_IMPL void append_type_in_flight(Message& message) {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return;
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  message << (name != nullptr ? name : type->name());
  std::free(name);
}

/// The current exception as one with a message.
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

// Without a backtrace: the stack here is that of the catch site. Walking it takes tvm-ffi's
// `TVMFFIErrorSetRaisedFromCStr` longer than everything else about an error, and Python as long again to make frames of
// it.
KJIT_IMPL int raise_current_exception() noexcept {
  const auto raise = [](const char* kind, const char* text, std::size_t size) {
    char* repaired_text = repaired(text, size);
    const TVMFFIByteArray of_kind = {kind, StringView(kind).size()}, backtrace = {"", 0};
    const TVMFFIByteArray message = {repaired_text != nullptr ? repaired_text : text,
                                     repaired_text != nullptr ? StringView(repaired_text).size() : size};
    TVMFFIObjectHandle error = nullptr;
    if (TVMFFIErrorCreate(&of_kind, &message, &backtrace, &error) == 0) {
      TVMFFIErrorSetRaised(error);
      TVMFFIObjectDecRef(error);
    } else {
      TVMFFIErrorSetRaisedFromCStr(kind, message.data);
    }
    std::free(repaired_text);
  };
  const auto raise_panic = [&](const PanicError& error) { raise(error.kind(), error.what(), error.size()); };
  try {
    throw;
  } catch (const PanicError& error) {
    raise_panic(error);
  } catch (const std::exception& error) {
    const StringView text = error.what();
    if (text.empty()) {
      raise_panic(described_in_flight());
    } else {
      raise("RuntimeError", text.data(), text.size());
    }
  } catch (const char* thrown) {
    const StringView text = thrown == nullptr ? "a null pointer to text was thrown" : thrown;
    raise("RuntimeError", text.data(), text.size());
  } catch (...) {
    raise_panic(described_in_flight());
  }
  return -1;
}

KJIT_IMPL int raise_tvm_error(TVMFFIObjectHandle error) noexcept {
  const auto& cell = *reinterpret_cast<const TVMFFIErrorCell*>(static_cast<const TVMFFIObject*>(error) + 1);
  char* repaired_text = repaired(cell.message.data, cell.message.size);
  TVMFFIObjectHandle readable = error;
  if (repaired_text != nullptr) {
    const TVMFFIByteArray message = {repaired_text, StringView(repaired_text).size()};
    if (TVMFFIErrorCreate(&cell.kind, &message, &cell.backtrace, &readable) != 0) readable = error;
    std::free(repaired_text);
  }
  TVMFFIErrorSetRaised(readable);
  if (readable != error) TVMFFIObjectDecRef(readable);
  return -1;
}

}  // namespace kjit::ffi_details
