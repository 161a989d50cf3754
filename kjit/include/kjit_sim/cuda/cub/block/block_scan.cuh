// CUB's block prefix sums.

#pragma once

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <typename T, int BLOCK_DIM_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1,
          int = 0>
class BlockScan {
  using Block = kjit_detail::Block<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
  using Lanes = kjit_detail::Lanes<32>;
  using Plus = kjit_detail::Plus;
  struct Storage {
    T of_warps[Block::kWarps];
    T prefix;
  };
  /// The prefix of the block: nothing, a value, or the result of a callback for the block's total.
  struct Nothing {
    static constexpr bool kIsThere = false;
  };
  struct Value {
    static constexpr bool kIsThere = true;
    T value;
  };
  template <typename Callback>
  struct Called {
    static constexpr bool kIsThere = true;
    Callback& callback;
  };

 public:
  struct TempStorage : Uninitialized<Storage> {};

  BlockScan() : storage_(kjit_detail::private_storage<Storage>()) {}
  explicit BlockScan(TempStorage& storage) : storage_(storage.Alias()) {}

  // For one value or an array, by the types `In` and `Out`.
#define KJIT_SIM_SUM(name, is_inclusive, prefix)                                                  \
  template <typename In, typename Out>                                                            \
  void name(In&& input, Out& output) {                                                            \
    T total;                                                                                      \
    scan<is_inclusive>(input, output, prefix, Plus(), total);                                     \
  }                                                                                               \
  template <typename In, typename Out>                                                            \
  void name(In&& input, Out& output, T& block_aggregate) {                                        \
    scan<is_inclusive>(input, output, prefix, Plus(), block_aggregate);                           \
  }                                                                                               \
  template <typename In, typename Out, typename Callback>                                         \
    requires std::is_invocable_v<Callback&, T>                                                    \
  void name(In&& input, Out& output, Callback& block_prefix_callback_op) {                        \
    T total;                                                                                      \
    scan<is_inclusive>(input, output, Called<Callback>{block_prefix_callback_op}, Plus(), total); \
  }
  KJIT_SIM_SUM(ExclusiveSum, false, Value{T{}})
  KJIT_SIM_SUM(InclusiveSum, true, Nothing{})
#undef KJIT_SIM_SUM

#define KJIT_SIM_SCAN(name, is_inclusive)                                                                     \
  template <typename In, typename Out, typename Op>                                                           \
    requires std::is_invocable_v<Op&, T, T>                                                                   \
  void name(In&& input, Out& output, Op scan_op) {                                                            \
    T total;                                                                                                  \
    scan<is_inclusive>(input, output, Nothing{}, scan_op, total);                                             \
  }                                                                                                           \
  template <typename In, typename Out, typename Op>                                                           \
    requires std::is_invocable_v<Op&, T, T>                                                                   \
  void name(In&& input, Out& output, Op scan_op, T& block_aggregate) {                                        \
    scan<is_inclusive>(input, output, Nothing{}, scan_op, block_aggregate);                                   \
  }                                                                                                           \
  template <typename In, typename Out, typename Op, typename Callback>                                        \
    requires(std::is_invocable_v<Op&, T, T> && std::is_invocable_v<Callback&, T>)                             \
  void name(In&& input, Out& output, Op scan_op, Callback& block_prefix_callback_op) {                        \
    T total;                                                                                                  \
    scan<is_inclusive>(input, output, Called<Callback>{block_prefix_callback_op}, scan_op, total);            \
  }                                                                                                           \
  template <typename In, typename Out, typename Op>                                                           \
    requires std::is_invocable_v<Op&, T, T>                                                                   \
  void name(In&& input, Out& output, std::type_identity_t<T> initial_value, Op scan_op) {                     \
    T total;                                                                                                  \
    scan<is_inclusive>(input, output, Value{initial_value}, scan_op, total);                                  \
  }                                                                                                           \
  template <typename In, typename Out, typename Op>                                                           \
    requires std::is_invocable_v<Op&, T, T>                                                                   \
  void name(In&& input, Out& output, std::type_identity_t<T> initial_value, Op scan_op, T& block_aggregate) { \
    scan<is_inclusive>(input, output, Value{initial_value}, scan_op, block_aggregate);                        \
  }
  /// Without an initial value the first output is undefined.
  KJIT_SIM_SCAN(ExclusiveScan, false)
  KJIT_SIM_SCAN(InclusiveScan, true)
#undef KJIT_SIM_SCAN

 private:
  template <bool kIsInclusive, int kItems, typename Prefix, typename Op>
  void scan(T (&input)[kItems], T (&output)[kItems], Prefix prefix, Op op, T& total) {
    T sum = input[0];
    for (int i = 1; i < kItems; ++i) sum = op(sum, input[i]);
    bool is_there;
    T running = before(sum, prefix, op, total, is_there);
    for (int i = 0; i < kItems; ++i) {
      const T next = is_there ? static_cast<T>(op(running, input[i])) : input[i];
      output[i] = kIsInclusive ? next : running;
      running = next;
      is_there = true;
    }
  }
  template <bool kIsInclusive, typename Prefix, typename Op>
  void scan(T input, T& output, Prefix prefix, Op op, T& total) {
    bool is_there;
    const T running = before(input, prefix, op, total, is_there);
    output = !kIsInclusive ? running : is_there ? static_cast<T>(op(running, input)) : input;
  }

  /// The prefix of this thread's item, if there is one, and the total.
  template <typename Prefix, typename Op>
  T before(T item, Prefix prefix, Op op, T& total, bool& is_there) {
    const T in_warp = Lanes::scan(item, op);
    T running = Lanes::before(in_warp);
    is_there = Block::lane() > 0;
    if (Block::lane() == 31 || Block::thread() == Block::kThreads - 1) storage_.of_warps[Block::warp()] = in_warp;
    __syncthreads();
    total = storage_.of_warps[0];
    T warps_before = total;
    for (int warp = 1; warp < Block::kWarps; ++warp) {
      if (warp == Block::warp()) warps_before = total;
      total = op(total, storage_.of_warps[warp]);
    }
    if (Block::warp() > 0) {
      running = is_there ? static_cast<T>(op(warps_before, running)) : warps_before;
      is_there = true;
    }
    if constexpr (Prefix::kIsThere) {
      const T first = seed(prefix, total);
      running = is_there ? static_cast<T>(op(first, running)) : first;
      is_there = true;
    }
    return running;
  }
  T seed(const Value& prefix, const T&) { return prefix.value; }
  /// Called by the first warp; the result of its first lane is used.
  template <typename Callback>
  T seed(const Called<Callback>& prefix, const T& total) {
    if (Block::warp() == 0) {
      const T value = prefix.callback(total);
      if (Block::lane() == 0) storage_.prefix = value;
    }
    __syncthreads();
    return storage_.prefix;
  }

  Storage& storage_;
};

}  // namespace cub
