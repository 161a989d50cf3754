// Exports for test_warp.py.

#include <kjit/ffi.h>
#include <kjit/tensor.h>
#include <kjit/tile.cuh>
#include <kjit/utils.cuh>
#include <kjit/warp.cuh>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT
using device::ReductionOp;

constexpr ReductionOp kOps[] = {ReductionOp::SUM, ReductionOp::MAX, ReductionOp::MIN};

// One warp a block. Every test array is [..., warps, 32]: `lane_of` is the offset of this thread in the last two
// dimensions.
__device__ std::int64_t lane_of() {
  return std::int64_t{blockIdx.x} * 32 + threadIdx.x;
}
__device__ std::int64_t all_lanes() {
  return std::int64_t{gridDim.x} * 32;
}

// All groups are tested with two types; the others with the widths, one group of distant lanes and two upward
// reductions. test_warp.py has the same choice.
template <typename T>
constexpr bool is_tested(std::uint32_t start, std::uint32_t finish) {
  return std::is_same_v<T, std::int32_t> || std::is_same_v<T, fp32_t> || finish == 1 || (start == 32 && finish == 4) ||
         (start == 1 && finish == 32) || (start == 4 && finish == 16);
}

// `out` is [op][log2 kStart][log2 kFinish][warps][32].
template <typename T, ReductionOp kOp, std::uint32_t kStart, std::uint32_t kFinish>
__device__ void reduce_once(T* out, T value, int place) {
  if constexpr (is_tested<T>(kStart, kFinish)) {
    out[place * all_lanes() + lane_of()] = device::warp::reduce<kOp, kStart, kFinish>(value);
  }
}
template <typename T, int... kPlaces>
__device__ void reduce_all(T* out, T value, std::integer_sequence<int, kPlaces...>) {
  (reduce_once<T, kOps[kPlaces / 36], (1u << (kPlaces / 6 % 6)), (1u << (kPlaces % 6))>(out, value, kPlaces), ...);
}
template <typename T>
__global__ void reduce_kernel(T* out, const T* in) {
  reduce_all(out, in[lane_of()], std::make_integer_sequence<int, 3 * 36>{});
}
template <typename T>
void reduce(TensorView out, TensorView in, std::int64_t warps) {
  LaunchKernel(warps, 32, in.device())(reduce_kernel<T>, data_of<T>(out), data_of<const T>(in));
}

// The named forms, with their defaults; `out` is [7][warps][32].
__global__ void named_kernel(float* out, const float* in) {
  const float value = in[lane_of()];
  const float results[] = {device::warp::reduce_sum(value),    device::warp::reduce_max(value),
                           device::warp::reduce_min(value),    device::warp::inclusive_sum(value),
                           device::warp::inclusive_max(value), device::warp::inclusive_min(value),
                           device::warp::broadcast(value, 5)};
  for (int i = 0; i < 7; ++i) out[i * all_lanes() + lane_of()] = results[i];
}
void named(TensorView out, TensorView in, std::int64_t warps) {
  LaunchKernel(warps, 32, in.device())(named_kernel, data_of<float>(out), data_of<const float>(in));
}

// A block of 48 threads: its second warp has 16 lanes. In the first, groups of 8 call with their own masks, then only
// the upper half calls. `out` is [4][48].
template <typename T>
__global__ void masked_kernel(T* out, const T* in) {
  namespace warp = device::warp;
  const T value = in[threadIdx.x];
  const std::uint32_t lane = device::get_lane_id();
  const warp::mask_t group = 0xffu << (lane / 8 * 8);
  T results[] = {value, value, value, value};
  results[0] = warp::reduce_sum<8>(value, group);
  results[1] = warp::inclusive_sum<8>(value, device::get_lane_id<8>(), group);
  results[2] = warp::broadcast<8>(value, 3, group);
  if (threadIdx.x < 32 && lane >= 16) results[3] = warp::reduce_max<16>(value, 0xffff0000u);
  for (int i = 0; i < 4; ++i) out[i * 48 + static_cast<int>(threadIdx.x)] = results[i];
}
template <typename T>
void masked(TensorView out, TensorView in) {
  LaunchKernel(1, 48, in.device())(masked_kernel<T>, data_of<T>(out), data_of<const T>(in));
}

// The tested widths, starts and ends of scans. test_warp.py has the same list.
struct Scan {
  std::uint32_t width, start, finish;
};
constexpr Scan kScans[] = {
    {32, 1, 32}, {16, 1, 16}, {8, 1, 8},   {4, 1, 4},   {2, 1, 2}, {1, 1, 1},   {32, 4, 32}, {32, 1, 8},
    {32, 2, 16}, {8, 2, 8},   {32, 32, 1}, {32, 16, 1}, {8, 8, 1}, {32, 32, 4}, {32, 16, 2}, {16, 4, 4},
};
constexpr int kNumScans = 16;

// `out` is [op][scan][warps][32]. Every second scan gets the lane index in the warp instead of the segment.
template <typename T, ReductionOp kOp, int kScan>
__device__ void scan_once(T* out, T value, int place) {
  constexpr Scan kHow = kScans[kScan];
  const std::uint32_t lane = kScan % 2 == 0 ? device::get_lane_id<kHow.width>() : device::get_lane_id();
  out[place * all_lanes() + lane_of()] =
      device::warp::inclusive_reduce<kOp, kHow.width, kHow.start, kHow.finish>(value, lane);
}
template <typename T, int... kPlaces>
__device__ void scan_all(T* out, T value, std::integer_sequence<int, kPlaces...>) {
  (scan_once<T, kOps[kPlaces / kNumScans], kPlaces % kNumScans>(out, value, kPlaces), ...);
}
template <typename T>
__global__ void scan_kernel(T* out, const T* in) {
  scan_all(out, in[lane_of()], std::make_integer_sequence<int, 3 * kNumScans>{});
}
template <typename T>
void scan(TensorView out, TensorView in, std::int64_t warps) {
  LaunchKernel(warps, 32, in.device())(scan_kernel<T>, data_of<T>(out), data_of<const T>(in));
}

// `out` is [63][warps][32]: for each width its source lanes, in increasing order of width.
template <std::uint32_t kWidth, typename T>
__device__ void broadcast_width(T* out, T value) {
  for (std::uint32_t source = 0; source < kWidth; ++source) {
    out[(kWidth - 1 + source) * all_lanes() + lane_of()] = device::warp::broadcast<kWidth>(value, source);
  }
}
template <typename T>
__global__ void broadcast_kernel(T* out, const T* in) {
  const T value = in[lane_of()];
  broadcast_width<1>(out, value);
  broadcast_width<2>(out, value);
  broadcast_width<4>(out, value);
  broadcast_width<8>(out, value);
  broadcast_width<16>(out, value);
  broadcast_width<32>(out, value);
}
template <typename T>
void broadcast(TensorView out, TensorView in, std::int64_t warps) {
  LaunchKernel(warps, 32, in.device())(broadcast_kernel<T>, data_of<T>(out), data_of<const T>(in));
}

// `out` is [3][64]: a whole warp, half a warp that calls alone, both halves at once.
__global__ void elect_kernel(int* out) {
  namespace warp = device::warp;
  static_assert(warp::kFullMask == 0xffffffff && warp::kFullWidth == 32);
  const auto lane = device::warp::get_lane_id();
  const bool upper = lane >= 16;
  int results[] = {warp::elect_one_lane(), 0, 0};
  if (upper) results[1] = warp::elect_one_lane(0xffff0000u);
  __syncwarp();
  if (upper) {
    results[2] = warp::elect_one_lane(0xffff0000u);
  } else {
    results[2] = warp::elect_one_lane(0x0000ffffu);
  }
  for (int i = 0; i < 3; ++i) out[i * 64 + static_cast<int>(threadIdx.x)] = results[i];
}
void elect(TensorView out) {
  LaunchKernel(1, 64, out.device())(elect_kernel, data_of<int>(out));
}

using device::warp::CopyTrait;
using device::warp::LoadStorePattern;

static_assert(LoadStorePattern::WARP_UNIFORM_GMEM == -LoadStorePattern::MAX_GMEM);
static_assert(LoadStorePattern::WARP_UNIFORM_SMEM == -LoadStorePattern::MAX_SMEM);
static_assert(LoadStorePattern::WARP_UNIFORM_4B == -4 && LoadStorePattern::WARP_UNIFORM_8B == -8);
static_assert(LoadStorePattern::WARP_UNIFORM_16B == -16 && LoadStorePattern::WARP_UNIFORM_32B == -32);
static_assert(CopyTrait<576, 16>::kLoopBytes == 512 && CopyTrait<576, 16>::kLoopCount == 1);
static_assert(CopyTrait<576, 16>::kTailBytes == 64 && CopyTrait<576, 16>::kTailVecs == 4);
static_assert(CopyTrait<576, 16>::result_t::size() == 2 && CopyTrait<1024, 16>::result_t::size() == 2);
static_assert(sizeof(CopyTrait<96, 32>::vec_t) == 32 && alignof(CopyTrait<96, 32>::vec_t) == 32);

enum class Hint { NONE, STREAMING_LOAD, STREAMING_STORE };

// Each warp copies one row of `kBytes` bytes; rows are `stride` bytes apart on both sides.
template <std::int64_t kBytes, std::int64_t kPattern>
__global__ void copy_kernel(char* out, const char* in, std::int64_t stride, Hint hint) {
  namespace warp = device::warp;
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const void* from = in + row * stride;
  void* to = out + row * stride;
  const auto bytes = hint == Hint::STREAMING_LOAD ? warp::load_bytes_streaming<kBytes, kPattern>(from)
                                                  : warp::load_bytes<kBytes, kPattern>(from);
  if (hint == Hint::STREAMING_STORE) {
    warp::store_bytes_streaming<kBytes, kPattern>(to, bytes);
  } else {
    warp::store_bytes<kBytes, kPattern>(to, bytes);
  }
}

/// The vector size for moving `bytes` bytes; with a row count, they are moved as well.
template <std::int64_t kPattern, std::int64_t... kSizes>
std::int64_t copy_sizes(std::integer_sequence<std::int64_t, kSizes...>, std::int64_t bytes, TensorView out,
                        TensorView in, std::int64_t rows, std::int64_t stride, std::int64_t hint) {
  std::int64_t vec_bytes = 0;
  const auto run = [&]<std::int64_t kBytes>() {
    if (bytes != kBytes) return;
    vec_bytes = LoadStorePattern::get_vec_bytes<kBytes, kPattern>();
    if (rows == 0) return;
    LaunchKernel(rows / 2, {32, 2}, in.device())(copy_kernel<kBytes, kPattern>, data_of<char>(out),
                                                 data_of<const char>(in), stride, static_cast<Hint>(hint));
  };
  (run.template operator()<kSizes>(), ...);
  RuntimeCheck(vec_bytes > 0, "no case for ", bytes, " bytes");
  return vec_bytes;
}

// test_warp.py has the same list.
using CopySizes = std::integer_sequence<std::int64_t, 1, 2, 3, 4, 5, 8, 12, 16, 24, 31, 32, 33, 48, 64, 100, 127, 128,
                                        129, 160, 192, 256, 257, 320, 384, 500, 511, 512, 513, 576, 1024>;

template <std::int64_t kPattern>
std::int64_t copy(std::int64_t bytes, TensorView out, TensorView in, std::int64_t rows, std::int64_t stride,
                  std::int64_t hint) {
  return copy_sizes<kPattern>(CopySizes{}, bytes, out, in, rows, stride, hint);
}

// The default pattern, as in most calls.
__global__ void copy_576_kernel(void* out, const void* in) {
  device::warp::store_bytes<576>(out, device::warp::load_bytes<576>(in));
}
void copy_576(TensorView out, TensorView in) {
  LaunchKernel(1, 32, in.device())(copy_576_kernel, out.data_ptr(), data_of<const void>(in));
}

/// `out` is [6][threads]: the index of each thread's element in round `round`.
__global__ void tile_indices_kernel(std::int64_t* out, std::int64_t round) {
  using Memory = device::tile::Memory<float>;
  const auto threads = std::int64_t{blockDim.x} * blockDim.y;
  const auto thread = std::int64_t{threadIdx.y} * blockDim.x + threadIdx.x;
  const Memory memories[] = {Memory::thread(), Memory::warp(),  Memory::warp(8),
                             Memory::cta(),    Memory::cta(40), Memory(7, 0xffffffffu)};
  for (int i = 0; i < 6; ++i) out[i * threads + thread] = memories[i].index(round);
}
void tile_indices(TensorView out, std::int64_t round, std::int64_t x, std::int64_t y) {
  LaunchKernel(1, {x, y}, out.device())(tile_indices_kernel, data_of<std::int64_t>(out), round);
}

/// Copies `count` vectors with one block, and writes how often each thread was in bounds.
__global__ void tile_copy_kernel(float* out, const float* in, std::int64_t count, int* rounds) {
  const auto memory = device::tile::Memory<device::AlignedVector<float, 4>>::cta();
  int round = 0;
  for (; memory.in_bound(count, round); ++round) memory.store(out, memory.load(in, round), round);
  rounds[threadIdx.x] = round;
}
void tile_copy(TensorView out, TensorView in, TensorView rounds, std::int64_t count) {
  LaunchKernel(1, rounds.numel(), out.device())(tile_copy_kernel, data_of<float>(out), data_of<const float>(in), count,
                                                data_of<int>(rounds));
}

}  // namespace
