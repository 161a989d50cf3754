// Launches of kernels that NVRTC has compiled; linked into each module that is built that way.
//
// In the host half of such a module a kernel is a function, whose address the CUDA runtime does not know. A table
// (written by kjit/engine/compile/kernels_object.py) has a row for each. The linker redirects the runtime's functions
// that take a kernel to the functions below (`--wrap`): they replace the address of such a function by its kernel,
// which is loaded at its first use, and pass other addresses through.

#include <pthread.h>

#include <cstddef>
#include <cstdint>

// The part of the CUDA runtime's C interface that is used here, from cuda_runtime_api.h and driver_types.h, with `int`
// for enumerations. Parsing these headers, or <atomic>, takes five times as long as compiling this file.
extern "C" {
using cudaError_t = int;
using cudaStream_t = struct CUstream_st*;
using cudaLibrary_t = struct CUlib_st*;
using cudaKernel_t = struct CUkern_st*;
using cudaFunction_t = struct CUfunc_st*;
struct cudaLaunchConfig_t;
struct cudaFuncAttributes;
struct dim3 {
  unsigned x, y, z;
};
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device);
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, int* jit_options, void** jit_values,
                                unsigned jit_count, int* options, void** values, unsigned count);
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* smem, void* stream);
cudaError_t __real_cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, std::size_t smem,
                                    cudaStream_t stream);
}

namespace {

constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorNoKernelImageForDevice = 209;
constexpr int cudaDevAttrComputeCapabilityMajor = 75;
constexpr int cudaDevAttrComputeCapabilityMinor = 76;

struct Cubin {
  const void* data;
  std::int32_t major, minor, kind, unused;  // kind: 0, 1 for a family (`f`), 2 for one architecture (`a`)
};

struct Unit {
  const Cubin* cubins;
  std::int64_t count;
  cudaLibrary_t* libraries;
};

/// The variable of a kernel's function (include/kjit_rtc/host.h).
struct Variable {
  const void* row;
};

struct Kernel {
  const void* function;
  Variable* variable;
  const Unit* unit;
  const char* const* names;
  cudaKernel_t* handles;  // atomic
};

}  // namespace

// The bounds of the table, defined by the linker.
extern "C" __attribute__((visibility("hidden"), weak)) Kernel __start_kjit_kernels[];
extern "C" __attribute__((visibility("hidden"), weak)) Kernel __stop_kjit_kernels[];

namespace {

pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/// Chooses the cubin for the current device: the one for the newest GPU among those that run on it.
cudaError_t choose(const Unit& unit, std::int64_t& chosen) {
  chosen = 0;
  if (unit.count == 1) return cudaSuccess;  // the driver reports it if it does not fit
  int device = 0, major = 0, minor = 0;
  if (const auto error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const auto error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
      error != cudaSuccess) {
    return error;
  }
  if (const auto error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
      error != cudaSuccess) {
    return error;
  }
  std::int32_t best = -1;
  for (std::int64_t i = 0; i < unit.count; ++i) {
    const Cubin& cubin = unit.cubins[i];
    const bool runs = cubin.major == major && (cubin.kind == 2 ? cubin.minor == minor : cubin.minor <= minor);
    const std::int32_t rank = 3 * cubin.minor + cubin.kind;
    if (runs && rank > best) {
      best = rank;
      chosen = i;
    }
  }
  return best < 0 ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

cudaError_t load(const Kernel& row, std::int64_t index, cudaKernel_t& kernel) {
  pthread_mutex_lock(&loading);
  cudaLibrary_t& library = row.unit->libraries[index];
  cudaError_t error = cudaSuccess;
  if (library == nullptr) {
    error = cudaLibraryLoadData(&library, row.unit->cubins[index].data, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error != cudaSuccess) library = nullptr;
  }
  if (error == cudaSuccess) error = cudaLibraryGetKernel(&kernel, library, row.names[index]);
  if (error == cudaSuccess) __atomic_store_n(&row.handles[index], kernel, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&loading);
  return error;
}

/// The kernel of a row, on the current device.
cudaError_t kernel_of(const Kernel& row, const void*& function) {
  std::int64_t index = 0;
  if (const auto error = choose(*row.unit, index); error != cudaSuccess) return error;
  cudaKernel_t kernel = __atomic_load_n(&row.handles[index], __ATOMIC_ACQUIRE);
  if (kernel == nullptr) {
    if (const auto error = load(row, index, kernel); error != cudaSuccess) return error;
  }
  function = reinterpret_cast<const void*>(kernel);
  return cudaSuccess;
}

/// Replaces the address of a kernel's function by its kernel.
cudaError_t resolve(const void*& function) {
  const Kernel* begin = __start_kjit_kernels;
  for (std::ptrdiff_t count = __stop_kjit_kernels - begin; count > 0;) {
    const Kernel* middle = begin + count / 2;
    if (middle->function == function) return kernel_of(*middle, function);
    if (middle->function < function) {
      begin = middle + 1;
      count -= count / 2 + 1;
    } else {
      count /= 2;
    }
  }
  return cudaSuccess;
}

/// Sorts the table by the addresses of functions, and gives each kernel's function its row. Before the constructors of
/// host code, which may launch kernels.
__attribute__((constructor(101))) void prepare() {
  for (Kernel* row = __start_kjit_kernels; row < __stop_kjit_kernels; ++row) {
    const Kernel inserted = *row;
    Kernel* place = row;
    for (; place > __start_kjit_kernels && inserted.function < place[-1].function; --place) *place = place[-1];
    *place = inserted;
  }
  for (Kernel* row = __start_kjit_kernels; row < __stop_kjit_kernels; ++row) row->variable->row = row;
}

}  // namespace

#define KJIT_RESOLVED(name, parameters, function, ...)                \
  extern "C" cudaError_t __real_##name parameters;                    \
  extern "C" cudaError_t __wrap_##name parameters {                   \
    const auto error = resolve(function);                             \
    return error != cudaSuccess ? error : __real_##name(__VA_ARGS__); \
  }

#define KJIT_LAUNCHES(suffix)                                                                                     \
  KJIT_RESOLVED(cudaLaunchKernel##suffix,                                                                         \
                (const void* f, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t stream), f, f, \
                grid, block, args, smem, stream)                                                                  \
  KJIT_RESOLVED(cudaLaunchCooperativeKernel##suffix,                                                              \
                (const void* f, dim3 grid, dim3 block, void** args, std::size_t smem, cudaStream_t stream), f, f, \
                grid, block, args, smem, stream)                                                                  \
  KJIT_RESOLVED(cudaLaunchKernelExC##suffix, (const cudaLaunchConfig_t* config, const void* f, void** args), f,   \
                config, f, args)

KJIT_LAUNCHES()
KJIT_LAUNCHES(_ptsz)
KJIT_RESOLVED(cudaFuncGetAttributes, (cudaFuncAttributes * attributes, const void* f), f, attributes, f)
KJIT_RESOLVED(cudaFuncSetAttribute, (const void* f, int attribute, int value), f, f, attribute, value)
KJIT_RESOLVED(cudaFuncSetCacheConfig, (const void* f, int config), f, f, config)
KJIT_RESOLVED(cudaFuncGetName, (const char** name, const void* f), f, name, f)
KJIT_RESOLVED(cudaFuncGetParamInfo, (const void* f, std::size_t index, std::size_t* offset, std::size_t* size), f, f,
              index, offset, size)
KJIT_RESOLVED(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, const void* f, int block, std::size_t smem),
              f, blocks, f, block, smem)
KJIT_RESOLVED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              (int* blocks, const void* f, int block, std::size_t smem, unsigned flags), f, blocks, f, block, smem,
              flags)
KJIT_RESOLVED(cudaOccupancyAvailableDynamicSMemPerBlock, (std::size_t* smem, const void* f, int blocks, int block), f,
              smem, f, blocks, block)
KJIT_RESOLVED(cudaOccupancyMaxPotentialClusterSize, (int* size, const void* f, const cudaLaunchConfig_t* config), f,
              size, f, config)
KJIT_RESOLVED(cudaOccupancyMaxActiveClusters, (int* clusters, const void* f, const cudaLaunchConfig_t* config), f,
              clusters, f, config)
KJIT_RESOLVED(cudaGetFuncBySymbol, (cudaFunction_t * found, const void* f), f, found, f)
KJIT_RESOLVED(cudaGetKernel, (cudaKernel_t * found, const void* f), f, found, f)

/// Launches a kernel with the configuration of a launch in angle brackets. As by nvcc, cudaGetLastError has the error.
extern "C" __attribute__((visibility("hidden"))) void kjit_rtc_launch(const void* row, void** arguments) {
  dim3 grid{}, block{};
  std::size_t smem = 0;
  cudaStream_t stream = nullptr;
  if (__cudaPopCallConfiguration(&grid, &block, &smem, &stream) != cudaSuccess) return;
  // A function that stays unknown to the runtime makes the launch fail.
  const void* function = row;
  if (row != nullptr) static_cast<void>(kernel_of(*static_cast<const Kernel*>(row), function));
  static_cast<void>(__real_cudaLaunchKernel(function, grid, block, arguments, smem, stream));
}
