// Test cases of kjit/row.cuh: every element is added to what its row has, by the threads that share the row.

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/row.cuh>

#include <cstdint>

namespace {

using namespace kjit;

__global__ void row_kernel(float* sums, float* peaks, int64_t* counts, const float* x, int64_t rows, int64_t columns,
                           int threads) {
  const device::row::Place place = device::row::place(threads);
  device::row::await_cluster(threads);
  float sum = 0.0f, peak = -1e30f;
  if (place.row < rows) {
    for (int64_t i = place.lane; i < columns; i += threads) {
      const float value = x[place.row * columns + i];
      sum += value;
      peak = peak < value ? value : peak;
    }
  }
  const float total = device::row::reduce_sum(sum, threads);
  peak = device::row::reduce_max(peak, -1e30f, threads);
  // More of them one after another, of another type too: none sees what an earlier one has left.
  int64_t count = 0;
  for (int turn = 0; turn < 5; ++turn) {
    count += device::row::reduce_sum(int64_t{turn == 0}, threads);
    const device::row::Pending<double> pending = device::row::begin_sum(static_cast<double>(sum) + turn, threads);
    const double again = device::row::finish_sum(pending, threads);
    if (again != static_cast<double>(total) + static_cast<double>(turn) * threads) count = -1000000;
  }
  if (place.row < rows && place.lane == threads - 1) {
    sums[place.row] = total;
    peaks[place.row] = peak;
    counts[place.row] = count;
  }
}

/// The sum and the maximum of each row, and how many threads have worked on it. `shape`, on the CPU, is told how many
/// should have, and in how many blocks.
void reduce_rows(TensorView x, TensorView sums, TensorView peaks, TensorView counts, TensorView shape, int64_t parts,
                 int64_t max_block, int64_t max_cluster) {
  using namespace host;
  const int most = static_cast<int>(max_cluster < row::kMaxCluster ? max_cluster : row::kMaxCluster);
  const row::Spread spread =
      row::spread(x.size(0), x.size(1), static_cast<int>(parts), static_cast<int>(max_block), most);
  RuntimeCheck(spread.block <= row::kMaxBlock && spread.block % 32 == 0, "a block of ", spread.block);
  const row::Kept shared = row::keep(spread, x.size(1), static_cast<int>(parts), 1, x.device());
  LaunchKernel({spread.grid, spread.cluster}, spread.block, x.device(), shared.bytes)
      .config(row::config(spread))(row_kernel, sums.data_ptr(), peaks.data_ptr(), counts.data_ptr(), x.data_ptr(),
                                   x.size(0), x.size(1), spread.threads);
  static_cast<int32_t*>(shape.data_ptr())[0] = spread.threads;
  static_cast<int32_t*>(shape.data_ptr())[1] = spread.cluster;
}

__global__ void move_kernel(int32_t* aligned, int32_t* streamed, int32_t* absent, const int32_t* x) {
  device::AlignedVector<int32_t, 4> vector;
  device::row::load_or_zero(vector, x, 4);
  device::row::store_streaming(vector, aligned);
  device::row::load<true>(vector, x, 4);
  device::row::store_streaming(vector, streamed);
  device::row::load_or_zero(vector, static_cast<const int32_t*>(nullptr), 4);
  device::row::store_streaming(vector, absent);
  device::row::Column<int32_t, 4, false, true>(nullptr, 3).load(vector, 3);
  device::row::store_streaming(vector, absent + 4);
}

void move(TensorView x, TensorView aligned, TensorView streamed, TensorView absent) {
  host::LaunchKernel(1, 1, x.device())(move_kernel, aligned.data_ptr(), streamed.data_ptr(), absent.data_ptr(),
                                       x.data_ptr());
}

template <typename T, int N>
__global__ void column_kernel(T* cut, T* whole, const T* x, int64_t vectors) {
  for (int64_t at = threadIdx.x; at < vectors; at += blockDim.x) {
    const int head = static_cast<int>(at) % N;
    device::AlignedVector<T, N> vector;
    device::row::Column<T, N, false>(x, head).load(vector, at);
    vector.store(cut, at);
    if (reinterpret_cast<uintptr_t>(x + at) % sizeof(vector) != 0) continue;
    device::row::Column<T, N, true, true>(x, head).load(vector, at);
    vector.store(whole, at);
  }
}

/// The vectors of `x` that start with its first, second, ... element, one below the other. `whole` has those of them
/// that are aligned.
template <typename T, int N>
void column(TensorView x, TensorView cut, TensorView whole) {
  host::LaunchKernel(1, 64, x.device())(column_kernel<T, N>, cut.data_ptr(), whole.data_ptr(), x.data_ptr(),
                                        cut.size(0));
}

/// A row whose beginning was asked for, `bytes` for each warp, read as one that may be absent, too.
template <int kStaying>
__global__ void fetched_kernel(int32_t* read, int32_t* optional, const int32_t* x, int64_t size, int bytes) {
  const int lane = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  device::row::fetch_ahead<4, kStaying, 4>(x, 0, size, bytes, lane, threads);
  device::AlignedVector<int32_t, 4> vector;
  int part = 0;
  for (int64_t i = lane * 4; i < size; i += threads * 4) {
    device::row::load<true>(vector, x, i, part < kStaying);
    vector.store(read + i);
    device::row::load_or_zero<true>(vector, x, i, part < kStaying);
    vector.store(optional + i);
    ++part;
  }
}

/// Of each thread's four vectors, the first `staying` stay in the L2 cache.
void fetched(TensorView x, TensorView read, TensorView optional, int64_t bytes, int64_t staying) {
  const auto kernel = staying == 0 ? fetched_kernel<0> : staying == 2 ? fetched_kernel<2> : fetched_kernel<4>;
  host::LaunchKernel(1, 64, x.device())(kernel, read.data_ptr(), optional.data_ptr(), x.data_ptr(), x.size(0), bytes);
}

/// Vectors of a column go through shared memory, as far as they lie before `end`, and zeros where there is no column.
template <typename T, int N, bool kAligned>
__global__ void put_kernel(T* out, const T* x, int64_t end) {
  constexpr int kCount = 3;
  const int64_t first = threadIdx.x * N, step = blockDim.x * N;
  const device::row::Column<T, N, kAligned> column(x, 0);
  const device::row::Column<T, N, kAligned, true, true> absent(nullptr, 0);
  device::row::put_columns<kCount>(column, 0, first, step, end);
  device::row::put_columns<kCount>(absent, kCount, first, step, end);
  device::row::await_columns();
  for (int i = 0; i < 2 * kCount; ++i) {
    if (i < kCount && i * step + first >= end) continue;
    device::AlignedVector<T, N> vector;
    i < kCount ? column.take(vector, i) : absent.take(vector, i);
    vector.store(out + i * step + first);
  }
}

template <typename T, int N>
void put_columns(TensorView x, TensorView out, int64_t end, bool aligned) {
  using namespace host;
  const row::Kept kept = row::keep({32, 32, 1, 1}, 6 * 32, 6, 1, x.device(), 6 * row::column_slots(aligned));
  const auto kernel = aligned ? put_kernel<T, N, true> : put_kernel<T, N, false>;
  LaunchKernel(1, 32, x.device(), kept.bytes)(kernel, out.data_ptr(), x.data_ptr(), end);
}

/// Up to five vectors of a column, one after another, and zeros where there is no column.
template <typename T, int N, bool kAligned>
__global__ void in_turn_kernel(T* out, T* zeros, const T* x, int64_t end) {
  constexpr int kCount = 5, kAtOnce = kAligned ? 2 : 1;
  const int64_t first = threadIdx.x * N, step = blockDim.x * N;
  device::row::Column<T, N, kAligned> column(x, 0);
  device::row::Column<T, N, kAligned, true> absent(nullptr, 0);
  device::AlignedVector<T, N> vectors[kAtOnce], nothing[kAtOnce];
  column.begin(vectors, first, step, end);
  absent.begin(nothing, first, step, end);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t at = first + i * step;
    if (at >= end) break;
    column.next(vectors, i, at, step, end, i + 1 == kCount);
    absent.next(nothing, i, at, step, end, i + 1 == kCount);
    vectors[i % kAtOnce].store(out + at);
    nothing[i % kAtOnce].store(zeros + at);
  }
}

template <typename T, int N>
void in_turn(TensorView x, TensorView out, TensorView zeros, int64_t end, bool aligned) {
  const auto kernel = aligned ? in_turn_kernel<T, N, true> : in_turn_kernel<T, N, false>;
  host::LaunchKernel(1, 32, x.device())(kernel, out.data_ptr(), zeros.data_ptr(), x.data_ptr(), end);
}

bool async_columns() {
  return host::row::kAsyncColumns;
}

/// Bytes of shared memory for a row of `vectors` vectors that 128 threads hold, at most four each, and three columns.
int64_t room_for_columns(TensorView x, int64_t vectors) {
  return static_cast<int64_t>(host::row::keep({128, 128, 1, 1}, vectors, 4, 1, x.device(), 3).bytes);
}

/// Four vectors of a column, from every third one on, of which those behind the last one stay as they are.
__global__ void columns_kernel(int32_t* out, const int32_t* x, int64_t size) {
  device::AlignedVector<int32_t, 4> vectors[4];
  for (auto& vector : vectors) vector.fill(-1);
  device::row::Column<int32_t, 4, true>(x, 0).load(vectors, int64_t{4}, int64_t{12}, size);
  for (int i = 0; i < 4; ++i) vectors[i].store(out, i);
}

void columns(TensorView x, TensorView out) {
  host::LaunchKernel(1, 1, x.device())(columns_kernel, out.data_ptr(), x.data_ptr(), x.size(0));
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

/// Moves a row of `size` elements, and asks for one that ends where the tensor does, and for none.
__global__ void fetch_kernel(int32_t* out, const int32_t* x, int64_t size) {
  const int lane = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (const int bytes : {0, 16, 256, 65536}) device::row::fetch_ahead(x, size, size, bytes, lane, threads);
  device::row::fetch_ahead(static_cast<const int32_t*>(nullptr), size, size, 256, lane, threads);
  for (int64_t i = lane; i < size; i += threads) out[i] = x[i];
}

/// The same, but few of its blocks fit an SM.
__global__ void roomy_kernel(int32_t* out, const int32_t* x, int64_t size) {
  __shared__ int32_t room[10240];
  room[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) out[i] = room[i % 128];
}

/// `x` has two rows, of which the first is moved.
void fetch(TensorView x, TensorView out) {
  host::LaunchKernel(1, 128, x.device())(fetch_kernel, out.data_ptr(), x.data_ptr(), x.size(1));
}

/// What `row::ahead` says of a launch of one of the two kernels: rows, or bytes of all warps of a row.
int64_t ahead(TensorView x, bool roomy, int64_t rows, int64_t vectors, int64_t inputs, int64_t kept, bool stays,
              bool bytes) {
  using namespace host;
  const row::Spread spread = row::spread(rows, vectors, 4);
  const row::Kept in_shared{static_cast<int>(kept), 0};
  const row::Ahead ahead = row::ahead(roomy ? roomy_kernel : fetch_kernel, spread, in_shared, rows, vectors,
                                      static_cast<int>(inputs), stays, x.device());
  return bytes ? ahead.bytes * (spread.threads / 32) : ahead.rows;
}

__global__ void part_kernel(int32_t* out, const int32_t* x, int64_t index, int64_t size) {
  device::AlignedVector<int32_t, 4> vector;
  device::row::load_part(vector, x, index, size);
  vector.store(out);
}

/// Of four elements from `x[index]` on those that `x` has; of nothing where it is absent.
void part(Optional<TensorView> x, TensorView out, int64_t index, int64_t size) {
  const void* const data = x.has_value() ? x.value().data_ptr() : nullptr;
  host::LaunchKernel(1, 1, out.device())(part_kernel, out.data_ptr(), data, index, size);
}

/// How many threads share each of very many rows.
int64_t threads_of_row(int64_t vectors, int64_t parts, int64_t line_threads) {
  using namespace host;
  return row::spread(1 << 20, vectors, static_cast<int>(parts), row::kMaxBlock, 1, static_cast<int>(line_threads))
      .threads;
}

bool worth_fetching(int64_t rows, int64_t vectors) {
  return host::row::worth_fetching(host::row::spread(rows, vectors, 4));
}

/// How many blocks of so many threads an SM runs.
int64_t blocks_per_sm(bool roomy, int64_t threads) {
  int blocks = 0;
  host::RuntimeDeviceCheck(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, roomy ? roomy_kernel : fetch_kernel,
                                                                           static_cast<int>(threads), 0));
  return blocks;
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
