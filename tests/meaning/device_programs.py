"""Small CUDA programs of every form that kernels and launches have."""

from __future__ import annotations

import random
from dataclasses import dataclass

from structs import split

HEADERS = "".join(
    f"#include <{name}>\n"
    for name in (
        *("cassert", "cmath", "cstdint", "cstdio", "array", "tuple", "utility", "type_traits", "limits", "algorithm"),
        *("numeric", "optional", "complex", "bit", "functional", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h"),
        *("cooperative_groups.h", "cuda/std/array", "cuda/std/tuple", "cuda/std/limits", "cuda/std/complex"),
        *("cuda/std/type_traits", "cuda/std/bit", "cuda/atomic"),
    )
)


@dataclass(frozen=True)
class Program:
    """Kernels and a statement that launches them.

    Attributes:
        before: what is outside of its namespace.
    """

    name: str
    text: str
    launch: str
    before: str = ""
    needs_20: bool = False


def _simple(name: str, body: str, before: str = "", needs_20: bool = False) -> Program:
    """A program of one kernel with numbers of several types."""
    arguments = "float* x, int n, double* d, unsigned* u"
    kernel = f"__global__ void k({arguments}) {{ const int i = threadIdx.x + blockIdx.x * blockDim.x; {body} }}"
    return Program(name, f"{before}\n{kernel}", "k<<<1, 32>>>(nullptr, 3, nullptr, nullptr);", needs_20=needs_20)


def _all_simple(text: str) -> list[Program]:
    """The programs of one kernel that the lines of a text name and hold."""
    return [_simple(*line.split(": ", 1)) for line in text.strip().splitlines()]


def _of(name: str, text: str, launch: str, before: str = "", needs_20: bool = False) -> Program:
    return Program(name, text, launch, before, needs_20)


OF_LANGUAGE = (
    *_all_simple(r"""
a loop: for (int j = i; j < n; j += 32) x[j] *= 2.5f;
an unrolled loop: _Pragma("unroll 4") for (int j = 0; j < n; ++j) x[j] += j;
"""),
    _simple(
        "a pragma",
        "\n#pragma unroll\nfor (int j = 0; j < 8; ++j) x[i * 8 + j] = j;\n#pragma unroll 1\nfor (int j = 0; j < n; ++j) x[j] -= 1;\n",
    ),
    *_all_simple(r"""
a switch: switch (n) { case 1: x[i] = 1; break; case 2: [[fallthrough]]; case 7: x[i] = 4; break; case 1'000: x[i] = 9; break; default: x[i] = -1; }
shared memory: __shared__ float s[128]; s[threadIdx.x] = x[i]; __syncthreads(); x[i] = s[127 - threadIdx.x];
dynamic shared memory: extern __shared__ float s[]; s[threadIdx.x] = x[i]; __syncthreads(); x[i] = s[n];
shuffles: float v = x[i]; for (int m = 16; m; m /= 2) v += __shfl_xor_sync(~0u, v, m); if (i == 0) x[0] = v; u[i] = __ballot_sync(~0u, v > 0) + __popc(n);
atomics: atomicAdd(x, 1.5f); atomicMax(u, 7u); atomicCAS(u + 1, 1u, 2u); atomicAdd(d, 2.0); atomicExch(x + 1, 0.f); atomicAnd(u, 1u); atomicInc(u, 3u); atomicAdd_block(u, 1u);
atomic builtins: __nv_atomic_fetch_add(u, 3u, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE); __nv_atomic_store_n(u + 1, 3u, __NV_ATOMIC_RELEASE);
cuda::atomic: cuda::atomic_ref<unsigned, cuda::thread_scope_device> a(*u); a.fetch_add(3u, cuda::std::memory_order_relaxed);
inline PTX: unsigned r; asm volatile("mov.u32 %0, %%laneid;" : "=r"(r)); u[i] = r; asm("{ .reg .b32 t; add.u32 t, %1, 3; mov.u32 %0, t; }" : "=r"(u[i + 1]) : "r"(n));
printf: printf("%d %f %s <<<1, 2>>>\n", n, d[0], "__global__"); if (n > 1'000) printf("more");
assert: assert(n > 0 && "positive"); x[i] = 1;
__builtin_assume: __builtin_assume(n % 4 == 0); for (int j = 0; j < n; ++j) x[j] = j;
builtins: if (__builtin_expect(n > 3, 1)) u[i] = __builtin_popcount(n) + __builtin_clz(n | 1) + __builtin_ffs(n);
__trap and nanosleep: if (n < 0) __trap(); __nanosleep(100); x[i] = clock64() != 0; __threadfence(); __syncwarp();
aligned loads: float4 v = *reinterpret_cast<const float4*>(x + i * 4); v.x += v.w; *reinterpret_cast<float4*>(x) = v; x[9] = __ldg(x + 8); x[10] = __ldcs(x + 3);
vectors: float4 v = make_float4(1, 2, 3, n); int2 w{n, 4}; uchar3 c = make_uchar3(1, 2, n); x[0] = v.x * v.w + w.y + c.z; dim3 g(1, n); x[1] = g.y + gridDim.y;
__int128: __int128 a = n; a = a * a * a << 7; u[0] = (unsigned)(a >> 64); unsigned __int128 b = u[3]; u[1] = (unsigned)(b * b / 7 % 100);
division: u[0] = u[1] / 7u + u[2] % 10u; x[0] = x[1] / x[2]; d[0] = d[1] / d[2]; u[4] = n / 3 % (n | 1);
conversions: x[0] = (float)d[0] + (int)d[1] + (unsigned)x[3]; u[0] = __float2int_rn(x[1]) + __double2uint_rz(d[2]); x[5] = __int2float_rd(n); d[3] = __hiloint2double(n, 1); u[3] = __float_as_uint(x[7]);
structured bindings: auto [a, b, c] = std::make_tuple(n, 2.5f, 'c'); x[i] = a * b + c; int arr[2] = {n, 3}; auto& [p, q] = arr; x[1] = p + q; struct { int s; float t; } st{n, 1.f}; auto [s, t] = st; x[2] = s * t;
lambdas: auto f = [=](float v) { return v * n; }; auto g = [&](auto v) { return f(v) + x[0]; }; x[i] = g(2.5f) + [](int y) { return y * 3; }(n);
"""),
    _simple(
        "templated lambdas",
        "auto f = [&]<int kBy, typename T>(T v) { return v * kBy + n; }; x[i] = f.operator()<3>(2.5f) + f.operator()<4, double>(1); [&]<int... kEach>(std::integer_sequence<int, kEach...>) { ((x[kEach] += kEach * f.operator()<kEach>(1)), ...); }(std::make_integer_sequence<int, 5>());",
        needs_20=True,
    ),
    *_all_simple(r"""
captures of bindings: auto [a, b] = std::pair(n, 2.5f); auto f = [a = a, b = b](int v) { return v * a + b; }; x[i] = f(3);
"""),
    _simple(
        "if constexpr",
        "if constexpr (sizeof(void*) == 8) x[i] = 8; else x[i] = undefined_thing(4) * 0;".replace(
            "undefined_thing(4) * 0", "4"
        ),
    ),
    *_all_simple(r"""
constexpr functions of std: x[0] = std::max(n, 3) + std::min(x[1], 2.f) + std::clamp(n, 1, 9); u[0] = std::numeric_limits<unsigned>::max() + std::array<int, 3>{1, 2, n}[n & 1]; d[0] = std::numeric_limits<double>::epsilon(); std::optional<int> o = n; x[2] = o.value_or(4); x[3] = *std::max_element(x, x + 3);
"""),
    _simple(
        "bits of std",
        "u[0] = std::popcount(u[1]) + std::countl_zero(u[2]) + std::rotl(u[3], 5) + std::bit_width(u[4]); u[5] = std::bit_cast<unsigned>(x[0]);",
        needs_20=True,
    ),
    *_all_simple(r"""
swap and exchange: std::swap(x[0], x[1]); x[2] = std::exchange(x[3], 2.f); auto t = std::forward_as_tuple(x[4], n); std::get<0>(t) = 2; std::tie(x[5], u[0]) = std::make_pair(1.f, 2u);
cuda::std: cuda::std::array<int, 3> a{1, 2, n}; cuda::std::tuple<int, float> t(n, 2.5f); x[0] = a[n & 1] + cuda::std::get<1>(t); u[0] = cuda::std::numeric_limits<unsigned>::max() + cuda::std::popcount(u[2]); cuda::std::complex<float> z(x[1], 2); x[2] = (z * z).imag(); static_assert(cuda::std::is_same_v<int, int>);
half: __half h = __float2half(x[0]); h = __hadd(h, __half(2.f)) * h - h / __half(3.f); if (h > __half(1.f) || __hlt(h, __half(0.f))) h = hsqrt(h); x[1] = __half2float(h); __half2 p = __floats2half2_rn(x[2], x[3]); p = __hfma2(p, p, p); x[4] = __low2float(p); x[5] = h == __half(0) ? 1.f : 2.f; x[6] = __hisnan(h);
half comparisons: __half a = x[0], b = x[1]; u[0] = (a < b) + 2 * (a <= b) + 4 * (a != b) + 8 * __hge(a, b) + 16 * __hequ(a, b); a += b; a *= b; a = -a; ++a; x[2] = float(__hmax(a, b)) + (float)__hmin_nan(a, b) + (int)a;
bf16: __nv_bfloat16 h = __float2bfloat16(x[0]); h = h * h + __nv_bfloat16(1.5f); x[1] = __bfloat162float(h); __nv_bfloat162 p = __floats2bfloat162_rn(x[2], x[3]); p = __hmul2(p, p); x[4] = __high2float(p); x[5] = h < __nv_bfloat16(2.f); x[6] = float(hexp(h)) + float(__habs(h));
fp8: __nv_fp8_e4m3 a(x[0]); __nv_fp8_e5m2 b(d[0]); x[1] = float(a) + float(b); __nv_fp8x4_e4m3 v(make_float4(x[1], x[2], x[3], x[4])); u[0] = v.__x; x[5] = v.operator float4().z; u[1] = __nv_cvt_float_to_fp8(x[6], __NV_SATFINITE, __NV_E4M3);
cooperative groups: namespace cg = cooperative_groups; auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<16>(block); float v = x[i]; for (int m = tile.size() / 2; m; m /= 2) v += tile.shfl_down(v, m); block.sync(); if (tile.thread_rank() == 0) x[tile.meta_group_rank()] = v; auto active = cg::coalesced_threads(); u[0] = active.size();
dependent launches: cudaGridDependencySynchronize(); x[i] = 1; cudaTriggerProgrammaticLaunchCompletion();
goto and ?:: int j = 0; again: x[j] = j > 3 ? 1.f : n; if (++j < n) goto again;
"""),
    _simple(
        "numbers",
        "x[0] = 1'024 + 0x1p3f + 0b1'01 + 017; d[0] = 1'000.5 + M_PI; x[1] = INFINITY; x[2] = NAN; u[0] = ULONG_MAX > 0xffffffffUL ? 1 : 2; u[1] = '\\'' + '\"'; u[2] = sizeof(NULL); d[1] = HUGE_VAL; u[4] = __LINE__ > 0;".replace(
            "ULONG_MAX", "__LONG_MAX__ * 2UL + 1"
        ),
    ),
    _simple(
        "conditions",
        "\n#if __BYTE_ORDER == __BIG_ENDIAN\nx[0] = 1;\n#else\nx[0] = 2;\n#endif\n#ifdef __NVCC__\nx[1] = 3;\n#endif\n#ifdef __CUDACC_RTC__\nx[1] = 4;\n#endif\n#if __CUDA_ARCH__ >= 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)\nx[2] = 5;\n#endif\n#ifdef __clang__\nx[3] = 1;\n#endif\n#if defined(__linux__) && defined(_GNU_SOURCE)\nx[4] = 7;\n#endif\n",
    ),
    *_all_simple(r"""
memory functions: float t[8]; memcpy(t, x, sizeof t); memset(x + 8, 0, 64); x[0] = t[n & 7]; u[0] = __isGlobal(x) + __cvta_generic_to_shared(x);
new and delete: int* p = new int[n]; p[0] = n; x[0] = p[n - 1]; delete[] p; void* q = malloc(n); free(q);
virtual functions: struct A { __device__ virtual int f() const { return 1; } }; struct B : A { int v; __device__ int f() const override { return v; } }; B b; b.v = n; const A& a = b; x[0] = a.f();
"""),
    _simple(
        "recursion and pointers",
        "x[0] = depth(n); int (*f)(int) = depth; if (n > 3) f = other; x[1] = f(n);",
        "__device__ int depth(int n) { return n < 2 ? n : depth(n - 1) + depth(n - 2); }\n__device__ int other(int n) { return n * 7; }",
    ),
    _simple(
        "__noinline__",
        "x[0] = far(n) + near(n) + plain(n);",
        "__device__ __noinline__ int far(int n) { return n * n; }\n__device__ __forceinline__ int near(int n) { return n + 3; }\n__host__ __device__ int plain(int n) {\n#ifdef __CUDA_ARCH__\nreturn n * 5;\n#else\nreturn n * 6;\n#endif\n}",
    ),
    _simple(
        "variables of the device",
        "x[0] = table[n & 3] + factors[n & 1] + counter++ + limit + Held::kIn + held<float>;",
        "__device__ const int table[] = {1'0, 2, sizeof(long), sizeof(NULL)};\n__constant__ float factors[2] = {1.5f, 2.5f};\nstatic __device__ int counter = 7;\nconstexpr int limit = 12;\nstruct Held { static constexpr int kIn = 3; };\ntemplate <typename T> constexpr int held = sizeof(T);",
    ),
    _simple(
        "constants of std on both sides",
        "x[0] = kBits + kTop; d[0] = kEps;",
        "constexpr int kBits = std::numeric_limits<__int128>::digits;\nconstexpr int kTop = std::numeric_limits<int>::max() % 1'000;\nconstexpr double kEps = std::numeric_limits<double>::epsilon();",
    ),
    _of(
        "an unnamed namespace",
        "namespace { __global__ void hidden(int* x, int n) { *x = n * 3; } struct S { int a; char b; };\ntemplate <typename T> __global__ void of(T t, int* x) { *x = sizeof(t) + t.a; } }",
        "hidden<<<1, 1>>>(nullptr, 2); of<<<1, 1>>>(S{1, 'a'}, (int*)nullptr);",
    ),
    _of(
        "overloads",
        "__global__ void k(int* x) { *x = 1; }\n__global__ void k(float* x) { *x = 2; }\n__global__ void k(int* x, int n) { *x = n; }",
        "k<<<1, 1>>>((int*)nullptr); k<<<1, 1>>>((float*)nullptr); k<<<1, 1>>>(nullptr, 1);",
    ),
    _of("static", "static __global__ void k(int* x, long n) { *x = n; }", "k<<<1, 1>>>(nullptr, 3);"),
    _of('extern "C"', 'extern "C" __global__ void k_of_c(int* x) { *x = 3; }', "k_of_c<<<1, 1>>>(nullptr);"),
    _of(
        "in a class",
        "struct Ops { template <typename T> struct In { T t; int n; }; int n; };\ntemplate <typename T> __global__ void run(T op, int* x) { *x = op.n; }",
        "run<<<1, 1>>>(Ops{3}, (int*)nullptr); run<<<1, 1>>>(Ops::In<double>{1, 2}, (int*)nullptr);",
    ),
    _of(
        "a friend in a class",
        "struct A { int v; friend __global__ void of_friend(A a, int* x); };\n__global__ void of_friend(A a, int* x) { *x = a.v; }",
        "of_friend<<<1, 1>>>(A{1}, nullptr);",
    ),
    _of(
        "as template arguments",
        "__global__ void a(int* x) { *x = 1; }\n__global__ void b(int* x) { *x = 2; }\ntemplate <void (*kKernel)(int*)> void launch() { kKernel<<<1, 1>>>(nullptr); }\ntemplate <auto kKernel, typename... A> void all(A... args) { kKernel<<<1, 2>>>(args...); }\ntemplate <int kBy> __global__ void c(int* x) { *x = kBy; }",
        "launch<a>(); launch<b>(); all<c<5>>((int*)nullptr);",
    ),
    _of(
        "templates",
        'template <typename T, int kCount = 4, bool kIs = (kCount > 2)> __global__ void k(T* x, T by) { _Pragma("unroll") for (int i = 0; i < kCount; ++i) x[i] *= kIs ? by : T(1); }\ntemplate <typename T> void launch(T by) { k<T><<<1, 1>>>(nullptr, by); k<T, 2><<<dim3(1), dim3(2), 0, nullptr>>>(static_cast<T*>(nullptr), by); }',
        "launch(1.5f); launch(2.5); launch(7); k<<<1, 1>>>((short*)nullptr, short(3));",
    ),
    _of(
        "default arguments",
        "__global__ void k(int* x, int n = 1'000, float f = 2.5f) { *x = n * f; }",
        "k<<<1, 1>>>(nullptr); k<<<1, 1>>>(nullptr, 3);",
    ),
    _of(
        "specialisations",
        "template <typename T> struct Kind { static constexpr int v = 1; };\ntemplate <> struct Kind<float> { static constexpr int v = 1'024; };\ntemplate <typename T> __global__ void k(int* x) { *x = Kind<T>::v; }\ntemplate <> __global__ void k<double>(int* x) { *x = 77; }\ntemplate __global__ void k<short>(int*);",
        "k<int><<<1, 1>>>(nullptr); k<float><<<1, 1>>>(nullptr); k<double><<<1, 1>>>(nullptr);",
    ),
    _of(
        "packs",
        "template <typename... T> __global__ void k(float* x, T... v) { *x = (float(v) + ...) + sizeof...(T); }\ntemplate <int... kEach> __global__ void of(int* x) { int n = 0; ((x[n++] = kEach), ...); }",
        "k<<<1, 1>>>((float*)nullptr, 1, 2.5f, 'c', 4.0); of<1, 2, 3><<<1, 1>>>(nullptr);",
    ),
    _of(
        "concepts",
        "template <typename T> concept Wide = sizeof(T) > 4;\ntemplate <Wide T> __global__ void k(T* x) { *x = 8; }\ntemplate <typename T> requires(!Wide<T>) __global__ void k(T* x) { *x = 4; }",
        "k<<<1, 1>>>((double*)nullptr); k<<<1, 1>>>((int*)nullptr);",
        needs_20=True,
    ),
    _of(
        "functors",
        "struct Twice { __device__ float operator()(float v) const { return v * 2; } };\nstruct Plus { float by; __host__ __device__ float operator()(float v) const { return v + by; } };\ntemplate <typename F> __global__ void apply(float* x, F f) { *x = f(*x); }",
        "apply<<<1, 1>>>((float*)nullptr, Twice{}); apply<<<1, 1>>>((float*)nullptr, Plus{2.5f});",
    ),
    _of(
        "macros that launch",
        "#define LAUNCH(kernel, ...) kernel<<<1, 32>>>(__VA_ARGS__)\n#define KERNEL(name, T) __global__ void name(T* x, T by) { *x *= by; }\n#define IF(c, T, ...) if (c) { using type = T; __VA_ARGS__ }\nKERNEL(k1, float) KERNEL(k2, int)\ntemplate <typename T> __global__ void k3(T* x) { *x = 3; }",
        "LAUNCH(k1, nullptr, 2.f); LAUNCH(k2, nullptr, 3); IF(true, double, k3<type><<<1, 1>>>((type*)nullptr);) IF(false, char, LAUNCH(k3<type>, (type*)nullptr);)",
    ),
    _of(
        "launches in lambdas",
        "template <typename T> __global__ void k(T* x, int n) { *x = n; }\ntemplate <typename F> void dispatch(int bits, F f) { if (bits == 32) f(float{}); else f(double{}); }",
        "dispatch(32, [&](auto zero) { using T = decltype(zero); k<T><<<1, 1>>>(nullptr, 3); }); [] { k<char><<<1, 1>>>(nullptr, 1); }();",
    ),
    _of(
        "launches in expressions",
        "__global__ void k(int* x) { *x = 1; }",
        "true ? k<<<1, 1>>>(nullptr) : (void)0; for (int i = 0; i < 3; ++i, k<<<i, 1>>>(nullptr)) {} if (int n = 3; n > 2) k<<<n > 2 ? 1 : 2, (n >> 1) + 1, sizeof(int) * 3>>>(nullptr);",
    ),
    _of(
        "launches with bounds",
        "template <int kThreads> __global__ void __launch_bounds__(kThreads, 2) k(float* x) { x[threadIdx.x] *= kThreads; }\n__global__ __launch_bounds__(1'024) void j(float* x) { *x = 1; }\n__global__ void __cluster_dims__(2, 1, 1) c(float* x) { *x = 3; }\n__global__ void __maxnreg__(32) r(float* x) { *x = 1; }",
        "k<128><<<1, 128>>>(nullptr); j<<<1, 1>>>(nullptr); c<<<2, 1>>>(nullptr); r<<<1, 1>>>(nullptr);",
    ),
    _of(
        "__grid_constant__",
        "struct Big { int a[40]; char c; };\n__global__ void k(const __grid_constant__ Big big, int* x, const __grid_constant__ int n) { const int* p = &big.a[n]; *x = *p + big.c; }",
        "k<<<1, 1>>>(Big{}, nullptr, 3);",
    ),
    _of(
        "__restrict__ and const",
        "__global__ void k(const float* __restrict__ a, float* __restrict__ b, const int n, float const* const c) { b[0] = a[n] + c[0]; b[1] = a[n]; }",
        "k<<<1, 1>>>(nullptr, nullptr, 3, nullptr);",
    ),
    _of(
        "attributes between",
        "__global__ static void k1(int* x) { *x = 1; }\nvoid __global__ k2(int* x) { *x = 2; }\ninline __global__ void k3(int* x) { *x = 3; }\n[[maybe_unused]] __global__ void k4([[maybe_unused]] int* x) { *x = 4; }\n__attribute__((global)) void k5(int* x) { *x = 5; }\nauto __global__ k6(int* x) -> void { *x = 6; }",
        "k1<<<1, 1>>>(nullptr); k2<<<1, 1>>>(nullptr); k3<<<1, 1>>>(nullptr); k4<<<1, 1>>>(nullptr); k5<<<1, 1>>>(nullptr); k6<<<1, 1>>>(nullptr);",
    ),
    _of(
        "declared before",
        "__global__ void k(int* x, int n);\nvoid early() { k<<<1, 1>>>(nullptr, 3); }\n__global__ void k(int* x, int n) { *x = n; }\ntemplate <typename T> __global__ void t(T* x);\nvoid early_too() { t<<<1, 1>>>((int*)nullptr); }\ntemplate <typename T> __global__ void t(T* x) { *x = 5; }",
        "early(); early_too();",
    ),
    _of(
        "function try and braces",
        "struct S { int a, b; };\n__global__ void k(S s, int* x) { *x = s.a + s.b; }\nvoid f() try { k<<<1, 1>>>({1, 2}, nullptr); } catch (...) { }",
        "f(); k<<<{1, 2, 3}, {32}>>>(S{.a = 1, .b = 2}, nullptr);",
    ),
    _of(
        "literals beside kernels",
        'constexpr const char* kText = R"(__global__ void no() { } <<<1, 2>>>)";\n__global__ void k(char* x, int n) { *x = "}{)(<<<"[n] + kLong[n]; }',
        'k<<<1, 1>>>(nullptr, sizeof("__global__ void f() {"));',
        before='static __device__ const char kLong[] = "// /* " "__device__";',
    ),
    _of(
        "types that differ in nvcc",
        "struct S { int a;\n#ifdef __NVCC__\n  double more;\n#endif\n#ifndef __CUDACC_RTC__\n  char last;\n#endif\n};\n__global__ void k(S s, int* x) { *x = s.a + s.last + s.more; }",
        "k<<<1, 1>>>(S{}, nullptr);",
    ),
    _of(
        "enumerators under nvcc",
        "#if defined(__NVCC__)\nenum { kThreads = 256 };\n#else\nenum { kThreads = 32 };\n#endif\n__global__ void k(float* x) { __shared__ float s[kThreads]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[kThreads - 1 - threadIdx.x]; }",
        "k<<<1, kThreads>>>(nullptr);",
    ),
)

OF_NVCC = (
    _of(
        "as pointers",
        "__global__ void a(int* x, int n) { *x = n; }\n__global__ void b(int* x, int n) { *x = n * 2; }\ntemplate <typename T> __global__ void c(T* x, int n) { *x = n + sizeof(T); }",
        'auto f = a; if (getenv("B")) f = b; f<<<1, 1>>>(nullptr, 3); void (*const g)(float*, int) = c<float>; g<<<1, 1>>>(nullptr, 1); void (*table[])(int*, int) = {a, &b, c<int>}; table[1]<<<1, 1>>>(nullptr, 3);',
    ),
    _simple(
        "complex of std",
        "std::complex<float> a(x[0], x[1]), b(x[2], 1); auto c = a * 2.f + b; x[3] = c.real(); x[4] = c.imag();",
    ),
    _simple("statements in expressions", "x[9] = ({ int t = n; t * 2; });"),
    _simple("?: without a middle", "x[i] = n ?: 2;"),
    _simple("__builtin_constant_p", "if constexpr (__builtin_constant_p(3)) x[1] = 2; else x[1] = 3;"),
    _simple("ranges of cases", "switch (n) { case 1 ... 5: x[i] = 1; break; default: x[i] = 2; }"),
    _of(
        "a symbol that the host names",
        "__constant__ float factors[4];\n__global__ void k(float* x) { *x = factors[1]; }",
        "float one = 1; cudaMemcpyToSymbol(factors, &one, 4); k<<<1, 1>>>(nullptr);",
    ),
    _of(
        "managed variables", "__managed__ int total;\n__global__ void k() { total += 1; }", "k<<<1, 1>>>(); total = 3;"
    ),
)
"""Programs that kjit may leave to nvcc, each by itself."""

_ONE = """acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp
exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb nearbyint normcdf normcdfinv rcbrt rint round rsqrt sin
sinh sinpi sqrt tan tanh tgamma trunc y0 y1 ilogb llrint llround lrint lround isfinite isinf isnan signbit abs"""
_TWO = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder rhypot max min"
_THREE = "fma norm3d rnorm3d"
_INTRINSICS = """__cosf(x[1]) __sinf(x[1]) __expf(x[1]) __exp10f(x[1]) __logf(x[1]) __log2f(x[1]) __powf(x[1],x[2])
__fdividef(x[1],x[2]) __frcp_rn(x[1]) __fsqrt_rz(x[1]) __fmaf_rd(x[1],x[2],x[3]) __fadd_ru(x[1],x[2]) __saturatef(x[1])
__tanf(x[1]) __frsqrt_rn(x[1]) __dadd_rn(d[1],d[2]) __fma_rn(d[1],d[2],d[3]) __drcp_rz(d[1]) __dsqrt_ru(d[1]) __brev(n)
__popcll(n) __clzll(n) __ffs(n) __byte_perm(n,u[1],0x1234) __sad(n,3,u[1]) __umulhi(u[1],u[2]) __mul24(n,3) __hadd(n,3)
__vadd2(u[1],u[2]) __vabsdiffu4(u[1],u[2]) __dp4a(n,3,n) __funnelshift_l(n,u[1],u[2]) __reduce_add_sync(~0u,u[1])
__match_any_sync(~0u,n) __activemask() __nv_bfloat162float_like(n) __double2half(d[1]) __half_as_short(__half(x[1]))"""

_OF_ONE_TYPE = ("x[1], x[2])", "d[1], d[2])", "n, 3)")
_NOT_OF_STD = split(r"""
    cospi   cyl   erfcinv   erfcx   erfinv   exp10   j0   j1   normcdf   rcbrt   rsqrt   sinpi   y0   y1
    rhypot
""")
FUNCTIONS = (
    *(f"{prefix}{name}({x})" for name in _ONE.split() for x in ("x[1]", "d[1]") for prefix in ("", "std::")),
    *(f"{name}({x})" for name in _ONE.split() for x in ("n", "u[1]") if not name.startswith(("abs", *_NOT_OF_STD))),
    *(f"{name}f(x[1])" for name in _ONE.split() if name not in ("abs", "isfinite", "isinf", "isnan", "signbit")),
    *(
        f"{prefix}{name}({pair})"
        for name in _TWO.split()
        for pair in ("x[1], x[2]", "d[1], d[2]", "x[1], d[1]", "x[1], n", "n, d[1]", "n, 3")
        for prefix in ("", "std::")
    ),
    *(f"{name}({x}[1], {x}[2], {x}[3])" for name in _THREE.split() for x in "xd"),
    *(_INTRINSICS.split()),
    *split(r"""
    sincos(d[1], d + 2, d + 3)   sincosf(x[1], x + 2, x + 3)   sincospi(d[1], d + 2, d + 3)   frexp(x[1], &n)
    ldexp(d[1], n)   modf(d[1], d + 2)   scalbn(x[1], n)   scalbln(d[1], 3l)   jn(n, d[1])   ynf(n, x[1])
    norm(n, d)   norm4df(x[1], x[2], x[3], x[4])   remquo(d[1], d[2], &n)   nan("")
"""),
)
"""Calls of functions on the device, with a kernel's arguments."""

FUNCTIONS = tuple(
    each
    for each in FUNCTIONS
    if not (each.removeprefix("std::").startswith(("max(", "min(")) and each.split("(")[1] not in _OF_ONE_TYPE)
    and "_like" not in each
    and not (each.startswith("std::") and each[5:].startswith(_NOT_OF_STD))
)


def kernel_of(call: str) -> Program:
    """A kernel that calls one function."""
    is_void = call.startswith("sincos")
    stored = f"{call};" if is_void else f"auto r = {call}; *reinterpret_cast<decltype(r)*>(x) = r;"
    return _simple(call, stored)


def drawn(seed: int) -> Program:
    """A random program: templates in nested namespaces, conditions of the preprocessor, structs, and kernels."""
    rng = random.Random(seed)

    def expression(depth: int, names: list[str]) -> str:
        if depth == 0:
            return rng.choice(
                [*names, *("3", "2.5f", "1'024", "'x'", "sizeof(NULL)", "7u", "1.5", "kBy", "M_PI", "true")]
            )
        a, b = expression(depth - 1, names), expression(depth - 1, names)
        forms = [
            "({0} + {1})",
            "({0} * {1})",
            "({0} - {1})",
            "({0} < {1})",
            "({0} > {1} ? {0} : {1})",
            "std::max<float>({0}, {1})",
        ]
        forms += [
            "sqrt(float({0}))",
            "fmax({0}, {1})",
            "abs({0} - {1})",
            "(int)({0})",
            "float({1})",
            "pow(float({0}), 2)",
            "min(int({0}), int({1}))",
        ]
        return rng.choice(forms).format(a, b)

    condition = rng.choice(["__NVCC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__GNUC__", "__linux__", "__clang__"])
    fields = [
        f"{rng.choice(['int', 'float', 'char', 'double', 'short', '__half', 'float2'])} f{n};"
        for n in range(rng.randint(1, 5))
    ]
    guarded = (
        f"\n#if{rng.choice(['def', 'ndef'])} {condition}\n  long long more;\n#endif\n"
        if condition != "__CUDA_ARCH__"
        else ""
    )
    names = [
        "n",
        "x[i]",
        "t",
        *(f"s.f{n}" for n, each in enumerate(fields) if each.split()[0] not in ("__half", "float2")),
    ]
    lines = []
    for number in range(rng.randint(2, 6)):
        kind = rng.random()
        value = expression(rng.randint(1, 3), names)
        if kind < 0.2:
            lines.append(f"if ({value} > 1) {{ x[i + {number}] = {expression(1, names)}; }} else x[i] += 1'0;")
        elif kind < 0.4:
            lines.append(f"for (int j = 0; j < n; ++j) x[j] = {value};")
        elif kind < 0.5:
            lines.append(f"// it's <<<{value}>>>\nif (n > 1'000) printf(\"%d }} __global__ {{\", (int)({value}));")
        elif kind < 0.6:
            lines.append(f"auto f{number} = [=](auto v) {{ return v * {value}; }}; x[i] = f{number}(2);")
        else:
            lines.append(f"x[i + {number}] = {value};")
    body = "\n  ".join(lines)
    hidden = rng.choice(["namespace {", "namespace inner {", "inline namespace v1 {"])
    using = "using namespace inner;\n" if "inner" in hidden else ""
    kernel = f"template <typename T, int kBy = {rng.randint(1, 9)}> {rng.choice(['', 'static '])}__global__ void k(float* x, S s, T t, int n) {{\n  const int i = threadIdx.x;\n  {body}\n}}"
    launch = f"k<{rng.choice(['float', 'int', 'double'])}><<<1, {rng.randint(1, 64)}>>>(nullptr, S{{}}, {rng.choice(['1', '2'])}, n);"
    deduced = (
        f"k<<<dim3(n), n, n * sizeof(float)>>>((float*)nullptr, S{{}}, {rng.choice(['2.5f', '1l', '(short)2'])}, n);"
    )
    text = f"{hidden}\nstruct S {{ {' '.join(fields)}{guarded} }};\n{kernel}\n}}\n{using}template <typename T> void launch(T n) {{ {launch} {deduced} }}"
    return Program(f"seed {seed}", text, "launch(3);")
