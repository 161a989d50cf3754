#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

template <typename T>
struct Scale {
  static void run(TensorView x, double alpha, TensorView out) {
    using namespace host;
    SymbolicSize n{"n"};
    TensorMatcher({n}).with_device<kDLCPU>().with_dtype<T>().verify(x, "x").verify(out, "out");
    const T* from = static_cast<const T*>(x.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    for (int64_t i = 0; i < n.unwrap(); ++i) to[i] = static_cast<T>(from[i] * alpha);
  }
};
