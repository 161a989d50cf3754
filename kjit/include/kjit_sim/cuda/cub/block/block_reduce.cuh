// CUB's block reductions. The result is valid in the first thread.

#pragma once

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

#include <algorithm>

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS,
  BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};

template <typename T, int BLOCK_DIM_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockReduce {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  struct Storage {
    T of_warps[Block::kWarps];
  };

 public:
  struct TempStorage : Uninitialized<Storage> {};

  BlockReduce() : storage_(kjit_detail::private_storage<Storage>()) {}
  explicit BlockReduce(TempStorage& storage) : storage_(storage.Alias()) {}

  template <typename Op>
  T Reduce(T input, Op op, int num_valid = Block::kThreads) {
    const int last = std::min(num_valid, Block::kThreads) - 1;
    T result = kjit_detail::Lanes<32>::reduce(input, last - Block::warp() * 32, op);
    if (Block::lane() == 0) storage_.of_warps[Block::warp()] = result;
    __syncthreads();
    if (Block::thread() == 0) {
      for (int warp = 1; warp * 32 <= last; ++warp) result = op(result, storage_.of_warps[warp]);
    }
    return result;
  }
  template <int kItems, typename Op>
  T Reduce(T (&inputs)[kItems], Op op) {
    T partial = inputs[0];
    for (int i = 1; i < kItems; ++i) partial = op(partial, inputs[i]);
    return Reduce(partial, op);
  }
  T Sum(T input) { return Reduce(input, kjit_detail::Plus()); }
  T Sum(T input, int num_valid) { return Reduce(input, kjit_detail::Plus(), num_valid); }
  template <int kItems>
  T Sum(T (&inputs)[kItems]) {
    return Reduce(inputs, kjit_detail::Plus());
  }

 private:
  Storage& storage_;
};

}  // namespace cub
