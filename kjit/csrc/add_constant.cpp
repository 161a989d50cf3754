// add_constant: element by element, on the CPU's cores and vector units.
//
//     x: T[...], constant: const int = 1 -> out: T[...]

#include <kjit/tensor.h>

#include <cstdint>

namespace {

using namespace kjit;

/// One element of every tensor.
template <typename T, int64_t constant>
inline void add_constant_element(const T& x_ref, T& out_ref) {
  const compute_t<T> x = static_cast<compute_t<T>>(x_ref);
  // The math, as in `reference` of tests/ops/test_add_constant.py (in compute_t<T>: float for narrower types).
  const compute_t<T> out = x + constant;
  out_ref = static_cast<T>(out);
}

/// From this many elements on, several threads are faster than one.
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
#pragma omp parallel for simd schedule(static) if (parallel : numel >= kParallel)
    for (int64_t i = 0; i < numel; ++i) {
      add_constant_element<T, constant>(x_ptr[i], out_ptr[i]);
    }
  }
};

}  // namespace
