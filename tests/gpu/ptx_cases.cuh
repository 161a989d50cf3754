// Inline PTX as in kernels: instructions on a GPU, function calls in the simulator.

#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <cstdint>

namespace {

using namespace kjit;

#define OF_TWO(instruction, type)                                 \
  [&](type a, type b) {                                           \
    type out;                                                     \
    asm(instruction " %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b)); \
    return static_cast<std::uint32_t>(out);                       \
  }

/// Integers: `out` gets 16 results for each pair.
__global__ void integers(std::uint32_t* out, const std::uint32_t* in) {
  const std::uint32_t a = in[2 * threadIdx.x], b = in[2 * threadIdx.x + 1];
  std::uint32_t* const to = out + 16 * threadIdx.x;
  std::uint32_t low, high, bits;
  to[0] = OF_TWO("add.u32", std::uint32_t)(a, b);
  to[1] = OF_TWO("mul.hi.s32", std::int32_t)(a, b);
  to[2] = OF_TWO("min.s32", std::int32_t)(a, b);
  to[3] = OF_TWO("shr.s32", std::int32_t)(a, b % 40);
  to[4] = OF_TWO("shl.b32", std::uint32_t)(a, b % 40);
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(to[5]) : "r"(a), "r"(b), "r"(7));
  std::uint64_t wide;
  asm("{\n\t.reg .u64 product;\n\tmul.wide.u32 product, %1, %2;\n\tadd.u64 %0, product, 1;\n}"
      : "=l"(wide)
      : "r"(a), "r"(b));
  to[6] = static_cast<std::uint32_t>(wide >> 32);
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(to[7]) : "r"(a), "r"(5), "r"(9));
  asm("bfi.b32 %0, %1, %2, 4, 12;" : "=r"(to[8]) : "r"(a), "r"(b));
  asm("popc.b32 %0, %1; // ones" : "=r"(to[9]) : "r"(a));
  asm("clz.b32 %0, %1;" : "=r"(to[10]) : "r"(a >> (b % 31)));
  // A predicate, a selection, and a predicated instruction.
  asm("{ .reg .pred p, q; setp.lt.u32 p, %1, %2; not.pred q, p; selp.b32 %0, 100, 200, p; @q add.u32 %0, %0, 1; }"
      : "=r"(to[11])
      : "r"(a), "r"(b));
  asm("mov.b32 %0, {%1, %2};" : "=r"(to[12]) : "h"(static_cast<std::uint16_t>(b)), "h"(static_cast<std::uint16_t>(a)));
  asm("{ .reg .b16 h<2>; mov.b32 {h0, h1}, %1; cvt.u32.u16 %0, h1; }" : "=r"(to[13]) : "r"(a));
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(std::uint64_t{a} << 32 | b));
  to[14] = low - high;
  // A loop: the sum of 1 to 10.
  asm("{ .reg .pred p; .reg .u32 i; mov.u32 i, 10; mov.u32 %0, 0; again_%=: add.u32 %0, %0, i; sub.u32 i, i, 1;\n"
      "  setp.ne.u32 p, i, 0; @p bra again_%=; }"
      : "=r"(bits));
  to[15] = bits;
}
void run_integers(TensorView out, TensorView in) {
  host::LaunchKernel(1, in.size(0), out.device())(integers, host::data_of<std::uint32_t>(out),
                                                  host::data_of<const std::uint32_t>(in));
}

/// Floating-point values: 8 results for each pair.
__global__ void reals(float* out, const float* in) {
  const float a = in[2 * threadIdx.x], b = in[2 * threadIdx.x + 1];
  float* const to = out + 8 * threadIdx.x;
  asm("fma.rn.f32 %0, %1, %2, 0f40400000;" : "=f"(to[0]) : "f"(a), "f"(b));
  asm("max.f32 %0, %1, %2;" : "=f"(to[1]) : "f"(a), "f"(b));
  asm("div.rn.f32 %0, %1, %2;" : "=f"(to[2]) : "f"(a), "f"(b));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(to[3]) : "f"(a));
  asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(to[4]) : "f"(a));
  std::int32_t whole;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole) : "f"(a));
  to[5] = static_cast<float>(whole);
  asm("{ .reg .f32 t; rsqrt.approx.f32 t, %1; mul.f32 %0, t, t; }" : "=f"(to[6]) : "f"(b));
  asm("{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t; }" : "=f"(to[7]) : "f"(a));
}
void run_reals(TensorView out, TensorView in) {
  host::LaunchKernel(1, in.size(0), out.device())(reals, host::data_of<float>(out), host::data_of<const float>(in));
}

/// Pairs of half types: their sum, their product, a * b + a, and bf16's a * b + a.
__global__ void halves(std::uint32_t* out, const std::uint32_t* in) {
  const std::uint32_t a = in[2 * threadIdx.x], b = in[2 * threadIdx.x + 1];
  std::uint32_t* const to = out + 4 * threadIdx.x;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(to[0]) : "r"(a), "r"(b));
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(to[1]) : "r"(a), "r"(b));
  asm("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(to[2]) : "r"(a), "r"(b));
  asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(to[3]) : "r"(a), "r"(b));
}
void run_halves(TensorView out, TensorView in) {
  host::LaunchKernel(1, in.size(0), out.device())(halves, host::data_of<std::uint32_t>(out),
                                                  host::data_of<const std::uint32_t>(in));
}

/// Shared memory, atomic operations, lanes and barriers, by 64 threads.
__global__ void together(std::uint32_t* out, std::uint32_t* word) {
  __shared__ std::uint32_t staged[64];
  const auto place = static_cast<std::uint32_t>(__cvta_generic_to_shared(staged));
  std::uint32_t* const to = out + 8 * threadIdx.x;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(place + 4 * threadIdx.x), "r"(threadIdx.x * 3) : "memory");
  asm volatile("bar.sync 1, 64;" ::: "memory");
  asm volatile("ld.shared::cta.u32 %0, [%1+-4];" : "=r"(to[0]) : "r"(place + 4 * (64 - threadIdx.x)) : "memory");
  asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }"
               : "=r"(to[1])
               : "l"(staged + threadIdx.x));
  to[1] -= place;
  asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %1, 3, 0x1f, 0xffffffff; @!p mov.u32 %0, 77; }"
               : "=r"(to[2])
               : "r"(threadIdx.x));
  asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 0x1f, 0xffffffff;" : "=r"(to[3]) : "r"(threadIdx.x));
  asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 40; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(to[4])
               : "r"(threadIdx.x));
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(to[5]));
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(threadIdx.x) : "memory");
  asm volatile("atom.global.max.u32 %0, [%1+4], %2;" : "=r"(to[6]) : "l"(word), "r"(threadIdx.x) : "memory");
  asm volatile("barrier.sync 0;" ::: "memory");
  asm volatile("fence.acq_rel.gpu;\n\tld.acquire.gpu.global.u32 %0, [%1];" : "=r"(to[7]) : "l"(word) : "memory");
}
void run_together(TensorView out, TensorView word) {
  host::LaunchKernel(1, 64, out.device())(together, host::data_of<std::uint32_t>(out),
                                          host::data_of<std::uint32_t>(word));
}

}  // namespace
