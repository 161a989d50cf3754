// What kernels for the CPU share: work in parallel, and blocks of elements in the type that is computed in.
//
//   parallel_ranges(numel, 1024, numel >= kParallel, [&](int64_t first, int64_t last) { ... });  // a range a thread

#pragma once

#include <kjit/dtype.h>

#include <cstddef>
#include <cstdint>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace kjit {

/// Splits `total` elements into a range for each thread and calls `work(first, last)` for each at the same time; there is
/// one range where `is_parallel` is false. Ranges begin at multiples of `grain`.
///
/// As many threads as OpenMP has, which in a process with PyTorch are PyTorch's own (`torch.set_num_threads`). `work`
/// must not throw.
template <typename Work>
void parallel_ranges(std::int64_t total, std::int64_t grain, bool is_parallel, const Work& work) {
#if defined(_OPENMP)
  if (is_parallel && !omp_in_parallel()) {
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads();
      const std::int64_t grains = (total + grain - 1) / grain;
      const std::int64_t size = (grains + threads - 1) / threads * grain;
      const std::int64_t first = omp_get_thread_num() * size;
      const std::int64_t last = first + size < total ? first + size : total;
      if (first < last) work(first, last);
    }
    return;
  }
#else
  static_cast<void>(grain);
  static_cast<void>(is_parallel);
#endif
  if (total > 0) work(std::int64_t{0}, total);
}

}  // namespace kjit
