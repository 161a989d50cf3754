// CUB's exchanges of items within a block: between the blocked and the striped arrangement.

#pragma once

#include <cub/util_type.cuh>

namespace cub {

template <typename T, int BLOCK_DIM_X, int ITEMS_PER_THREAD, bool = false, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1,
          int = 0>
class BlockExchange {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  static constexpr int kItems = ITEMS_PER_THREAD;
  using Order = kjit_detail::Order<Block, kItems>;
  struct Storage {
    T items[Block::kThreads * kItems];
  };

 public:
  struct TempStorage : Uninitialized<Storage> {};

  BlockExchange() : storage_(kjit_detail::private_storage<Storage>()) {}
  explicit BlockExchange(TempStorage& storage) : storage_(storage.Alias()) {}

  template <typename Out>
  void StripedToBlocked(const T (&input)[kItems], Out (&output)[kItems]) {
    put(input, &Order::striped);
    __syncthreads();
    take(output, &Order::blocked);
  }
  template <typename Out>
  void BlockedToStriped(const T (&input)[kItems], Out (&output)[kItems]) {
    put(input, &Order::blocked);
    __syncthreads();
    take(output, &Order::striped);
  }
  template <typename Out>
  void WarpStripedToBlocked(const T (&input)[kItems], Out (&output)[kItems]) {
    put(input, &Order::warp_striped);
    __syncwarp();
    take(output, &Order::blocked);
  }
  template <typename Out>
  void BlockedToWarpStriped(const T (&input)[kItems], Out (&output)[kItems]) {
    put(input, &Order::blocked);
    __syncwarp();
    take(output, &Order::warp_striped);
  }
  template <typename Out, typename Offset>
  void ScatterToBlocked(const T (&input)[kItems], Out (&output)[kItems], const Offset (&ranks)[kItems]) {
    for (int i = 0; i < kItems; ++i) storage_.items[ranks[i]] = input[i];
    __syncthreads();
    take(output, &Order::blocked);
  }
  template <typename Out, typename Offset>
  void ScatterToStriped(const T (&input)[kItems], Out (&output)[kItems], const Offset (&ranks)[kItems]) {
    for (int i = 0; i < kItems; ++i) storage_.items[ranks[i]] = input[i];
    __syncthreads();
    take(output, &Order::striped);
  }

 private:
  void put(const T (&input)[kItems], int (*place)(int)) {
    for (int i = 0; i < kItems; ++i) storage_.items[place(i)] = input[i];
  }
  template <typename Out>
  void take(Out (&output)[kItems], int (*place)(int)) {
    for (int i = 0; i < kItems; ++i) output[i] = storage_.items[place(i)];
  }

  Storage& storage_;
};

}  // namespace cub
