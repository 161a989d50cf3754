// What a pattern's math is given: which tensors are read, changed in place or written, and the types of their elements.
//
//   struct Scale {
//     float alpha;
//     KJIT_MATH void element(float x, float& out) const { out = x * alpha; }
//   };
//   elementwise(Scale{2}, numel, device, In<bf16_t>(x), Out<bf16_t>(out));
//
// Math gets a value for each tensor, in the order of the call, in the type that its elements are computed in
// (`compute_t`: float for narrower types), and gives results by reference. It is the same for a GPU and the CPU.
//
// Compiles in CUDA units, in the simulator and in plain C++ units, and includes nothing that only a host has.

#pragma once

// Math sees no narrow type, and so a unit need not read CUDA's headers for these, which takes long. A source that calls
// their functions includes <kjit/utils.cuh> ahead of this.
#if !defined(KJIT_CUDA_TYPES) && !defined(KJIT_LIGHT_TYPES)
#define KJIT_LIGHT_TYPES
#endif

#include <dlpack/dlpack.h>
#include <kjit/dtype.h>

#include <cstdint>
#include <type_traits>

#if KJIT_CUDA_TYPES
#include <kjit/utils.cuh>
#endif

/// Marks the functions of math: device functions in CUDA units, inlined everywhere.
#ifdef __CUDACC__
#define KJIT_MATH __forceinline__ __device__
#else
#define KJIT_MATH [[gnu::always_inline]] inline
#endif

namespace kjit {

/// The device that this unit is compiled for, as a check has it: `with_device<kDevice>(device)`.
#ifdef __CUDACC__
inline constexpr DLDeviceType kDevice = kDLCUDA;
#else
inline constexpr DLDeviceType kDevice = kDLCPU;
#endif

/// Where a tensor has what belongs to an element: at the element's own place, at its column, at its row, or in a row of
/// its own that an index chooses.
enum class Place { kElement, kColumn, kRow, kTable };

/// A tensor in the call of a pattern, by what becomes of its elements. As a kernel's parameter it is a pointer.
template <typename T, bool kReads, bool kWrites, bool kMayBeAbsent = false, Place kWhere = Place::kElement>
struct Operand {
  using Element = T;
  using Value = compute_t<T>;                              // as math has it
  using Stored = std::conditional_t<kWrites, T, const T>;  // what `data` points to
  static constexpr bool kIsRead = kReads;
  static constexpr bool kIsWritten = kWrites;
  static constexpr bool kIsOptional = kMayBeAbsent;
  static constexpr Place kPlace = kWhere;
  static constexpr bool kIsStrided = false;

  Stored* data;

  template <typename View>
  explicit Operand(const View& tensor) {
    constexpr bool is_optional = requires { tensor.has_value(); };
    static_assert(kMayBeAbsent || !is_optional,
                  "this tensor may be absent: write Optional before its role, OptionalIn<T>(x)");
    if constexpr (kMayBeAbsent && is_optional) {
      data = tensor.has_value() ? static_cast<Stored*>(tensor.value().data_ptr()) : nullptr;
    } else if constexpr (!is_optional) {
      data = static_cast<Stored*>(tensor.data_ptr());
    }
  }
};

/// A tensor that is read.
template <typename T>
struct In : Operand<T, true, false> {
  template <typename View>
  explicit In(const View& tensor) : Operand<T, true, false>(tensor) {}
};

/// One that may be absent, and is read as zeros then.
template <typename T>
struct OptionalIn : Operand<T, true, false, true> {
  template <typename View>
  explicit OptionalIn(const View& tensor) : Operand<T, true, false, true>(tensor) {}
};

/// A tensor that is changed in place.
template <typename T>
struct Mut : Operand<T, true, true> {
  template <typename View>
  explicit Mut(const View& tensor) : Operand<T, true, true>(tensor) {}
};

/// A tensor that is written; what it held before is not read.
template <typename T>
struct Out : Operand<T, false, true> {
  template <typename View>
  explicit Out(const View& tensor) : Operand<T, false, true>(tensor) {}
};

/// A table: the rows that an index chooses are read.
template <typename T>
struct Table : Operand<T, true, false, false, Place::kTable> {
  template <typename View>
  explicit Table(const View& tensor) : Operand<T, true, false, false, Place::kTable>(tensor) {}
};

/// A table: the rows that an index chooses are written; what they held before is not read.
template <typename T>
struct OutTable : Operand<T, false, true, false, Place::kTable> {
  template <typename View>
  explicit OutTable(const View& tensor) : Operand<T, false, true, false, Place::kTable>(tensor) {}
};

/// One whose rows are changed in place.
template <typename T>
struct MutTable : Operand<T, true, true, false, Place::kTable> {
  template <typename View>
  explicit MutTable(const View& tensor) : Operand<T, true, true, false, Place::kTable>(tensor) {}
};

/// A tensor with an element for each column, which all rows read.
template <typename T>
struct PerColumn : Operand<T, true, false, false, Place::kColumn> {
  template <typename View>
  explicit PerColumn(const View& tensor) : Operand<T, true, false, false, Place::kColumn>(tensor) {}
};

/// One that may be absent, and is read as zeros then.
template <typename T>
struct OptionalPerColumn : Operand<T, true, false, true, Place::kColumn> {
  template <typename View>
  explicit OptionalPerColumn(const View& tensor) : Operand<T, true, false, true, Place::kColumn>(tensor) {}
};

/// A tensor with an element for each row, which all of the row read.
template <typename T>
struct PerRow : Operand<T, true, false, false, Place::kRow> {
  template <typename View>
  explicit PerRow(const View& tensor) : Operand<T, true, false, false, Place::kRow>(tensor) {}
};

/// One that may be absent, and is read as zeros then.
template <typename T>
struct OptionalPerRow : Operand<T, true, false, true, Place::kRow> {
  template <typename View>
  explicit OptionalPerRow(const View& tensor) : Operand<T, true, false, true, Place::kRow>(tensor) {}
};

/// A tensor with an element for each row, which is written once a row.
template <typename T>
struct OutPerRow : Operand<T, false, true, false, Place::kRow> {
  template <typename View>
  explicit OutPerRow(const View& tensor) : Operand<T, false, true, false, Place::kRow>(tensor) {}
};

/// One that is changed in place, once a row.
template <typename T>
struct MutPerRow : Operand<T, true, true, false, Place::kRow> {
  template <typename View>
  explicit MutPerRow(const View& tensor) : Operand<T, true, true, false, Place::kRow>(tensor) {}
};

namespace host {

/// How many rows there are, and how many elements each has.
struct RowSizes {
  std::int64_t num_rows;
  std::int64_t row_size;
};

}  // namespace host

/// A tensor with an element at each place whose rows do not follow each other: `stride` elements lie from the start of
/// one to that of the next, and `offset` ahead of the first.
///
///   Strided(In<T>(x), {.stride = 2 * D, .offset = D})    // the right half of x: T[B, 2 * D]
struct RowStride {
  std::int64_t stride;
  std::int64_t offset = 0;
};
template <typename Role>
struct Strided : Role {
  static_assert(Role::kPlace == Place::kElement, "rows with a stride are those of In, Mut, Out or OptionalIn");
  static constexpr bool kIsStrided = true;

  std::int64_t stride;

  Strided(const Role& tensor, RowStride rows) : Role(tensor), stride(rows.stride) {
    if (this->data != nullptr) this->data += rows.offset;
  }
};
template <typename Role>
Strided(Role, RowStride) -> Strided<Role>;

/// The halves of rows that are twice as long: of `x: T[N, 2 * D]`, where `sizes` are N and D.
template <typename Role>
Strided<Role> left_half(const Role& tensor, host::RowSizes sizes) {
  return {tensor, {.stride = 2 * sizes.row_size}};
}
template <typename Role>
Strided<Role> right_half(const Role& tensor, host::RowSizes sizes) {
  return {tensor, {.stride = 2 * sizes.row_size, .offset = sizes.row_size}};
}

/// The numbers of the rows that are chosen, for a pattern that takes some; math does not get them.
template <typename T>
struct Index {
  const T* data;

  template <typename View>
  explicit Index(const View& tensor) : data(static_cast<const T*>(tensor.data_ptr())) {}
};

}  // namespace kjit
