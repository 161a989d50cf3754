// Exports for test_device.py, and compile-time checks of kjit/device.cuh and of constants.

#include <kjit/tensor.h>
#include <kjit/math.cuh>
#include <kjit/vec.cuh>

#include <cstdint>
#include <type_traits>

namespace {

using namespace kjit;
using namespace kjit::device;

static_assert(kWarpThreads == 32 && kWarpSize == kWarpThreads);
static_assert(kMaxVecBytes == (KJIT_ARCH_BLACKWELL_OR_GREATER ? 32 : 16));
static_assert(KJIT_ARCH_HOPPER_OR_GREATER == (KJIT_CUDA_ARCH >= 900));
static_assert(LoadStoreBytes::MAX_GMEM == kMaxVecBytes && LoadStoreBytes::MAX_SMEM == 16);
static_assert(LoadStoreBytes::RAW_32B == 32 && LoadStoreBytes::MIN_COALALESCED == 4);

static_assert(alignof(AlignedStorage<float, 16>) == 64 && sizeof(AlignedStorage<float, 16>) == 64);
static_assert(alignof(AlignedVector<bf16_t, 8>) == 16 && AlignedVector<bf16_t, 8>::size() == 8);

static_assert(get_tmem_cols(1) == 32 && get_tmem_cols(33) == 64 && get_tmem_cols(256) == 256);
static_assert(get_tmem_cols(257) == 512 && get_tmem_cols(600) == 512);

static_assert(std::is_same_v<compute_t<fp16_t>, float> && std::is_same_v<compute_t<fp8_e5m2_t>, float>);
static_assert(std::is_same_v<compute_t<double>, double> && std::is_same_v<compute_type<int>::type, int>);

static_assert(is_half_v<fp16_t> && is_half_v<bf16_t> && !is_half_v<float> && !is_half_v<fp8_e4m3_t>);
static_assert(is_fp8_v<fp8_e4m3_t> && is_fp8_v<fp8_e5m2_t> && !is_fp8_v<bf16_t>);
static_assert(std::is_same_v<packed_t<float>, fp32x2_t> && std::is_same_v<packed_t<fp32x2_t>, fp32x4_t>);
static_assert(std::is_same_v<packed_t<fp8_e4m3_t>, fp8x2_e4m3_t> && std::is_same_v<packed_t<fp16_t>, fp16x2_t>);
static_assert(std::is_same_v<packed_t<fp8x2_e4m3_t>, fp8x4_e4m3_t> && std::is_same_v<packed_t<bf16_t>, bf16x2_t>);
static_assert(std::is_same_v<packed_t<fp8x2_e5m2_t>, fp8x4_e5m2_t> && std::is_same_v<packed_t<int>, void>);
static_assert(std::is_same_v<unpacked_array_t<const fp8x4_e5m2_t>, const fp8_e5m2_t[4]>);
static_assert(std::is_same_v<dtype_trait<bf16x2_t>::unpacked_t, bf16_t> && DTypeTrait<fp32x4_t>::kVecSize == 4);
static_assert(std::is_same_v<DTypeTrait<fp16_t>::self_t, fp16_t> && DTypeTrait<fp16_t>::kZeroBits == 0);

static_assert(kFP8E4M3Max == 448.0f && DTypeTrait<fp8_e4m3_t>::kFloatMax == math::FP8_E4M3_MAX);
static_assert(kFP8E5M2Max == 57344.0f && DTypeTrait<fp8_e5m2_t>::kFloatMax == math::FP8_E5M2_MAX);
static_assert(math::log2e * math::loge2 == 1.0f && math::sqrt1_2 * math::sqrt1_2 > 0.49999f);
static_assert(math::pi > 3.1415926f && math::pi < 3.141593f);

KJIT_HOST_DEVICE float twice(float x) {
  return 2 * x;
}
KJIT_DEVICE_HOST float thrice(float x) {
  return twice(x) + x;
}
KJIT_DEVICE float fourfold(float x) {
  return twice(twice(x));
}

__global__ void accesses_kernel(float* out, const float* in) {
  enable_smem_spilling();
  const std::uint32_t i = threadIdx.x;
  const void* bytes = pointer::offset<float>(static_cast<const void*>(in), 1);
  store_as<float>(out, thrice(load_as<float>(bytes, i)), i);
  store_as<float>(pointer::offset(static_cast<void*>(out), 32 * sizeof(float)), fourfold(KJIT_LDG(in + i)), i);
  AlignedStorage<float, 2> pair = load_as<AlignedStorage<float, 2>>(in, i);
  out[64 + i] = pair.data[0] + pair.data[1];
}

/// `in` holds 64 floats, `out` 96: 3 * in[i + 1], 4 * in[i], and in[2 i] + in[2 i + 1].
void accesses(TensorView out, TensorView in) {
  host::LaunchKernel(1, 32, in.device())(accesses_kernel, host::data_of<float>(out), host::data_of<const float>(in));
}

/// The largest finite values, from the traits.
template <typename T>
double largest() {
  return static_cast<double>(DTypeTrait<T>::kFloatMax);
}

/// The same on the host.
double on_the_host(double x) {
  return static_cast<double>(thrice(static_cast<float>(x)));
}

}  // namespace
