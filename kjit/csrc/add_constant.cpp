// add_constant: element by element, on the CPU's cores and vector units.
//
//     x: T[...], constant: const int = 1 -> out: T[...]

#include <kjit/cpu.h>
#include <kjit/tensor.h>

#include <cstdint>

namespace {

using namespace kjit;

/// One element of every tensor.
template <typename T, int64_t constant>
inline void add_constant_element(const T& x_ref, T& out_ref) {
  const compute_t<T> x = widen(x_ref);
  // The math, as in `reference` of tests/ops/test_add_constant.py (in compute_t<T>: float for narrower types).
  const compute_t<T> out = x + constant;
  out_ref = static_cast<T>(out);
}

/// For more elements than this, several threads are faster than one.
constexpr int64_t kParallel = 32768;

template <typename T, int64_t constant>
struct AddConstant {
  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicShape shape{"shape"};
    TensorMatcher(shape).with_device<kDLCPU>().with_dtype<T>().verify(x, "x").verify(out, "out");

    const int64_t numel = shape.numel();
    const T* x_ptr = static_cast<const T*>(x.data_ptr());
    T* out_ptr = static_cast<T*>(out.data_ptr());
    const bool streams = exceeds_caches<T, T>(numel) && begin_lines(out_ptr);
    parallel_ranges(numel, kStaged, numel > kParallel, [=](int64_t first, int64_t last) {
      for_staged<T>(first, last, streams, [=]<typename Size>(int64_t at, Size size) {
        Staged<const T> x_part(x_ptr + at, size);
        staged_t<const T>* x_data = x_part.data();
        Staged<T, false> out_part(out_ptr + at, size, streams);
        staged_t<T>* out_data = out_part.data();
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) {
          add_constant_element<staged_t<T>, constant>(x_data[i], out_data[i]);
        }
        out_part.store();
      });
    });
  }
};

}  // namespace
