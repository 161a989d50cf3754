"""What programs for nvcc rely on: CUDA's API without an include, its typed allocations, and nvcc's own extensions."""

from __future__ import annotations

from pathlib import Path

import kjit
from kjit.testing import simulated

# Nothing of CUDA's is included, as nvcc allows.
SOURCE = """
namespace {

static __device__ int counter;
static __constant__ int table[2] = {7, 8};

__global__ void vectors(float4* out) { out[0] = make_float4(1, 2, 3, 4); }
__global__ void statics(int* out) {
  static __shared__ int first[32];
  __shared__ static int second[2];
  first[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) second[0] = 1;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = first[3] + table[1] + second[0];
  atomicAdd(&counter, 1);
}
__global__ void atomics(int* out) {
  __nv_atomic_fetch_add(out, 3, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
  __nv_atomic_max(out + 1, static_cast<int>(threadIdx.x), __NV_ATOMIC_SEQ_CST);
  int expected = 0;
  if (__nv_atomic_compare_exchange_n(out + 2, &expected, 5, false, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_RELAXED)) {
    __nv_atomic_add(out + 3, 1, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_BLOCK);
  }
  const int value = __nv_atomic_load_n(out + 2, __NV_ATOMIC_ACQUIRE);
  __nv_atomic_store_n(out + 4, value, __NV_ATOMIC_RELEASE);
}

}  // namespace

int64_t typed_memory() {
  float4* device;
  if (cudaMalloc(&device, sizeof(float4)) != cudaSuccess) return -1;
  vectors<<<1, 1>>>(device);
  float4 host;
  cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(device);
  int* pitched;
  size_t pitch;
  cudaMallocPitch(&pitched, &pitch, 12, 3);
  cudaMemset2D(pitched, pitch, 1, 12, 3);
  const int last = pitched[2 * pitch / sizeof(int) + 2];
  cudaFree(pitched);
  return last == 0x01010101 ? static_cast<int>(host.w) : -2;
}
int64_t static_memory() {
  int* out;
  cudaMallocManaged(&out, 4);
  statics<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  int count;
  cudaMemcpyFromSymbol(&count, counter, sizeof count);
  return count * 100 + *out;
}
int64_t nvcc_atomics() {
  int* out;
  cudaMallocManaged(&out, 20);
  cudaMemset(out, 0, 20);
  atomics<<<2, 32>>>(out);
  cudaDeviceSynchronize();
  return (((out[0] * 100 + out[1]) * 10 + out[2]) * 10 + out[3]) * 10 + out[4];
}
int64_t properties() {
  cudaDeviceProp found;
  cudaGetDeviceProperties(&found, 0);
  libraryPropertyType part = MAJOR_VERSION;
  return found.multiProcessorCount * 1000 + found.major * 100 + found.warpSize + part;
}

#include <cooperative_groups.h>
namespace groups = cooperative_groups;

namespace {

__device__ int next(groups::thread_block_tile<32, groups::thread_block> tile, int value) {
  return tile.shfl_down(value, 1);
}
__global__ void tiles(int* out) {
  auto block = groups::this_thread_block();
  groups::thread_block_tile<32> warp = groups::tiled_partition<32>(block);
  auto four = groups::tiled_partition<4>(warp);
  out[threadIdx.x] = next(groups::tiled_partition<32>(block), threadIdx.x) * 10 + four.thread_rank();
}

}  // namespace

int64_t tiles_of_a_parent() {
  int* out;
  cudaMallocManaged(&out, 128);
  tiles<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  return out[6];
}
"""
RESULTS = {
    "typed_memory": 4,
    "static_memory": 3200 + 3 + 8 + 1,
    "nvcc_atomics": 64 * 3 * 100_000 + 31 * 1000 + 5 * 100 + 10 + 5,
    "properties": 132 * 1000 + 900 + 32,
    "tiles_of_a_parent": 72,
}


def test_programs_for_nvcc(tmp_path: Path) -> None:
    program, source = tmp_path / "program.cu", tmp_path / "unit.cuh"
    program.write_text(SOURCE)
    source.write_text('#include "program.cu"\n#include <kjit/tensor.h>\n')
    with simulated():
        module = kjit.load_jit("programs", cuda_files=[source], cuda_wrappers=[(name, name) for name in RESULTS])
    assert {name: module[name]() for name in RESULTS} == RESULTS
