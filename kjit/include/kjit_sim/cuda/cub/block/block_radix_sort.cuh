// CUB's sort of the keys of a block, with or without values, by a range of their bits. The sort is stable.

#pragma once

#include <cub/block/block_scan.cuh>
#include <cub/util_type.cuh>

#include <algorithm>

namespace cub {

template <typename KeyT, int BLOCK_DIM_X, int ITEMS_PER_THREAD, typename ValueT = NullType, int = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, cudaSharedMemConfig = cudaSharedMemBankSizeFourByte,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockRadixSort {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  static constexpr int kItems = ITEMS_PER_THREAD;
  using Order = kjit_detail::Order<Block, kItems>;
  static constexpr int kAll = Block::kThreads * kItems;
  static constexpr int kBits = sizeof(KeyT) * 8;
  using Digits = kjit_sim::ptx::Bits<KeyT>;
  static_assert(sizeof(Digits) == sizeof(KeyT), "the simulator sorts keys of 1, 2, 4 or 8 bytes");
  struct Storage {
    KeyT keys[kAll];
    ValueT values[kAll];
    int order[kAll];
  };

 public:
  struct TempStorage : Uninitialized<Storage> {};

  BlockRadixSort() : storage_(kjit_detail::private_storage<Storage>()) {}
  explicit BlockRadixSort(TempStorage& storage) : storage_(storage.Alias()) {}

#define KJIT_SIM_SORT(name, is_descending, is_striped)                                              \
  void name(KeyT(&keys)[kItems], int begin_bit = 0, int end_bit = kBits) {                          \
    NullType* const none = nullptr;                                                                 \
    sort<is_descending, is_striped>(keys, none, begin_bit, end_bit);                                \
  }                                                                                                 \
  void name(KeyT(&keys)[kItems], ValueT(&values)[kItems], int begin_bit = 0, int end_bit = kBits) { \
    sort<is_descending, is_striped>(keys, values, begin_bit, end_bit);                              \
  }
  KJIT_SIM_SORT(Sort, false, false)
  KJIT_SIM_SORT(SortDescending, true, false)
  KJIT_SIM_SORT(SortBlockedToStriped, false, true)
  KJIT_SIM_SORT(SortDescendingBlockedToStriped, true, true)
#undef KJIT_SIM_SORT

 private:
  template <bool kIsDescending, bool kIsStriped, typename Value>
  void sort(KeyT (&keys)[kItems], Value* values, int begin_bit, int end_bit) {
    constexpr bool kHasValues = !std::is_same_v<Value, NullType>;
    for (int i = 0; i < kItems; ++i) {
      storage_.keys[Order::blocked(i)] = keys[i];
      if constexpr (kHasValues) storage_.values[Order::blocked(i)] = values[i];
    }
    __syncthreads();
    if (Block::thread() == 0) {
      for (int i = 0; i < kAll; ++i) storage_.order[i] = i;
      std::sort(storage_.order, storage_.order + kAll, [&](int a, int b) {
        const Digits first = digits(storage_.keys[a], begin_bit, end_bit);
        const Digits second = digits(storage_.keys[b], begin_bit, end_bit);
        if (first == second) return a < b;
        return kIsDescending ? second < first : first < second;
      });
    }
    __syncthreads();
    for (int i = 0; i < kItems; ++i) {
      const int place = kIsStriped ? Order::striped(i) : Order::blocked(i);
      keys[i] = storage_.keys[storage_.order[place]];
      if constexpr (kHasValues) values[i] = storage_.values[storage_.order[place]];
    }
  }

  /// The selected bits of a key, in key order: the sign bit of a signed number is flipped, and every bit of a negative
  /// float.
  static Digits digits(const KeyT& key, int begin_bit, int end_bit) {
    constexpr auto kSign = static_cast<Digits>(Digits{1} << (kBits - 1));
    Digits bits;
    __builtin_memcpy(&bits, static_cast<const void*>(&key), sizeof(bits));
    if constexpr (std::is_signed_v<KeyT> && std::is_integral_v<KeyT>) {
      bits ^= kSign;
    } else if constexpr (!std::is_integral_v<KeyT>) {
      if (bits == kSign) bits = 0;  // -0.0 and 0.0 are equal
      bits = static_cast<Digits>((bits & kSign) != 0 ? ~bits : bits | kSign);
    }
    bits = static_cast<Digits>(bits >> begin_bit);
    const int count = end_bit - begin_bit;
    return count >= kBits ? bits : static_cast<Digits>(bits & ((Digits{1} << count) - 1));
  }

  Storage& storage_;
};

}  // namespace cub
