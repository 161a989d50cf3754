// The k largest of softmax(gates) of each token, one warp a token: the selected experts and their weights.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>
#include <kjit/warp.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 128;
constexpr int kWarps = kBlock / device::kWarpThreads;

template <typename T, int64_t kExperts>
__global__ void __launch_bounds__(kBlock)
    topk_kernel(const T* gates, float* weights, int32_t* experts, int64_t tokens, int k, bool renormalize) {
  using namespace device;
  constexpr int kOfLane = host::div_ceil(kExperts, int64_t{kWarpThreads});
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  PDLBegin();
  if (token >= tokens) return;  // the whole warp
  float x[kOfLane];
  bool is_left[kOfLane];  // not selected yet
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int expert = i * 32 + lane;
    is_left[i] = expert < kExperts;
    x[i] = is_left[i] ? static_cast<float>(gates[token * kExperts + expert]) : -INFINITY;
  }
  float largest = x[0];
#pragma unroll
  for (int i = 1; i < kOfLane; ++i) largest = fmaxf(largest, x[i]);
  largest = warp::reduce_max(largest);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) sum += expf(x[i] - largest);
  sum = warp::reduce_sum(sum);

  float chosen = 0;  // lane j keeps choice j
  int32_t number = 0;
  for (int choice = 0; choice < k; ++choice) {
    float best = -INFINITY;
    int expert = INT32_MAX;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (is_left[i] && (x[i] > best || expert == INT32_MAX)) best = x[i], expert = i * 32 + lane;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const float other = __shfl_xor_sync(warp::kFullMask, best, lanes);
      const int of_other = __shfl_xor_sync(warp::kFullMask, expert, lanes);
      if (other > best || (other == best && of_other < expert)) best = other, expert = of_other;
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (expert == i * 32 + lane) is_left[i] = false;
    }
    if (lane == choice) chosen = expf(best - largest) / sum, number = expert;
  }
  if (renormalize) chosen /= warp::reduce_sum(chosen);
  if (lane < k) {
    weights[token * k + lane] = chosen;
    experts[token * k + lane] = number;
  }
}

template <typename T, int64_t kExperts>
void topk_softmax(TensorView gates, bool renormalize, TensorView weights, TensorView experts) {
  using namespace host;
  SymbolicDevice gpu;
  SymbolicSize N{"N"}, k{"k"};
  TensorMatcher({N, kExperts}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(gates, "gates");
  TensorMatcher({N, k}).with_device<kDLCUDA>(gpu).with_dtype<float>().verify(weights, "weights");
  TensorMatcher({N, k}).with_device<kDLCUDA>(gpu).with_dtype<int32_t>().verify(experts, "experts");
  RuntimeCheck(k.unwrap() >= 1 && k.unwrap() <= 32 && k.unwrap() <= kExperts, "k is ", k.unwrap(),
               ", and must be 1 to 32, and at most the ", kExperts, " experts");
  if (N.unwrap() == 0) return;
  LaunchKernel(div_ceil(N.unwrap(), int64_t{kWarps}), kBlock, gpu.unwrap())
      .enable_pdl()(topk_kernel<T, kExperts>, data_of<const T>(gates), data_of<float>(weights),
                    data_of<int32_t>(experts), N.unwrap(), static_cast<int>(k.unwrap()), renormalize);
}

}  // namespace
