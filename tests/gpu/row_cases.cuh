// Test cases of kjit/row.cuh: every element is added to what its row has, by the threads that share the row.

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/row.cuh>

#include <cstdint>

namespace {

using namespace kjit;

__global__ void row_kernel(float* sums, float* peaks, int32_t* shared_by, const float* x, int64_t rows, int64_t columns,
                           int threads) {
  const device::row::Place place = device::row::place(threads);
  float sum = 0.0f, peak = -1e30f;
  if (place.row < rows) {
    for (int64_t i = place.lane; i < columns; i += threads) {
      const float value = x[place.row * columns + i];
      sum += value;
      peak = peak < value ? value : peak;
    }
  }
  sum = device::row::reduce_sum(sum, threads);
  peak = device::row::reduce_max(peak, -1e30f, threads);
  if (place.row < rows && place.lane == threads - 1) {
    sums[place.row] = sum;
    peaks[place.row] = peak;
    shared_by[place.row] = threads;
  }
}

int64_t reduce_rows(TensorView x, TensorView sums, TensorView peaks, TensorView shared_by, int64_t parts,
                    int64_t max_block) {
  using namespace host;
  const row::Spread spread = row::spread(x.size(0), x.size(1), static_cast<int>(parts), static_cast<int>(max_block));
  RuntimeCheck(spread.block <= row::kMaxBlock && spread.block % 32 == 0, "a block of ", spread.block);
  LaunchKernel(spread.grid, spread.block, x.device())(row_kernel, sums.data_ptr(), peaks.data_ptr(),
                                                      shared_by.data_ptr(), x.data_ptr(), x.size(0), x.size(1),
                                                      spread.threads);
  return spread.threads;
}

__global__ void move_kernel(int32_t* aligned, int32_t* streamed, int32_t* absent, const int32_t* x) {
  device::AlignedVector<int32_t, 4> vector;
  device::row::load_or_zero(vector, x, 4);
  device::row::store_streaming(vector, aligned);
  device::row::load<true>(vector, x, 4);
  device::row::store_streaming(vector, streamed);
  device::row::load_or_zero(vector, static_cast<const int32_t*>(nullptr), 4);
  device::row::store_streaming(vector, absent);
  device::row::load_unaligned(vector, static_cast<const int32_t*>(nullptr), 3, 8);
  device::row::store_streaming(vector, absent + 4);
}

void move(TensorView x, TensorView aligned, TensorView streamed, TensorView absent) {
  host::LaunchKernel(1, 1, x.device())(move_kernel, aligned.data_ptr(), streamed.data_ptr(), absent.data_ptr(),
                                       x.data_ptr());
}

template <typename T>
__global__ void unaligned_kernel(T* out, const T* x, int64_t size) {
  constexpr int64_t kVec = 16 / sizeof(T);
  for (int64_t at = threadIdx.x; at <= size - kVec; at += blockDim.x) {
    device::AlignedVector<T, kVec> vector;
    device::row::load_unaligned(vector, x, at, size);
    vector.store(out, at);
  }
}

/// Every vector of `x`, wherever it starts, one below the other.
template <typename T>
void unaligned(TensorView x, TensorView out) {
  host::LaunchKernel(1, 64, x.device())(unaligned_kernel<T>, out.data_ptr(), x.data_ptr(), x.size(0));
}

constexpr int kParts = 2;

__global__ void reverse_kernel(int32_t* out, const int32_t* x, int64_t chunks, int kept) {
  device::AlignedVector<int32_t, 4> vector;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int i = 0; i < kParts && chunk < kept; ++i) {
      device::row::load(vector, x, (int64_t{chunk * kParts + i} * blockDim.x + threadIdx.x) * 4);
      device::row::put(vector, chunk * kParts + i);
    }
  }
  for (int chunk = kept - 1; chunk >= 0; --chunk) {
    for (int i = 0; i < kParts; ++i) {
      device::row::take(vector, chunk * kParts + i);
      vector.store(out, int64_t{chunk * kParts + i} * blockDim.x + threadIdx.x);
    }
  }
}

/// Moves the chunks of a row that shared memory has room for through it; the result is how many there are.
int64_t through_shared_memory(TensorView x, TensorView out) {
  using namespace host;
  const int64_t vectors = x.size(0) / 4;
  const row::Spread spread = row::spread(1, vectors, kParts, 128);
  const row::Kept kept = row::keep(spread, vectors, kParts, 1, x.device());
  LaunchKernel(spread.grid, spread.block, x.device(), kept.bytes)(reverse_kernel, out.data_ptr(), x.data_ptr(),
                                                                  div_ceil(vectors, 128 * kParts), kept.chunks);
  return kept.chunks;
}

}  // namespace
