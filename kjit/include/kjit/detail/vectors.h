// Tensors as a pattern's kernels move them: the width of vectors, and where these are aligned.

#pragma once

#include <kjit/patterns/operands.h>

#include <cstddef>
#include <cstdint>

namespace kjit::details {

/// Whether a tensor is of one of these kinds.
template <typename Operand, Place... kPlaces>
constexpr bool kIsIn = ((Operand::kPlace == kPlaces) || ...);

/// How many elements of the widest type fit into so many bytes, but for those with one for each row, which are not
/// moved in vectors.
template <typename... Operands>
constexpr int elements_in(std::size_t bytes) {
  std::size_t widest = 1;
  const std::size_t sizes[] = {kIsIn<Operands, Place::kRow> ? 1 : sizeof(typename Operands::Element)...};
  for (const std::size_t size : sizes) widest = size > widest ? size : widest;
  return static_cast<int>(bytes / widest);
}

/// Whether rows of a tensor begin with a vector wherever the first one does.
template <int kVec, typename Operand>
bool keeps_aligned(const Operand& tensor) {
  if constexpr (Operand::kIsStrided) return tensor.stride % kVec == 0;
  return true;
}

/// How many elements come before the first one that is aligned to a vector of kVec elements in each of the tensors of
/// these kinds that are there; -1 where they never are at the same time.
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

/// The next size of vectors where kVec elements are too many: a quarter, as kernels for each size take long to compile.
template <int kVec>
constexpr int kNarrower = kVec > 4 ? kVec / 4 : 1;

/// The widest of these vectors, of up to kVec elements, that each row is made of and each of the tensors of these kinds
/// is aligned to.
template <int kVec, Place... kPlaces, typename... Operands>
int widest_vector(std::int64_t row_size, const Operands&... tensors) {
  if constexpr (kVec > 1) {
    const bool fits = row_size % kVec == 0 && aligned_head<kVec, kPlaces...>(tensors...) == 0;
    return fits ? kVec : widest_vector<kNarrower<kVec>, kPlaces...>(row_size, tensors...);
  }
  return 1;
}

}  // namespace kjit::details
