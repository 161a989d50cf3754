// The functions of kjit/ffi.h that have no template parameters (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/ffi.h>

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

KJIT_IMPL void TensorView::check_elements(int code, int bytes, DebugInfo where) const {
  const DLDataType dtype = tensor_.dtype;
  if (dtype.bits * dtype.lanes == bytes * 8 && (code < 0 || (dtype.code == code && dtype.lanes == 1))) return;
  if (code < 0) panic(where, "data_ptr<T>(): the elements are ", dtype, ", and T has ", bytes, " bytes");
  const DLDataType asked{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bytes * 8), 1};
  panic(where, "data_ptr<T>(): the elements are ", dtype, ", and T is ", asked);
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

/// Throws the error that a function of tvm-ffi's C ABI set when it returned `code`.
KJIT_IMPL void check(int code, DebugInfo where) {
  if (code == 0) return;
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) panic(where, "tvm-ffi reported an error without a message");
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
  if (object_ == nullptr) panic(where, "this tensor is empty: it was never assigned one");
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
          "a new tensor is allocated by the library of the call's tensors (torch), and this call has no tensors");
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
  if (!has_value()) panic(where, "value() of an argument that is None");
  return value_;
}

}  // namespace host

namespace ffi_details {

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
  // Pointers, also those passed as integers; and tvm-ffi's lists, objects and functions.
  const bool is_pointer = value.type_index == kTVMFFIOpaquePtr && value.v_ptr != nullptr;
  const bool is_address = value.type_index == kTVMFFIInt && value.v_int64 >> 32 != 0 && value.v_int64 >> 47 == 0;
  const bool is_object = value.type_index >= kTVMFFIStaticObjectBegin && value.type_index != kTVMFFIStr;
  if (is_pointer || is_address || is_object) ::kjit_sim::note_unknown();
}
#endif

KJIT_IMPL void require_data(const DLTensor& tensor, Position at) {
  if (tensor.data != nullptr) [[likely]] {
    return;
  }
  const std::int64_t elements = host::ShapeView(tensor.shape, static_cast<std::size_t>(tensor.ndim)).Product();
  if (elements != 0) without_data(at, elements);
}

// kTVMFFIBigInt: an integer of more than 64 signed bits. tvm-ffi's headers before 0.1.16 do not define it.
inline constexpr std::int32_t kBigInt = 78;

/// The count of its 64-bit words, and the words: lowest first, the highest holds the sign.
KJIT_IMPL const std::uint64_t* words_of(const TVMFFIAny& value) {
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  return reinterpret_cast<const std::uint64_t*>(value.v_obj + 1);
}

KJIT_IMPL std::uint64_t integer_of(const TVMFFIAny& value, std::size_t bytes, bool is_signed, Position at) {
  static constexpr const char* kNames[2][4] = {
      {"an unsigned 8-bit integer", "an unsigned 16-bit integer", "an unsigned 32-bit integer",
       "an unsigned 64-bit integer"},
      {"an 8-bit integer", "a 16-bit integer", "a 32-bit integer", "a 64-bit integer"}};
  const char* name = kNames[is_signed ? 1 : 0][bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
  if (value.type_index == kBigInt) {
    const auto* words = words_of(value);  // 2^63 to 2^64 - 1 take two
    if (is_signed || bytes != 8 || words[0] != 2 || words[2] != 0) out_of_range(at, name, value);
    return words[1];
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

/// An integer of more than 64 bits as a double.
KJIT_IMPL double real_of_big(const TVMFFIAny& value) {
  const auto* words = words_of(value);
  long double sum = static_cast<long double>(static_cast<std::int64_t>(words[words[0]]));
  for (std::size_t i = words[0] - 1; i > 0; --i) sum = sum * 0x1p64L + static_cast<long double>(words[i]);
  return static_cast<double>(sum);
}

KJIT_IMPL double floating_of(const TVMFFIAny& value, std::size_t bytes, Position at) {
  if (value.type_index == kTVMFFIFloat) {
    const double real = value.v_float64;
    const bool finite = real - real == 0;
    // Half an ulp above the largest float: from here on the conversion rounds to infinity.
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
  if (!is_bool && !(value.type_index == kTVMFFIInt && (value.v_int64 == 0 || value.v_int64 == 1))) {
    bool of_numpy = false;
    if (!python::to_bool(value, of_numpy)) wrong_type(at, "bool", value);
    return of_numpy;
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

KJIT_IMPL host::TensorListView tensors_of(const TVMFFIAny& value, Position at) {
  if (value.type_index != kTVMFFIArray && value.type_index != kTVMFFIList) wrong_type(at, "a list of tensors", value);
  // The layout that tvm/ffi/c_api.h specifies for both.
  const auto& list = *reinterpret_cast<const TVMFFISeqCell*>(value.v_obj + 1);
  const auto* values = static_cast<const TVMFFIAny*>(list.data);
  for (std::int64_t i = 0; i < list.size; ++i) {
    const Element element{at, named<host::TensorListView>(), Element::kIndex, i, nullptr};
    const DLTensor* tensor = tensor_of(values[i]);
    if (tensor == nullptr) wrong_type(Position(&element), "a tensor", values[i]);
#if KJIT_SIM
    note_argument(values[i], at);
#endif
    require_data(*tensor, Position(&element));
  }
  return {values, static_cast<std::size_t>(list.size)};
}

KJIT_IMPL host::ffi::Tensor owned_tensor_of(const TVMFFIAny& value, Position at) {
  if (value.type_index != kTVMFFITensor) {
    wrong_type(at, tensor_of(value) != nullptr ? "a tensor that can be kept" : "a tensor", value);
  }
  require_data(*tensor_of(value), at);
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
  // Consistent with the existing tensors.
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
  // torch passes a stream as an integer (`stream.cuda_stream`); None is the null pointer.
  if (value.type_index == kTVMFFINone) return nullptr;
  if (value.type_index == kTVMFFIInt) return reinterpret_cast<void*>(static_cast<std::intptr_t>(value.v_int64));
  if (value.type_index != kTVMFFIOpaquePtr) wrong_type(at, "a raw pointer or its address", value);
  return value.v_ptr;
}

}  // namespace ffi_details

}  // namespace kjit
