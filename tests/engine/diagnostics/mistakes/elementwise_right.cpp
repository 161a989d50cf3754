#include <kjit/patterns/elementwise.h>

#include <cstdint>

using namespace kjit;

template <typename T>
struct Scale {
  scalar_t<T> alpha;

  KJIT_MATH void element(compute_t<T> x, compute_t<T>& out) const { out = x * alpha; }

  static void run(TensorView x, double alpha, TensorView out) {
    using namespace host;
    SymbolicSize n{"n"};
    SymbolicDevice device;
    TensorMatcher({n}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    elementwise(Scale{static_cast<scalar_t<T>>(alpha)}, n.unwrap(), device, In<T>(x), Out<T>(out));
  }
};
