// Vector widths and alignment of the tensors in a pattern's kernels.

#pragma once

#include <kjit/patterns/operands.h>

#include <cstddef>
#include <cstdint>

namespace kjit::details {

/// Whether an operand has one of these places.
template <typename Operand, Place... kPlaces>
constexpr bool kIsIn = ((Operand::kPlace == kPlaces) || ...);

/// The number of elements of the widest type in `bytes` bytes; per-row tensors are not counted, as they are not moved
/// in vectors.
template <typename... Operands>
constexpr int elements_in(std::size_t bytes) {
  std::size_t widest = 1;
  const std::size_t sizes[] = {kIsIn<Operands, Place::kRow> ? 1 : sizeof(typename Operands::Element)...};
  for (const std::size_t size : sizes) widest = size > widest ? size : widest;
  return static_cast<int>(bytes / widest);
}

/// Whether all rows of a tensor are aligned to a vector if the first one is.
template <int kVec, typename Operand>
bool keeps_aligned(const Operand& tensor) {
  if constexpr (Operand::kIsStrided) return tensor.stride % kVec == 0;
  return true;
}

/// The number of elements before the first one that is aligned to a vector of kVec elements in all present tensors with
/// these places; -1 if there is none.
template <int kVec, Place... kPlaces, typename... Operands>
std::int64_t aligned_head(const Operands&... tensors) {
  const std::uintptr_t addresses[] = {kIsIn<Operands, kPlaces...> ? reinterpret_cast<std::uintptr_t>(tensors.data)
                                                                  : std::uintptr_t{0}...};
  const std::size_t sizes[] = {sizeof(typename Operands::Element)...};
  std::int64_t first = -1;
  for (std::size_t i = 0; i < sizeof...(Operands); ++i) {
    if (addresses[i] == 0) continue;
    const std::int64_t head = static_cast<std::int64_t>(-addresses[i] % (kVec * sizes[i]) / sizes[i]);
    if (first >= 0 && head != first) return -1;
    first = head;
  }
  return first < 0 ? 0 : first;
}

/// The next vector size to try below kVec: a quarter, to limit the number of kernels that are compiled.
template <int kVec>
constexpr int kNarrower = kVec > 4 ? kVec / 4 : 1;

/// The widest of these vectors, of up to kVec elements, that divides the rows and to which all tensors with these
/// places are aligned.
template <int kVec, Place... kPlaces, typename... Operands>
int widest_vector(std::int64_t row_size, const Operands&... tensors) {
  if constexpr (kVec > 1) {
    const bool fits = row_size % kVec == 0 && aligned_head<kVec, kPlaces...>(tensors...) == 0;
    return fits ? kVec : widest_vector<kNarrower<kVec>, kPlaces...>(row_size, tensors...);
  }
  return 1;
}

}  // namespace kjit::details
