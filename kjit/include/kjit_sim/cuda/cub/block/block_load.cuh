// CUB's loads of a tile by a block, in a blocked or striped arrangement.

#pragma once

#include <cub/block/block_exchange.cuh>
#include <cub/util_type.cuh>

namespace cub {

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};

template <typename T, int BLOCK_DIM_X, int ITEMS_PER_THREAD, BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockLoad {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  using Exchange = BlockExchange<T, BLOCK_DIM_X, ITEMS_PER_THREAD, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  static constexpr int kItems = ITEMS_PER_THREAD;
  using Order = kjit_detail::Order<Block, kItems>;
  static constexpr bool kThroughWarp =
      ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE || ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED;
  static constexpr bool kThroughShared = kThroughWarp || ALGORITHM == BLOCK_LOAD_TRANSPOSE;
  static_assert(!kThroughWarp || Block::kThreads % 32 == 0, "BLOCK_DIM_THREADS must be a multiple of 32");

 public:
  using TempStorage = std::conditional_t<kThroughShared, typename Exchange::TempStorage, Uninitialized<NullType>>;

  BlockLoad() : storage_(kjit_detail::private_storage<TempStorage>()) {}
  explicit BlockLoad(TempStorage& storage) : storage_(storage) {}

  template <typename Iterator>
  void Load(Iterator from, T (&items)[kItems]) {
    Load(from, items, Block::kThreads * kItems);
  }
  /// Reads the first `valid` items of the tile; the others are left unchanged, or set to `otherwise`.
  template <typename Iterator>
  void Load(Iterator from, T (&items)[kItems], int valid) {
    for (int i = 0; i < kItems; ++i) {
      if (place(i) < valid) items[i] = from[place(i)];
    }
    if constexpr (kThroughWarp) {
      Exchange(storage_).WarpStripedToBlocked(items, items);
    } else if constexpr (kThroughShared) {
      Exchange(storage_).StripedToBlocked(items, items);
    }
  }
  template <typename Iterator, typename Default>
  void Load(Iterator from, T (&items)[kItems], int valid, Default otherwise) {
    for (auto& item : items) item = static_cast<T>(otherwise);
    Load(from, items, valid);
  }

 private:
  static int place(int i) {
    if constexpr (kThroughWarp) {
      return Order::warp_striped(i);
    } else if constexpr (kThroughShared || ALGORITHM == BLOCK_LOAD_STRIPED) {
      return Order::striped(i);
    } else {
      return Order::blocked(i);
    }
  }

  TempStorage& storage_;
};

}  // namespace cub
