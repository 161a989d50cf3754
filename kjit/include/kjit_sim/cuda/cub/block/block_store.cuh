// CUB's stores of a tile by a block, from a blocked or striped arrangement.

#pragma once

#include <cub/block/block_exchange.cuh>
#include <cub/util_type.cuh>

namespace cub {

enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

template <typename T, int BLOCK_DIM_X, int ITEMS_PER_THREAD, BlockStoreAlgorithm ALGORITHM = BLOCK_STORE_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockStore {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  using Exchange = BlockExchange<T, BLOCK_DIM_X, ITEMS_PER_THREAD, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  static constexpr int kItems = ITEMS_PER_THREAD;
  using Order = kjit_detail::Order<Block, kItems>;
  static constexpr bool kThroughWarp =
      ALGORITHM == BLOCK_STORE_WARP_TRANSPOSE || ALGORITHM == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED;
  static constexpr bool kThroughShared = kThroughWarp || ALGORITHM == BLOCK_STORE_TRANSPOSE;
  static_assert(!kThroughWarp || Block::kThreads % 32 == 0, "BLOCK_DIM_THREADS must be a multiple of 32");

 public:
  using TempStorage = std::conditional_t<kThroughShared, typename Exchange::TempStorage, Uninitialized<NullType>>;

  BlockStore() : storage_(kjit_detail::private_storage<TempStorage>()) {}
  explicit BlockStore(TempStorage& storage) : storage_(storage) {}

  template <typename Iterator>
  void Store(Iterator to, T (&items)[kItems]) {
    Store(to, items, Block::kThreads * kItems);
  }
  /// Writes the first `valid` items of the tile.
  template <typename Iterator>
  void Store(Iterator to, T (&items)[kItems], int valid) {
    if constexpr (kThroughWarp) {
      Exchange(storage_).BlockedToWarpStriped(items, items);
    } else if constexpr (kThroughShared) {
      Exchange(storage_).BlockedToStriped(items, items);
    }
    for (int i = 0; i < kItems; ++i) {
      if (place(i) < valid) to[place(i)] = items[i];
    }
  }

 private:
  static int place(int i) {
    if constexpr (kThroughWarp) {
      return Order::warp_striped(i);
    } else if constexpr (kThroughShared || ALGORITHM == BLOCK_STORE_STRIPED) {
      return Order::striped(i);
    } else {
      return Order::blocked(i);
    }
  }

  TempStorage& storage_;
};

}  // namespace cub
