// CUB for the simulator: types and helpers shared by its parts.
//
// Collectives cooperate between threads as in CUB, with the same barriers, so that the checks find a missing barrier
// between two uses of one storage. Floating-point sums may be in another order.

#pragma once

#include <kjit_sim/sim.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cub {

struct NullType {};

template <typename K, typename V>
struct KeyValuePair {
  using Key = K;
  using Value = V;

  Key key;
  Value value;

  KeyValuePair() = default;
  KeyValuePair(const Key& key, const Value& value) : key(key), value(value) {}
  bool operator!=(const KeyValuePair& other) const { return key != other.key || value != other.value; }
};

/// Memory for a T without a constructor.
template <typename T>
struct Uninitialized {
  alignas(T) unsigned char bytes[sizeof(T)];

  T& Alias() { return *reinterpret_cast<T*>(bytes); }
};

namespace kjit_detail {

/// A block of threads with a compile-time shape.
template <int kX, int kY, int kZ>
struct Block {
  static constexpr int kThreads = kX * kY * kZ;
  static constexpr int kWarps = (kThreads + 31) / 32;

  static int thread() {
    const unsigned row = (kY > 1 ? threadIdx.y : 0) + (kZ > 1 ? kY * threadIdx.z : 0);
    return static_cast<int>(threadIdx.x + kX * row);
  }
  static int warp() { return thread() / 32; }
  static int lane() { return thread() % 32; }
};

/// The index of item `i` of this thread in a tile with `kItems` items a thread.
template <typename Block, int kItems>
struct Order {
  static int blocked(int i) { return Block::thread() * kItems + i; }
  static int striped(int i) { return i * Block::kThreads + Block::thread(); }
  static int warp_striped(int i) {
    const int threads = std::min(32, Block::kThreads - Block::warp() * 32);
    return Block::warp() * 32 * kItems + i * threads + Block::lane();
  }
};

/// Shared memory for callers that provide none.
template <typename Storage>
Storage& private_storage() {
  __shared__ Uninitialized<Storage> storage;
  return storage.Alias();
}

/// A shuffle of any type.
template <typename T>
T shuffle(kjit_sim::WarpOp op, unsigned mask, const T& value, unsigned argument, unsigned width = 32) {
  constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
  std::uint64_t words[kWords] = {};
  __builtin_memcpy(words, static_cast<const void*>(&value), sizeof(T));
  for (auto& word : words) word = kjit_sim::warp_op(op, mask, word, argument, width);
  T result;
  __builtin_memcpy(static_cast<void*>(&result), words, sizeof(T));
  return result;
}

/// `kSize` consecutive lanes of a warp.
template <int kSize>
struct Lanes {
  static_assert(kSize > 0 && kSize <= 32 && (kSize & (kSize - 1)) == 0,
                "the simulator has CUB's operations of a warp for a power of two of lanes, up to 32");

  static int lane() { return static_cast<int>(kjit_sim::lane_id()) % kSize; }
  static unsigned mask() {
    return static_cast<unsigned>(((std::uint64_t{1} << kSize) - 1) << (kjit_sim::lane_id() / kSize * kSize));
  }

  /// Reduces the lanes from this one to `last`, in order.
  template <typename T, typename Op>
  static T reduce(T value, int last, Op op) {
    for (int offset = 1; offset < kSize; offset *= 2) {
      const T other = shuffle(kjit_sim::WarpOp::kShuffleDown, mask(), value, static_cast<unsigned>(offset), kSize);
      if (lane() + offset <= last) value = op(value, other);
    }
    return value;
  }
  /// Scans the lanes up to this one, in order.
  template <typename T, typename Op>
  static T scan(T value, Op op) {
    for (int offset = 1; offset < kSize; offset *= 2) {
      const T other = shuffle(kjit_sim::WarpOp::kShuffleUp, mask(), value, static_cast<unsigned>(offset), kSize);
      if (lane() >= offset) value = op(other, value);
    }
    return value;
  }
  template <typename T>
  static T before(const T& value) {
    return shuffle(kjit_sim::WarpOp::kShuffleUp, mask(), value, 1, kSize);
  }
  template <typename T>
  static T of(const T& value, int lane) {
    return shuffle(kjit_sim::WarpOp::kShuffle, mask(), value, static_cast<unsigned>(lane), kSize);
  }
};

struct Plus {
  template <typename T>
  T operator()(const T& a, const T& b) const {
    return static_cast<T>(a + b);
  }
};

}  // namespace kjit_detail

}  // namespace cub
