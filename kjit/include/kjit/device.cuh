// Device-code basics, independent of element types: KJIT_DEVICE, lanes, typed access to raw pointers, vectors moved by
// one load or store, dependent launches.
//
//   KJIT_DEVICE float square(float x) { return x * x; }          // a forced-inline device function
//   device::AlignedVector<T, device::kMaxVecBytes / sizeof(T)> v;
//   v.load(src, i);  for (int j = 0; j < v.size(); ++j) v[j] += bias;  v.store(dst, i);
//
// Nearly free to compile. CUDA's half and 8-bit types are only declared here; `kjit/utils.cuh` includes their
// definitions. If KJIT_LIGHT_TYPES is defined before the first include, they are kjit's own, complete types
// (kjit/dtype.h).

#pragma once

#include <kjit/dtype.h>
#include <kjit/utils.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#define KJIT_DEVICE __forceinline__ __device__
#define KJIT_HOST_DEVICE __forceinline__ __host__ __device__
#define KJIT_DEVICE_HOST KJIT_HOST_DEVICE

/// Reads through the read-only data cache: for memory that no thread writes while the kernel runs.
#define KJIT_LDG(...) __ldg(__VA_ARGS__)

// kjit's builds define KJIT_CUDA_ARCH (900 for sm_90a). Unlike __CUDA_ARCH__ it has the same value in the host pass, so
// that host and device code agree on sizes. In a library for several architectures of one major version it is the
// lowest of them. Units built by other means fall back to what every GPU supports.
#ifndef KJIT_CUDA_ARCH
#define KJIT_CUDA_ARCH 0
#elif defined(__CUDA_ARCH__)
static_assert(__CUDA_ARCH__ >= KJIT_CUDA_ARCH && __CUDA_ARCH__ / 100 == KJIT_CUDA_ARCH / 100,
              "KJIT_CUDA_ARCH differs from the architecture that is compiled for");
#endif
#define KJIT_ARCH_HOPPER_OR_GREATER (KJIT_CUDA_ARCH >= 900)
#define KJIT_ARCH_BLACKWELL_OR_GREATER (KJIT_CUDA_ARCH >= 1000 && CUDART_VERSION >= 12090)

#if defined(KJIT_LIGHT_TYPES) && KJIT_CUDA_TYPES
#error "KJIT_LIGHT_TYPES is defined too late: define it before the first #include"
#endif

namespace kjit {

namespace device {

/// Threads in a warp.
inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kWarpSize = kWarpThreads;

/// The widest load or store in bytes: 32 on Blackwell with CUDA 12.9 or later, otherwise 16.
inline constexpr std::size_t kMaxVecBytes = KJIT_ARCH_BLACKWELL_OR_GREATER ? 32 : 16;

/// The index of this thread in its warp, or in its group of `kThreads` (a power of two up to 32) within the warp.
template <std::uint32_t kThreads = kWarpThreads>
KJIT_DEVICE std::uint32_t get_lane_id() {
  static_assert(kThreads > 0 && kThreads <= kWarpThreads && (kThreads & (kThreads - 1)) == 0);
#if KJIT_SIM
  const std::uint32_t lane = ::kjit_sim::lane_id();
#else
  std::uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
#endif
  return lane % kThreads;
}

/// Waits until the kernels that this one depends on have ended and their writes are visible. To be called by every
/// thread that reads them, before its first read. No effect if `kEnabled` is false or before sm_90, which has no
/// dependent launches.
template <bool kEnabled>
KJIT_DEVICE void PDLWaitPrimary() {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM  // the simulator runs kernels one after another
  // The clobber keeps the compiler from moving reads before the wait.
  if constexpr (kEnabled) asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Allows the next kernel of the stream to start. It makes no memory visible: the other kernel's `PDLWaitPrimary` does.
/// No effect if `kEnabled` is false or before sm_90.
template <bool kEnabled>
KJIT_DEVICE void PDLTriggerSecondary() {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
  // Without the clobber the compiler may move stores after the trigger, which the dependent kernel would not wait for.
  if constexpr (kEnabled) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// The first statement of a kernel launched with `enable_pdl()`: waits until all earlier work in the stream has ended,
/// and lets the next kernel be launched while this one runs. Called by all threads, before any access to memory. Hides
/// the launch latency. With more than `kMostBlocks` blocks the next kernel is not triggered: each block's trigger costs
/// about a nanosecond of the whole GPU, which short blocks would have to wait for (measured on an H200).
KJIT_DEVICE void PDLBegin() {
  constexpr std::uint64_t kMostBlocks = 4096;
  PDLWaitPrimary<true>();
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * (gridDim.y * gridDim.z);
  if (threadIdx.x == 0 && blocks <= kMostBlocks) PDLTriggerSecondary<true>();  // one thread for its block
}

/// `a / b` rounded up, for a positive `b`.
template <std::integral A, std::integral B>
KJIT_DEVICE constexpr std::common_type_t<A, B> div_ceil(A a, B b) {
  return host::div_ceil(a, b);
}

/// Element `offset` of an array of `T` at `ptr`.
template <typename T>
KJIT_DEVICE T load_as(const void* ptr, std::int64_t offset = 0) {
  return static_cast<const T*>(ptr)[offset];
}

/// Writes element `offset` of an array of `T` at `ptr`. `T` is always explicit: `store_as<fp16_t>(p, x)`.
template <typename T>
KJIT_DEVICE void store_as(void* ptr, std::type_identity_t<T> value, std::int64_t offset = 0) {
  static_cast<T*>(ptr)[offset] = value;
}

namespace pointer {

/// `host::pointer::offset` for device code.
template <typename T = char, std::integral... U>
KJIT_DEVICE void* offset(void* ptr, U... offsets) {
  return static_cast<T*>(ptr) + (std::ptrdiff_t{0} + ... + static_cast<std::ptrdiff_t>(offsets));
}
template <typename T = char, std::integral... U>
KJIT_DEVICE const void* offset(const void* ptr, U... offsets) {
  return static_cast<const T*>(ptr) + (std::ptrdiff_t{0} + ... + static_cast<std::ptrdiff_t>(offsets));
}

}  // namespace pointer

/// Lets the compiler spill registers to shared memory instead of local memory (CUDA 13 and later; no effect before). To
/// be called at the beginning of a kernel.
KJIT_DEVICE void enable_smem_spilling() {
#if defined(__CUDA_ARCH__) && CUDART_VERSION >= 13000
  asm volatile(".pragma \"enable_smem_spilling\";");
#endif
}

/// The number of tensor memory columns to allocate for `columns` columns: a power of two from 32 to 512 (sm_100; PTX
/// ISA, `tcgen05.alloc`).
KJIT_HOST_DEVICE constexpr std::uint32_t get_tmem_cols(std::uint32_t columns) {
  std::uint32_t allocated = 32;
  while (allocated < columns && allocated < 512) allocated *= 2;
  return allocated;
}

/// `N` values of type `T`, usable in device code and as a kernel parameter.
template <typename T, std::size_t N>
struct DeviceArray {
  using value_type = T;

  __host__ __device__ static constexpr std::size_t size() { return N; }
  __host__ __device__ constexpr T& operator[](std::size_t i) { return data_[i]; }
  __host__ __device__ constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  __host__ __device__ constexpr T* data() { return data_; }
  __host__ __device__ constexpr const T* data() const { return data_; }

  T data_[N];
};

/// `N` elements of type `T` aligned to their total size: a plain aggregate of any size.
template <typename T, std::size_t N>
struct alignas(sizeof(T) * N) AlignedStorage {
  T data[N];
};

/// `N` elements of type `T`, aligned to their total size, which is a power of two of at most `kMaxVecBytes` bytes:
/// moved by one load or store. Pointers must be aligned to the whole vector: check with
/// `TensorMatcher::ensure_alignment(sizeof(v))`.
template <typename T, std::size_t N>
class alignas(sizeof(T) * N) AlignedVector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a vector has a power of two of elements");
  static_assert(sizeof(T) * N <= kMaxVecBytes, "a vector is at most kMaxVecBytes wide");

 public:
  using value_type = T;

  __host__ __device__ static constexpr std::size_t size() { return N; }
  __host__ __device__ T& operator[](std::size_t i) { return data()[i]; }
  __host__ __device__ const T& operator[](std::size_t i) const { return data()[i]; }
  __host__ __device__ T* data() { return reinterpret_cast<T*>(words_); }
  __host__ __device__ const T* data() const { return reinterpret_cast<const T*>(words_); }

  __device__ void fill(T value) {
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) (*this)[i] = value;
  }

  /// Reads vector `index` of the array at `ptr`.
  __device__ void load(const void* ptr, std::int64_t index = 0) {
    *this = static_cast<const AlignedVector*>(ptr)[index];
  }
  /// Writes vector `index` of the array at `ptr`.
  __device__ void store(void* ptr, std::int64_t index = 0) const { static_cast<AlignedVector*>(ptr)[index] = *this; }

 private:
  // CUDA's pairs of half types have user-defined copy functions: a vector of them would be copied pair by pair, with a
  // load each. Words are copied as a whole.
  using Unsigned = std::conditional_t<sizeof(T) * N % 4 == 0, std::uint32_t,
                                      std::conditional_t<sizeof(T) * N == 2, std::uint16_t, std::uint8_t>>;
  using Word __attribute__((may_alias)) = Unsigned;

  Word words_[sizeof(T) * N / sizeof(Word)];
};

}  // namespace device

}  // namespace kjit
