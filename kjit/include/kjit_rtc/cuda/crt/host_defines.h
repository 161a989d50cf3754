// A stand-in for CUDA's header of this name (in nvidia-cuda-crt, which torch does not install), for units compiled by
// NVRTC and a C++ compiler: CUDA's annotations.

#if !defined(__HOST_DEFINES_H__)
#define __HOST_DEFINES_H__

#define CUDARTAPI
#define CUDARTAPI_CDECL

#define __location__(name) __attribute__((name))
#define __host__ __location__(host)
#define __device__ __location__(device)
#define __global__ __location__(global)
#define __shared__ __location__(shared)
#define __constant__ __location__(constant)
#define __managed__ __location__(managed)
#define __grid_constant__ __location__(grid_constant)
#define __launch_bounds__(...) __location__(launch_bounds(__VA_ARGS__))
#define __cluster_dims__(...) __location__(cluster_dims(__VA_ARGS__))
#define __block_size__(...) __location__(block_size(__VA_ARGS__))
#define __maxnreg__(...) __location__(maxnreg(__VA_ARGS__))
#define __nv_pure__ __location__(nv_pure)
#define __cudart_builtin__ __location__(cudart_builtin)
#define __device_builtin__ __location__(device_builtin)
#define __device_builtin_texture_type__ __location__(device_builtin_texture_type)
#define __device_builtin_surface_type__ __location__(device_builtin_surface_type)

#define __no_return__ __attribute__((noreturn))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __specialization_static

#endif
