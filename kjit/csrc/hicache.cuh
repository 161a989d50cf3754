// Copies of keys and values, of one layer or of all, between a cache in GPU memory and one in pinned host memory: few
// blocks, so that the GPU can run other work, each with many loads in flight.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>
#include <kjit/runtime.cuh>

#include <cstdint>

namespace {

using namespace kjit;

/// One cache: keys, values, and its strides in bytes.
struct Cache {
  char* k;
  char* v;
  int64_t layer_stride, slot_stride;
};

struct Rows {
  Cache to, from;
  const void* to_slots;
  const void* from_slots;
  uint32_t words;  // of 16 bytes, in all rows
  device::math::fast_mod_div_u32_t row_words, items;
};

constexpr int kBlock = 512;
constexpr int kUnroll = 4;

template <typename Slot, bool kHasValues>
__global__ void __launch_bounds__(kBlock) transfer_kernel(const __grid_constant__ Rows rows) {
  using namespace device;
  const uint32_t step = gridDim.x * kBlock;
  const auto places = [&](uint32_t i) {
    const uint2 place = math::div(i, rows.row_words), layer_item = math::div(place.x, rows.items);
    const auto offset = [&](const Cache& cache, const void* slots) {
      return layer_item.x * cache.layer_stride +
             static_cast<int64_t>(static_cast<const Slot*>(slots)[layer_item.y]) * cache.slot_stride + place.y * 16;
    };
    return longlong2{offset(rows.from, rows.from_slots), offset(rows.to, rows.to_slots)};
  };
  PDLBegin();
  for (uint64_t first = blockIdx.x * kBlock + threadIdx.x; first < rows.words; first += uint64_t{kUnroll} * step) {
    longlong2 place[kUnroll];
    uint4 k[kUnroll], v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {  // beyond the end, the first one again
      const uint64_t i = first + uint64_t{step} * u;
      place[u] = places(static_cast<uint32_t>(i < rows.words ? i : first));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      k[u] = __ldcs(reinterpret_cast<const uint4*>(rows.from.k + place[u].x));
      if constexpr (kHasValues) v[u] = __ldcs(reinterpret_cast<const uint4*>(rows.from.v + place[u].x));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + uint64_t{step} * u >= rows.words) break;
      __stcs(reinterpret_cast<uint4*>(rows.to.k + place[u].y), k[u]);
      if constexpr (kHasValues) __stcs(reinterpret_cast<uint4*>(rows.to.v + place[u].y), v[u]);
    }
  }
}

template <typename Slot>
void transfer_kv(TensorView k_to, TensorView k_from, Optional<TensorView> v_to, Optional<TensorView> v_from,
                 TensorView to_slots, TensorView from_slots, int64_t block_quota) {
  using namespace host;
  SymbolicDevice gpu;
  SymbolicDType dtype;
  SymbolicSize N{"N"}, L{"layers"}, D{"D"}, to_size{"slots of k_to"}, from_size{"slots of k_from"};
  TensorMatcher({N})
      .with_device<kDLCUDA>(gpu)
      .with_dtype<Slot>()
      .verify(to_slots, "to_slots")
      .verify(from_slots, "from_slots");
  RuntimeCheck(v_to.has_value() == v_from.has_value(), "v_to and v_from are given together, or neither");
  RuntimeCheck(block_quota > 0, "block_quota is ", block_quota, ", and must be at least 1");
  const auto cache = [&](TensorView k, const char* k_name, Optional<TensorView> v, const char* v_name,
                         SymbolicSize& size) {
    SymbolicSize layer_stride{"stride of layers"}, slot_stride{"stride of slots"};
    TensorMatcher matcher({L, size, D});
    matcher.with_strides({layer_stride, slot_stride, 1}).with_dtype(dtype).ensure_alignment(16).verify(k, k_name);
    if (v.has_value()) {
      matcher.verify(*v, v_name);
      RuntimeCheck(k.stride(0) == v->stride(0) && k.stride(1) == v->stride(1), k_name, " and ", v_name,
                   " have different strides");
    }
    const int64_t bytes = dtype.unwrap().bits / 8;
    return Cache{static_cast<char*>(runtime::get_device_accessible_ptr(k)),
                 v.has_value() ? static_cast<char*>(runtime::get_device_accessible_ptr(*v)) : nullptr,
                 k.stride(0) * bytes, k.stride(1) * bytes};
  };
  const Cache to = cache(k_to, "k_to", v_to, "v_to", to_size);
  const Cache from = cache(k_from, "k_from", v_from, "v_from", from_size);
  const int64_t row_bytes = D.unwrap() * (dtype.unwrap().bits / 8), words = L.unwrap() * N.unwrap() * (row_bytes / 16);
  RuntimeCheck(row_bytes % 16 == 0, "Size mismatch: a row has ", row_bytes, " bytes, not a multiple of 16");
  RuntimeCheck(words < int64_t{1} << 32, "there are ", words, " vectors of 16 bytes, at most 2^32 - 1 are possible");
  if (words == 0) return;
  const Rows rows{.to = to,
                  .from = from,
                  .to_slots = to_slots.data_ptr(),
                  .from_slots = from_slots.data_ptr(),
                  .words = static_cast<uint32_t>(words),
                  .row_words = device::math::fast_mod_div_u32_t(static_cast<uint32_t>(row_bytes / 16)),
                  .items = device::math::fast_mod_div_u32_t(static_cast<uint32_t>(N.unwrap()))};
  const int64_t blocks = div_ceil(words, int64_t{kBlock});
  LaunchKernel(blocks < block_quota ? blocks : block_quota, kBlock, gpu.unwrap())
      .enable_pdl()(v_to.has_value() ? transfer_kernel<Slot, true> : transfer_kernel<Slot, false>, rows);
}

}  // namespace
