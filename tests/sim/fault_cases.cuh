// Kernels that would end the process, or never end, and next to them similar correct ones. The tests look for lines
// with "FAULT: <name>".

#include <kjit/launch.h>
#include <kjit/tensor.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

namespace {

using namespace kjit;

/// Faults are those of thread 5 of block 2.
__device__ bool is_chosen() {
  return blockIdx.x == 2 && threadIdx.x == 5;
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), TensorView out, std::type_identity_t<Parameters>... parameters) {
  host::SymbolicDevice gpu;
  host::SymbolicSize size{"size"};
  host::TensorMatcher({size}).with_device<kDLCUDA>(gpu).with_dtype<fp32_t>().verify(out, "out");
  host::LaunchKernel(4, 32, gpu.unwrap())(kernel, parameters...);
}
inline float* data_of(TensorView out) {
  return static_cast<float*>(out.data_ptr());
}
inline unsigned place() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

#define CASE(name, kernel, ...)                     \
  void name(TensorView out) {                       \
    launch(kernel, out __VA_OPT__(, ) __VA_ARGS__); \
  }

/// A kernel to run after a fault: element i of 128 becomes i.
__global__ void count(float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(place());
  __syncthreads();
  out[place() ^ 1] = tile[threadIdx.x ^ 1];
}
CASE(right, count, data_of(out))

__global__ void store(float* out, float* where) {
  float* const to = is_chosen() ? where : out + place();
  *to = 1.0f;  // FAULT: null_pointer wild_pointer impossible_pointer read_only
}
CASE(null_pointer, store, data_of(out), nullptr)
CASE(wild_pointer, store, data_of(out), reinterpret_cast<float*>(0x123456789000))
CASE(impossible_pointer, store, data_of(out), reinterpret_cast<float*>(0xdead000000000000))
CASE(read_only, store, data_of(out), reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(&strtod) & ~3ull))

__global__ void load(float* out, const float* where) {
  const float* const from = is_chosen() ? where : out + place();
  out[place()] = from[1];  // FAULT: wild_read
}
CASE(wild_read, load, data_of(out), reinterpret_cast<const float*>(0x123456789000))

__global__ void copy(float* out, const float* where, int n) {
  const float* const from = is_chosen() ? where : out + place();
  memcpy(out + place(), from, static_cast<std::size_t>(n) * sizeof(float));  // FAULT: wild_copy
}
CASE(wild_copy, copy, data_of(out), reinterpret_cast<const float*>(0x123456789000), 1)

__global__ void print(const char* text) {
  if (is_chosen()) printf("%s\n", text);  // FAULT: wild_text
}
CASE(wild_text, print, reinterpret_cast<const char*>(0x123456789000))

__global__ void call(float* out, void (*function)(float*)) {
  if (is_chosen()) function(out);  // FAULT: null_function
}
CASE(null_function, call, data_of(out), nullptr)

__global__ void divide(float* out, int n) {
  const int by = is_chosen() ? n : 1;
  out[place()] = static_cast<float>(static_cast<int>(place()) / by);  // FAULT: division
}
CASE(division, divide, data_of(out), 0)

__global__ void give_up(float* out) {
  if (is_chosen()) abort();  // FAULT: aborted
  out[place()] = 1.0f;
}
CASE(aborted, give_up, data_of(out))

__global__ void terminate_in(float* out) {
  if (is_chosen()) std::terminate();  // FAULT: terminated
  out[place()] = 1.0f;
}
CASE(terminated, terminate_in, data_of(out))

template <int kBytes>
__global__ void use_locals(float* out, int step) {  // FAULT: large_array
  volatile char local[kBytes];
  for (int i = 0; i < kBytes; i += step) local[i] = static_cast<char>(place());
  out[place()] = static_cast<float>(local[0] & 0x7f);
}
CASE(large_array, use_locals<(1 << 20)>, data_of(out), 64)
CASE(right_array, use_locals<(500 << 10)>, data_of(out), 64)

__device__ __attribute__((noinline)) float descend(float* out, int depth) {  // FAULT: recursion
  volatile float here[64];                                                   // FAULT: recursion
  here[0] = out[0];                                                          // FAULT: recursion
  return depth == 0 ? here[0] : descend(out, depth - 1) + here[0];           // FAULT: recursion
}
__global__ void recurse(float* out, int depth) {
  if (is_chosen()) out[1] = descend(out, depth);
}
CASE(recursion, recurse, data_of(out), 1 << 30)

__global__ void allocate(float* out, bool is_right) {
  float* const memory = static_cast<float*>(malloc(4 * sizeof(float)));
  auto* const more = new float[100];
  delete new (std::nothrow) float;
  for (int i = 0; i < 4; ++i) memory[i] = more[99 - i] = static_cast<float>(place());
  out[place()] = (memory[3] + more[96]) / 2;
  delete[] more;
  if (!is_right && is_chosen()) delete[] more;  // FAULT: deleted_twice
  free(memory);
}
CASE(right_memory, allocate, data_of(out), true)
CASE(deleted_twice, allocate, data_of(out), false)

__global__ void release(void* memory, int times) {
  for (int i = 0; i < times && is_chosen(); ++i) free(memory);  // FAULT: foreign_memory
}
CASE(foreign_memory, release, out.data_ptr(), 1)

__global__ void release_twice(float* out) {
  float* volatile memory = static_cast<float*>(malloc(64));
  free(memory);
  out[place()] = 1.0f;
  if (is_chosen()) free(memory);  // FAULT: freed_twice
}
CASE(freed_twice, release_twice, data_of(out))

// Endless kernels.

__global__ void spin(volatile float* out) {
  const bool is_endless = is_chosen();
  while (is_endless) out[0] = out[0] + 1;  // FAULT: endless_loop
  __syncthreads();
}
CASE(endless_loop, spin, data_of(out))

__global__ void poll(volatile float* flag) {
  if (blockIdx.x == 3) *flag = 1;
  while (*flag == 0) {  // FAULT: later_block
  }
}
CASE(later_block, poll, data_of(out))

__device__ int flag;
__global__ void poll_atomically() {
  while (atomicAdd(&flag, 0) == 0) {  // FAULT: atomic_poll
  }
}
CASE(atomic_poll, poll_atomically)

__global__ void meet_for_ever(float* out) {
  while (out[0] >= 0) __syncthreads();  // FAULT: endless_barriers
}
CASE(endless_barriers, meet_for_ever, data_of(out))

/// Of two concurrent blocks, one fails and the other waits for it.
__global__ void fail_alone(volatile float* out) {
  while (blockIdx.x == 0 && out[0] == 0) {
  }
  if (blockIdx.x == 1) abort();  // FAULT: one_of_two
}
void one_of_two(TensorView out) {
  host::SymbolicDevice gpu;
  host::TensorMatcher({-1}).with_device<kDLCUDA>(gpu).verify(out, "out");
  host::LaunchKernel(8, 1024, gpu.unwrap())(fail_alone, data_of(out));
}

// Invalid launches, on a GPU or in the simulator.

__device__ void launch_count(float* out) {
  count<<<1, 32>>>(out);  // FAULT: child_launch
}
__global__ void parent(float* out) {
  if (is_chosen()) launch_count(out);
}
CASE(child_launch, parent, data_of(out))

/// As users write it, without a check of the error.
void too_many_threads(TensorView out) {
  count<<<1, 2048>>>(data_of(out));  // FAULT: too_many_threads
}
void too_much_shared_memory(TensorView out) {
  count<<<1, 32, 100000>>>(data_of(out));  // FAULT: too_much_shared_memory
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads, 1) bounded(float* out) {
  out[place()] = static_cast<float>(place());
}
CASE(beyond_bounds, bounded<31>, data_of(out))
CASE(within_bounds, bounded<32>, data_of(out))

}  // namespace
