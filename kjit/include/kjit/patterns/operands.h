// The operands of a pattern: which tensors are read, modified in place or written, and their element types.
//
//   struct Scale {
//     float alpha;
//     KJIT_MATH void element(float x, float& out) const { out = x * alpha; }
//   };
//   elementwise(Scale{2}, numel, device, In<bf16_t>(x), Out<bf16_t>(out));
//
// Math gets one value of each tensor, in call order, in the type that its elements are computed in (`compute_t`: float
// for narrower types), and returns results by reference. The same math serves GPU and CPU.
//
// Compiles in CUDA units, in the simulator and in plain C++ units, and includes no host-only header.

#pragma once

// Math sees no narrow type, so a unit need not include CUDA's headers for these, which are slow to compile. A source
// that calls their functions includes <kjit/utils.cuh> first.
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

/// Marks functions of math: device functions in CUDA units, always inline.
#ifdef __CUDACC__
#define KJIT_MATH __forceinline__ __device__
#else
#define KJIT_MATH [[gnu::always_inline]] inline
#endif

namespace kjit {

/// The device type that this unit is compiled for, for checks: `with_device<kDevice>(device)`.
#ifdef __CUDACC__
inline constexpr DLDeviceType kDevice = kDLCUDA;
#else
inline constexpr DLDeviceType kDevice = kDLCPU;
#endif

/// Which element of a tensor belongs to (row, column): its own, the column's, the row's, or that of a table row
/// selected by an index.
enum class Place { kElement, kColumn, kRow, kTable };

/// A tensor in a call of a pattern, with its access mode. As a kernel parameter it is a pointer.
template <typename T, bool kReads, bool kWrites, bool kMayBeAbsent = false, Place kWhere = Place::kElement>
struct Operand {
  using Element = T;
  using Value = compute_t<T>;                              // as passed to math
  using Stored = std::conditional_t<kWrites, T, const T>;  // the type that `data` points to
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
  using Operand<T, true, false>::Operand;
};

/// The same, possibly absent: then zeros.
template <typename T>
struct OptionalIn : Operand<T, true, false, true> {
  using Operand<T, true, false, true>::Operand;
};

/// A tensor that is modified in place.
template <typename T>
struct Mut : Operand<T, true, true> {
  using Operand<T, true, true>::Operand;
};

/// A tensor that is written without being read.
template <typename T>
struct Out : Operand<T, false, true> {
  using Operand<T, false, true>::Operand;
};

/// A table: rows selected by an index are read.
template <typename T>
struct Table : Operand<T, true, false, false, Place::kTable> {
  using Operand<T, true, false, false, Place::kTable>::Operand;
};

/// A table: rows selected by an index are written without being read.
template <typename T>
struct OutTable : Operand<T, false, true, false, Place::kTable> {
  using Operand<T, false, true, false, Place::kTable>::Operand;
};

/// A table: rows selected by an index are modified in place.
template <typename T>
struct MutTable : Operand<T, true, true, false, Place::kTable> {
  using Operand<T, true, true, false, Place::kTable>::Operand;
};

/// A tensor with one element for each column, read by all rows.
template <typename T>
struct PerColumn : Operand<T, true, false, false, Place::kColumn> {
  using Operand<T, true, false, false, Place::kColumn>::Operand;
};

/// The same, possibly absent: then zeros.
template <typename T>
struct OptionalPerColumn : Operand<T, true, false, true, Place::kColumn> {
  using Operand<T, true, false, true, Place::kColumn>::Operand;
};

/// A tensor with one element for each row, read by the whole row.
template <typename T>
struct PerRow : Operand<T, true, false, false, Place::kRow> {
  using Operand<T, true, false, false, Place::kRow>::Operand;
};

/// The same, possibly absent: then zeros.
template <typename T>
struct OptionalPerRow : Operand<T, true, false, true, Place::kRow> {
  using Operand<T, true, false, true, Place::kRow>::Operand;
};

/// A tensor with one element for each row, written once a row.
template <typename T>
struct OutPerRow : Operand<T, false, true, false, Place::kRow> {
  using Operand<T, false, true, false, Place::kRow>::Operand;
};

/// The same, modified in place, once a row.
template <typename T>
struct MutPerRow : Operand<T, true, true, false, Place::kRow> {
  using Operand<T, true, true, false, Place::kRow>::Operand;
};

namespace host {

/// The number of rows, and of elements in each.
struct RowSizes {
  std::int64_t num_rows;
  std::int64_t row_size;
};

}  // namespace host

/// A full tensor whose rows are not contiguous with each other: consecutive rows start `stride` elements apart, the
/// first at `offset`.
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

/// The halves of rows of twice the length: of `x: T[N, 2 * D]`, with `sizes` N and D.
template <typename Role>
Strided<Role> left_half(const Role& tensor, host::RowSizes sizes) {
  return {tensor, {.stride = 2 * sizes.row_size}};
}
template <typename Role>
Strided<Role> right_half(const Role& tensor, host::RowSizes sizes) {
  return {tensor, {.stride = 2 * sizes.row_size, .offset = sizes.row_size}};
}

/// The row indices for gather and scatter; not passed to math.
template <typename T>
struct Index {
  using Element = T;
  static constexpr bool kIsWritten = false;
  static constexpr bool kIsStrided = false;
  static constexpr Place kPlace = Place::kRow;

  const T* data;

  template <typename View>
  explicit Index(const View& tensor) : data(static_cast<const T*>(tensor.data_ptr())) {}
};

}  // namespace kjit
