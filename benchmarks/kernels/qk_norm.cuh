// RMSNorm of every head of q and k, in place, each with its own weight, in one launch.

#define KJIT_LIGHT_TYPES

#include <kjit/tensor.h>

#include <kjit/impl/norm.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr uint32_t kBlock = 128;

struct QKNormParams {
  void* q;
  void* k;
  const void* q_weight;
  const void* k_weight;
  int64_t q_stride;  // elements from token to token
  int64_t k_stride;
  uint32_t q_heads;
  uint32_t rows;                           // heads of all tokens
  device::math::fast_mod_div_u32_t heads;  // of q and k together
  float eps;
};

template <typename T, int64_t kHeadDim>
struct QKNorm {
  static constexpr uint32_t kThreads = host::norm::get_row_threads<T, kHeadDim>();
  static constexpr uint32_t kRows = kBlock / kThreads;  // of a block, side by side
  static_assert(kThreads <= device::kWarpThreads, "a head is a warp's or less");

  static void run(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight, float eps);
};

template <typename T, int64_t kHeadDim, bool kAligned>
__global__ void __launch_bounds__(kBlock) qk_norm_kernel(const __grid_constant__ QKNormParams params) {
  using namespace device;
  using Op = QKNorm<T, kHeadDim>;
  using Row = norm::Row<T, kHeadDim, Op::kThreads>;
  const uint32_t thread = threadIdx.x % Op::kThreads;
  const uint32_t wanted = blockIdx.x * Op::kRows + threadIdx.x / Op::kThreads;
  const uint2 place = math::div(wanted < params.rows ? wanted : params.rows - 1, params.heads);
  const bool is_q = place.y < params.q_heads;
  const int64_t token = place.x;
  void* head =
      is_q ? pointer::offset<T>(params.q, token * params.q_stride + int64_t{place.y} * kHeadDim)
           : pointer::offset<T>(params.k, token * params.k_stride + int64_t{place.y - params.q_heads} * kHeadDim);

  Row x, weight;
  PDLBegin();
  x.load(head, thread, kAligned);
  weight.load(is_q ? params.q_weight : params.k_weight, thread, kAligned);
  x.scale(x.inverse_rms(params.eps), weight);
  if (wanted < params.rows) x.store(head, thread, kAligned);
}

template <typename T, int64_t kHeadDim>
void QKNorm<T, kHeadDim>::run(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight, float eps) {
  using namespace host;
  SymbolicSize tokens{"tokens"}, q_heads{"q_heads"}, k_heads{"k_heads"}, q_stride{"q_stride"}, k_stride{"k_stride"};
  SymbolicDevice gpu;
  SymbolicDType dtype;
  dtype.set_options<T>();
  gpu.set_options<kDLCUDA>();
  TensorMatcher({tokens, q_heads, kHeadDim})
      .with_strides({q_stride, kHeadDim, 1})
      .with_device(gpu)
      .with_dtype(dtype)
      .verify(q, "q");
  TensorMatcher({tokens, k_heads, kHeadDim})
      .with_strides({k_stride, kHeadDim, 1})
      .with_device(gpu)
      .with_dtype(dtype)
      .verify(k, "k");
  TensorMatcher({kHeadDim})
      .with_device(gpu)
      .with_dtype(dtype)
      .verify(q_weight, "q_weight")
      .verify(k_weight, "k_weight");
  const int64_t heads = q_heads.unwrap() + k_heads.unwrap();
  const int64_t rows = tokens.unwrap() * heads;
  if (rows == 0) return;
  RuntimeCheck(rows < (int64_t{1} << 31), "q and k have ", rows, " heads in all, at most 2^31 - 1 are possible");

  uintptr_t addresses = static_cast<uintptr_t>((q_stride.unwrap() | k_stride.unwrap()) * int64_t{sizeof(T)});
  for (const void* data : {q.data_ptr(), k.data_ptr(), q_weight.data_ptr(), k_weight.data_ptr()}) {
    addresses |= reinterpret_cast<uintptr_t>(data);
  }
  const QKNormParams params{
      .q = q.data_ptr(),
      .k = k.data_ptr(),
      .q_weight = q_weight.data_ptr(),
      .k_weight = k_weight.data_ptr(),
      .q_stride = q_stride.unwrap(),
      .k_stride = k_stride.unwrap(),
      .q_heads = static_cast<uint32_t>(q_heads.unwrap()),
      .rows = static_cast<uint32_t>(rows),
      .heads = device::math::fast_mod_div_u32_t(static_cast<uint32_t>(heads)),
      .eps = eps,
  };
  // Every head, and the weights, start at a multiple of 16 bytes.
  const bool aligned = addresses % 16 == 0 && kHeadDim * sizeof(T) % 16 == 0;
  LaunchKernel(div_ceil(rows, int64_t{kRows}), kBlock, gpu.unwrap())
      .enable_pdl()(aligned ? qk_norm_kernel<T, kHeadDim, true> : qk_norm_kernel<T, kHeadDim, false>, params);
}

}  // namespace
