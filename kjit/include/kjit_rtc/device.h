// The prefix of the device half of a CUDA unit that NVRTC compiles (kjit/engine/compile/halves.py).
//
// The half is preprocessed by the host C++ compiler, with its library and its rules; NVRTC compiles the result. NVRTC
// has CUDA's types and functions built in, so headers that would redeclare them are marked as included. Functions that
// host code calls are declared, because host code is parsed; it is never compiled here.

#pragma once
#pragma GCC system_header

/// Defined in the device half alone: kjit's headers then omit bodies of host code.
#define KJIT_DEVICE_HALF 1

// Feature tests of libraries, which the preprocessing compiler evaluates, with NVRTC's answers: those of 12.8 and 13.0,
// which are the same, and true of later ones, which have more.
#undef __is_identifier  // by which clang answers, too
#undef __has_builtin
#define __has_builtin(name) KJIT_RTC_HAS_##name
#define KJIT_RTC_HAS___add_lvalue_reference 1
#define KJIT_RTC_HAS___add_pointer 1
#define KJIT_RTC_HAS___add_rvalue_reference 1
#define KJIT_RTC_HAS___builtin_addressof 1
#define KJIT_RTC_HAS___builtin_assume_aligned 1
#define KJIT_RTC_HAS___builtin_bit_cast 1
#define KJIT_RTC_HAS___builtin_is_constant_evaluated 1
#define KJIT_RTC_HAS___builtin_source_location 1
#define KJIT_RTC_HAS___decay 1
#define KJIT_RTC_HAS___has_unique_object_representations 1
#define KJIT_RTC_HAS___is_aggregate 1
#define KJIT_RTC_HAS___is_function 1
#define KJIT_RTC_HAS___make_signed 1
#define KJIT_RTC_HAS___make_unsigned 1
#define KJIT_RTC_HAS___remove_all_extents 1
#define KJIT_RTC_HAS___remove_const 1
#define KJIT_RTC_HAS___remove_cv 1
#define KJIT_RTC_HAS___remove_cvref 1
#define KJIT_RTC_HAS___remove_extent 1
#define KJIT_RTC_HAS___remove_pointer 1
#define KJIT_RTC_HAS___remove_reference 1
#define KJIT_RTC_HAS___remove_reference_t 1
#define KJIT_RTC_HAS___remove_volatile 1
#define KJIT_RTC_HAS___make_integer_seq 1         // defined below
#define KJIT_RTC_HAS_kjit_rtc_make_integer_seq 1  // the same, as an argument of another macro

// Built into NVRTC.
#define __COMMON_FUNCTIONS_H__
#define __CUDA_DEVICE_RUNTIME_API_H__
#define __CUDA_RUNTIME_H__
#define __DEVICE_ATOMIC_FUNCTIONS_H__
#define __DEVICE_DOUBLE_FUNCTIONS_H__
#define __DEVICE_FUNCTIONS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__
#define __DEVICE_TYPES_H__
#define __DRIVER_TYPES_H__
#define __HOST_CONFIG_H__
#define __HOST_DEFINES_H__
#define __LIBRARY_TYPES_H__
#define __MATH_FUNCTIONS_H__
#define __SM_100_RT_H__
#define __SM_30_INTRINSICS_H__
#define __SM_32_INTRINSICS_H__
#define __SM_35_ATOMIC_FUNCTIONS_H__
#define __SM_35_INTRINSICS_H__
#define __SM_80_RT_H__
#define __SM_90_RT_H__
#define __SURFACE_INDIRECT_FUNCTIONS_H__
#define __SURFACE_TYPES_H__
#define __TEXTURE_INDIRECT_FUNCTIONS_H__
#define __TEXTURE_TYPES_H__
#define __VECTOR_FUNCTIONS_H__
#define __VECTOR_TYPES_H__
#define CU_UUID_HAS_BEEN_DEFINED

// NVRTC has no literals of type bfloat16, by which GCC's library defines such a type from GCC 14 on.
#undef __BFLT16_DIG__

// Whether the C++ library's headers are kjit's short ones (kjit_rtc/std): for GCC's library alone, as long as C++20
// without extensions is all that a unit asks for.
#include <cstddef>
#if defined(__GLIBCXX__) && !_GLIBCXX_INLINE_VERSION && defined(__STRICT_ANSI__) && __cplusplus == 202002L && \
    !defined(KJIT_RTC_FULL)
#define KJIT_RTC_SHORT 1
#else
#define KJIT_RTC_SHORT 0
#endif

// Its constexpr functions are for host and device, and device code has no exceptions.
#define _EXCEPTION_DEFINES_H 1
#define __try if (true)
#define __catch(...) if (false)
#define __throw_exception_again

// GCC keywords that NVRTC does not know.
#if __GNUC__ >= 13  // before 13, the C library defines them
#define _Float32 float
#define _Float64 double
#define _Float32x double
#define _Float64x long double
#define _Float128 long double
#endif
#define __extension__
#define __signed signed
#define __signed__ signed
#define __const const
#define __volatile volatile
#define __volatile__ volatile
#define __decltype decltype
#define __asm asm
#define thread_local
#define __thread
#define __alignof alignof
#define __alignof__ alignof
#define __null 0
#define __is_same(...) (::kjit_rtc::is_same<__VA_ARGS__>)
#define __builtin_constant_p(...) false
#define __builtin_huge_valf() __builtin_bit_cast(float, 0x7f800000u)
#define __builtin_huge_val() __builtin_bit_cast(double, 0x7ff0000000000000ull)
#define __builtin_huge_vall() static_cast<long double>(__builtin_huge_val())
#define __builtin_inff() __builtin_huge_valf()
#define __builtin_inf() __builtin_huge_val()
#define __builtin_nanf(payload) __builtin_bit_cast(float, 0x7fc00000u)
#define __builtin_nan(payload) __builtin_bit_cast(double, 0x7ff8000000000000ull)
#define __builtin_nanl(payload) static_cast<long double>(__builtin_nan(payload))
#define __builtin_nansf(payload) __builtin_bit_cast(float, 0x7fa00000u)
#define __builtin_nans(payload) __builtin_bit_cast(double, 0x7ff4000000000000ull)
#define __builtin_nansl(payload) static_cast<long double>(__builtin_nans(payload))
#define __builtin_popcount(x) (::kjit_rtc::popcount(static_cast<unsigned>(x)))
#define __builtin_popcountl(x) (::kjit_rtc::popcount(x))
#define __builtin_popcountll(x) (::kjit_rtc::popcount(x))
#define __builtin_ctz(x) (::kjit_rtc::ctz(static_cast<unsigned>(x)))
#define __builtin_ctzl(x) (::kjit_rtc::ctz(x))
#define __builtin_ctzll(x) (::kjit_rtc::ctz(x))
#define __builtin_clz(x) (::kjit_rtc::clz(static_cast<unsigned>(x), 32))
#define __builtin_clzl(x) (::kjit_rtc::clz(x, 64))
#define __builtin_clzll(x) (::kjit_rtc::clz(x, 64))
#define __builtin_bswap16(x) static_cast<unsigned short>(::kjit_rtc::swapped(x, 2))
#define __builtin_bswap32(x) static_cast<unsigned>(::kjit_rtc::swapped(x, 4))
#define __builtin_bswap64(x) (::kjit_rtc::swapped(x, 8))
#define __builtin_va_list void*
#define __builtin_va_start(...) static_cast<void>(0)
#define __builtin_va_end(...) static_cast<void>(0)
#define __builtin_ia32_pause() static_cast<void>(0)
#define type_info kjit_rtc_type_info

#define __builtin_add_overflow(...) (::kjit_rtc::overflows<'+'>(__VA_ARGS__))
#define __builtin_sub_overflow(...) (::kjit_rtc::overflows<'-'>(__VA_ARGS__))
#define __builtin_mul_overflow(...) (::kjit_rtc::overflows<'*'>(__VA_ARGS__))
#define __atomic_is_lock_free(...) true
#define __atomic_always_lock_free(...) true
#define __builtin_memset(...) ::memset(__VA_ARGS__)
#define __builtin_memcpy(...) ::memcpy(__VA_ARGS__)
#define __builtin_memmove(...) ::memmove(__VA_ARGS__)
#define __builtin_memcmp(...) ::memcmp(__VA_ARGS__)
#define __builtin_memchr(...) ::memchr(__VA_ARGS__)
#define __builtin_strlen(...) ::strlen(__VA_ARGS__)
#define __builtin_strcmp(...) ::strcmp(__VA_ARGS__)
#define __builtin_ceil(...) ::ceil(__VA_ARGS__)
#define __builtin_floor(...) ::floor(__VA_ARGS__)
#define __builtin_abort(...) ::abort(__VA_ARGS__)

// Builtins for host code, which is only parsed. A call from device code is an error, as by nvcc.
template <typename T, typename... Rest>
T __atomic_fetch_add(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_fetch_sub(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_fetch_and(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_fetch_or(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_fetch_xor(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_fetch_nand(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_add_fetch(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_sub_fetch(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_and_fetch(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_or_fetch(volatile T* object, Rest... rest);
template <typename T, typename... Rest>
T __atomic_xor_fetch(volatile T* object, Rest... rest);
template <typename T>
T __atomic_load_n(const volatile T* object, int order);
template <typename T, typename... Rest>
T __atomic_exchange_n(volatile T* object, Rest... rest);
template <typename... Args>
void __atomic_load(Args... args);
template <typename... Args>
void __atomic_store(Args... args);
template <typename... Args>
void __atomic_store_n(Args... args);
template <typename... Args>
void __atomic_exchange(Args... args);
template <typename... Args>
bool __atomic_compare_exchange(Args... args);
template <typename... Args>
bool __atomic_compare_exchange_n(Args... args);
void __atomic_clear(volatile void* object, int order);
void __atomic_thread_fence(int order);
void __atomic_signal_fence(int order);
bool __atomic_test_and_set(volatile void* object, int order);
void* __builtin_alloca(unsigned long bytes);

namespace kjit_rtc {

template <typename A, typename B>
inline constexpr bool is_same = false;
template <typename A>
inline constexpr bool is_same<A, A> = true;

template <typename T, T... kValues>
struct Sequence {};
template <typename A, typename B>
struct Joined;
template <typename T, T... kFirst, T... kSecond>
struct Joined<Sequence<T, kFirst...>, Sequence<T, kSecond...>> {
  using type = Sequence<T, kFirst..., (T(sizeof...(kFirst)) + kSecond)...>;
};
template <typename T, unsigned long kCount>
struct Counted : Joined<typename Counted<T, kCount / 2>::type, typename Counted<T, kCount - kCount / 2>::type> {};
template <typename T>
struct Counted<T, 0> {
  using type = Sequence<T>;
};
template <typename T>
struct Counted<T, 1> {
  using type = Sequence<T, 0>;
};

// GCC's bit-counting builtins, which are constant expressions.
__host__ __device__ constexpr int popcount(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return __popcll(x);
  int count = 0;
  for (; x != 0; x &= x - 1) ++count;
  return count;
}
__host__ __device__ constexpr int ctz(unsigned long long x) {
  return popcount(~x & (x - 1));
}
__host__ __device__ constexpr int clz(unsigned long long x, int bits) {
  if (!__builtin_is_constant_evaluated()) return __clzll(static_cast<long long>(x)) - (64 - bits);
  int count = bits;
  for (; x != 0; x >>= 1) --count;
  return count;
}

__host__ __device__ constexpr unsigned long long swapped(unsigned long long x, int bytes) {
  unsigned long long result = 0;
  for (int i = 0; i < bytes; ++i) result |= (x >> (8 * i) & 0xff) << (8 * (bytes - 1 - i));
  return result;
}

/// GCC's arithmetic with a check: the exact result as an `R`, and whether that is another number.
template <char kSign, typename A, typename B, typename R>
__host__ __device__ constexpr bool overflows(A a, B b, R* result) {
  // As signs and magnitudes of 128 bits, which hold every sum and product of 64-bit numbers.
  bool is_negative = a < A(0);
  const bool other_is_negative = (b < B(0)) != (kSign == '-');
  const auto magnitude = [](auto x) {
    return x < 0 ? -static_cast<unsigned __int128>(x) : static_cast<unsigned __int128>(x);
  };
  const unsigned __int128 x = magnitude(a), y = magnitude(b);
  unsigned __int128 exact = 0;
  if (kSign == '*') {
    exact = x * y;
    is_negative = (a < A(0)) != (b < B(0));
  } else if (is_negative == other_is_negative) {
    exact = x + y;
  } else {
    exact = x < y ? y - x : x - y;
    if (x < y) is_negative = other_is_negative;
  }
  *result = static_cast<R>(is_negative ? -exact : exact);
  return magnitude(*result) != exact || (exact != 0 && (*result < R(0)) != is_negative);
}

template <template <typename T, T...> typename To, typename From>
struct Named;
template <template <typename T, T...> typename To, typename T, T... kValues>
struct Named<To, Sequence<T, kValues...>> {
  using type = To<T, kValues...>;
};

}  // namespace kjit_rtc

/// `To<T, 0, 1, ..., kCount - 1>`, as by the builtin of other compilers. It is not declared under the builtin's name:
/// from some version on, 13.3 at the latest, NVRTC has it.
template <template <typename T, T...> typename To, typename T, T kCount>
using kjit_rtc_make_integer_seq =
    typename kjit_rtc::Named<To, typename kjit_rtc::Counted<T, static_cast<unsigned long>(kCount)>::type>::type;
#define __make_integer_seq kjit_rtc_make_integer_seq

// The runtime's functions, which its headers omit for NVRTC.
#undef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#define __CUDACC_RTC__ 1

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

// Declarations for host code in nvcc's <cuda_runtime.h> that take kernels: only parsed.
template <typename T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value);
template <typename T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel);
template <typename T>
cudaError_t cudaFuncSetCacheConfig(T* kernel, cudaFuncCache config);
template <typename T>
cudaError_t cudaLaunchKernel(T* kernel, dim3 grid, dim3 block, void** args, size_t smem = 0, cudaStream_t stream = 0);
template <typename T>
cudaError_t cudaLaunchCooperativeKernel(T* kernel, dim3 grid, dim3 block, void** args, size_t smem = 0,
                                        cudaStream_t stream = 0);
template <typename... Parameters, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Args&&... args);
template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T kernel, int block, size_t smem);
template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, T kernel, int block, size_t smem,
                                                                   unsigned flags);
template <typename T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, T kernel, size_t smem = 0, int limit = 0);
template <typename T>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, T* kernel, const cudaLaunchConfig_t* config);
template <typename T>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, T* kernel, const cudaLaunchConfig_t* config);
template <typename T>
cudaError_t cudaMalloc(T** memory, size_t bytes);
template <typename T>
cudaError_t cudaMallocHost(T** memory, size_t bytes, unsigned flags = 0);
template <typename T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t stream);
