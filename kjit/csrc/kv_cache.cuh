// k_cache[slots[i]] = k[i], v_cache[slots[i]] = v[i]: rows of bytes of any dtype; out-of-range slots are skipped.

#pragma once

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>

#include <cstdint>

namespace {

using namespace kjit;

/// Row strides are in bytes.
struct Rows {
  const char* from;
  char* to;
  int64_t from_stride, to_stride;
};

constexpr int kBlock = 256;

template <typename Slot, typename Word>
__global__ void __launch_bounds__(kBlock)
    store_rows_kernel(Rows k, Rows v, const Slot* slots, int64_t num_slots, uint32_t words,
                      device::math::fast_mod_div_u32_t row_words) {
  const uint32_t i = blockIdx.x * kBlock + threadIdx.x;
  if (i >= words) return;
  device::PDLBegin();
  const uint2 place = device::math::div(i, row_words);
  const int64_t row = place.x, slot = slots[row];
  if (slot < 0 || slot >= num_slots) return;
  const Word from_k = reinterpret_cast<const Word*>(k.from + row * k.from_stride)[place.y];
  const Word from_v = reinterpret_cast<const Word*>(v.from + row * v.from_stride)[place.y];
  reinterpret_cast<Word*>(k.to + slot * k.to_stride)[place.y] = from_k;
  reinterpret_cast<Word*>(v.to + slot * v.to_stride)[place.y] = from_v;
}

template <typename Slot>
void store_kv_cache(TensorView k, TensorView v, TensorView k_cache, TensorView v_cache, TensorView slots) {
  using namespace host;
  SymbolicDevice gpu;
  SymbolicDType dtype;
  SymbolicSize N{"N"}, D{"D"}, S{"slots"}, k_stride{"stride of k"}, v_stride{"stride of v"},
      k_cache_stride{"stride of k_cache"}, v_cache_stride{"stride of v_cache"};
  const auto verify = [&](TensorView tensor, const char* name, SymbolicSize& rows, SymbolicSize& stride) {
    TensorMatcher({rows, D}).with_strides({stride, 1}).with_device<kDLCUDA>(gpu).with_dtype(dtype).verify(tensor, name);
  };
  verify(k, "k", N, k_stride);
  verify(v, "v", N, v_stride);
  verify(k_cache, "k_cache", S, k_cache_stride);
  verify(v_cache, "v_cache", S, v_cache_stride);
  TensorMatcher({N}).with_device<kDLCUDA>(gpu).with_dtype<Slot>().verify(slots, "slots");

  const int64_t size = dtype.unwrap().bits / 8, row_bytes = D.unwrap() * size;
  if (N.unwrap() == 0 || row_bytes == 0) return;
  const auto rows_of = [&](TensorView from, TensorView to) {
    return Rows{data_of<const char>(from), data_of<char>(to), from.stride(0) * size, to.stride(0) * size};
  };
  const Rows k_rows = rows_of(k, k_cache), v_rows = rows_of(v, v_cache);
  auto places = static_cast<uint64_t>(row_bytes);
  for (const Rows& rows : {k_rows, v_rows}) {
    places |= reinterpret_cast<uintptr_t>(rows.from) | reinterpret_cast<uintptr_t>(rows.to);
    places |= static_cast<uint64_t>(rows.from_stride | rows.to_stride);
  }
  const auto launch = [&]<typename Word>(Word) {
    const int64_t row_words = row_bytes / static_cast<int64_t>(sizeof(Word)), words = N.unwrap() * row_words;
    RuntimeCheck(words < int64_t{1} << 31, "k has ", words, " vectors, at most 2^31 - 1 are possible");
    LaunchKernel(div_ceil(words, int64_t{kBlock}), kBlock, gpu.unwrap())
        .enable_pdl()(store_rows_kernel<Slot, Word>, k_rows, v_rows, data_of<const Slot>(slots), S.unwrap(),
                      static_cast<uint32_t>(words), device::math::fast_mod_div_u32_t(static_cast<uint32_t>(row_words)));
  };
  if (places % 16 == 0) return launch(uint4{});
  launch(uint8_t{});
}

}  // namespace
