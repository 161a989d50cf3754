#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;

template <typename T, int kWidth>
struct Packed {
  static_assert(kWidth % 4 == 0, "kWidth must be a multiple of 4");
  T values[kWidth];
};

template <typename T, int kWidth>
void scale_packed(T* x, double alpha) {
  Packed<T, kWidth> packed;
  for (T& value : packed.values) value = static_cast<T>(*x++ * alpha);
}

template <typename T, int kWidth>
struct Scale {
  static void run(TensorView x, double alpha) { scale_packed<T, kWidth>(static_cast<T*>(x.data_ptr()), alpha); }
};
