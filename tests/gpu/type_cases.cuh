// Exports for test_type.py, test_math.py and test_vec.py: one thread an element.

#include <kjit/tensor.h>
#include <kjit/math.cuh>
#include <kjit/vec.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 256;

template <typename Function, typename Out, typename... In>
__global__ void apply_kernel(Out* out, int64_t n, const In*... in) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Function::of(in[i]...);
}

/// `out[i] = Function::of(in[i]...)`; `out` determines the number of elements, and may be of packed ones.
template <typename Function, typename Out, typename... In>
void apply(TensorView out, const In*... in) {
  const int64_t n =
      out.numel() * static_cast<int64_t>(host::dtype_bytes(out.dtype())) / static_cast<int64_t>(sizeof(Out));
  host::LaunchKernel(host::div_ceil(n, kBlock), kBlock, out.device())(apply_kernel<Function, Out, In...>,
                                                                      host::data_of<Out>(out), n, in...);
}

template <typename T>
const T* data(TensorView x) {
  return host::data_of<const T>(x);
}

template <typename To, typename From>
struct Cast {
  static __device__ To of(const From& x) { return device::cast<To>(x); }
};

template <typename To, typename From>
void convert(TensorView out, TensorView in) {
  apply<Cast<To, From>, To>(out, data<From>(in));
}

template <typename T>
struct Widen {
  static __device__ compute_t<T> of(const T& x) { return widen(x); }
};

template <typename T>
void widened(TensorView out, TensorView in) {
  apply<Widen<T>, compute_t<T>>(out, data<T>(in));
}

#define CASE_OF_ONE(Name, Expression)    \
  struct Name {                          \
    template <typename T>                \
    static __device__ T of(const T& x) { \
      return Expression;                 \
    }                                    \
  };
CASE_OF_ONE(Abs, device::math::abs(x))
CASE_OF_ONE(Twice, T(static_cast<float>(x) * 2.0f))  // by the type's own conversions
CASE_OF_ONE(Sqrt, device::math::sqrt(x))
CASE_OF_ONE(Rsqrt, device::math::rsqrt(x))
CASE_OF_ONE(Exp, device::math::exp(x))
CASE_OF_ONE(Log, device::math::log(x))
CASE_OF_ONE(Sin, device::math::sin(x))
CASE_OF_ONE(Cos, device::math::cos(x))
CASE_OF_ONE(Tanh, device::math::tanh(x))
CASE_OF_ONE(Sigmoid, device::math::sigmoid(x))
CASE_OF_ONE(Silu, device::math::silu(x))
CASE_OF_ONE(Gelu, device::math::gelu(x))
CASE_OF_ONE(GeluTanh, device::math::gelu_tanh(x))
CASE_OF_ONE(SigmoidFast, device::math::sigmoid_fast(x))
CASE_OF_ONE(SiluFast, device::math::silu_fast(x))
CASE_OF_ONE(SoftplusFast, device::math::softplus_fast(x))

template <typename Function, typename T>
void unary(TensorView out, TensorView x) {
  apply<Function, T>(out, data<T>(x));
}

#define CASE_OF_TWO(Name, Expression)                \
  struct Name {                                      \
    template <typename T>                            \
    static __device__ T of(const T& x, const T& y) { \
      return Expression;                             \
    }                                                \
  };
CASE_OF_TWO(Max, device::math::max(x, y))
CASE_OF_TWO(Min, device::math::min(x, y))
CASE_OF_TWO(Sum, (device::ReductionTrait<device::ReductionOp::SUM, T>::reduce(x, y)))
CASE_OF_TWO(ReduceMax, (device::ReductionTrait<device::ReductionOp::MAX, T>::reduce(x, y)))
CASE_OF_TWO(ReduceMin, (device::ReductionTrait<device::ReductionOp::MIN, T>::reduce(x, y)))

template <typename Function, typename T>
void binary(TensorView out, TensorView x, TensorView y) {
  apply<Function, T>(out, data<T>(x), data<T>(y));
}

struct Fma {
  static __device__ float of(const bf16_t& a, const bf16_t& b, const float& c) {
    return device::math::fma_f32_bf16(a, b, c);
  }
  static __device__ float of(const bf16_t& a, const float& b, const float& c) {
    return device::math::fma_f32_bf16(a, b, c);
  }
};

template <typename B>
void fma(TensorView out, TensorView a, TensorView b, TensorView c) {
  apply<Fma, float>(out, data<bf16_t>(a), data<B>(b), data<float>(c));
}

/// Swaps the elements of a pair through `unpack`.
struct Swap {
  template <typename T>
  static __device__ T of(const T& x) {
    T result = x;
    device::unpack(result)[0] = device::unpack(x)[1];
    device::unpack(result)[1] = device::unpack(x)[0];
    return result;
  }
};

__global__ void divide_kernel(uint2* out, const uint32_t* n, int64_t count, device::math::fast_mod_div_u32_t divisor) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[2 * i] = device::math::div(n[i], divisor);
  out[2 * i + 1] = {n[i] / divisor, n[i] % divisor};
}

void divide(TensorView out, TensorView n, uint32_t divisor) {
  const device::math::fast_mod_div_u32_t by(divisor);
  host::RuntimeCheck(static_cast<uint32_t>(by) == divisor, "the divisor is kept");
  host::LaunchKernel(host::div_ceil(n.numel(), kBlock), kBlock, n.device())(divide_kernel, host::data_of<uint2>(out),
                                                                            data<uint32_t>(n), n.numel(), by);
}

template <bool kFP32Acc, typename T2, std::size_t N, std::size_t M>
__global__ void reduce_vec_kernel(T2* out, const T2* in) {
  device::AlignedVector<T2, N> vectors[M];
  for (std::size_t i = 0; i < M; ++i)
    vectors[i].load(in, static_cast<int64_t>(i * gridDim.x * blockDim.x) + threadIdx.x);
  device::reduce_vec<kFP32Acc>(vectors).store(out, threadIdx.x);
}

/// `in` holds M arrays of as many elements as `out` has.
template <bool kFP32Acc, typename T2, std::size_t N, std::size_t M>
void reduce_vec(TensorView out, TensorView in) {
  const int64_t threads = out.numel() / static_cast<int64_t>(2 * N);
  host::LaunchKernel(1, threads, out.device())(reduce_vec_kernel<kFP32Acc, T2, N, M>, host::data_of<T2>(out),
                                               data<T2>(in));
}

}  // namespace
