// dst = src + kConstant for int32 tensors on the CPU.

#include <kjit/tensor.h>

#include <cstdint>

namespace {

using namespace kjit;

template <int32_t kConstant>
void add_constant(TensorView dst, TensorView src) {
  using namespace host;
  SymbolicSize n{"n"};
  TensorMatcher({n}).with_dtype<int32_t>().with_device<kDLCPU>().verify(dst, "dst").verify(src, "src");
  auto* to = static_cast<int32_t*>(dst.data_ptr());
  const auto* from = static_cast<const int32_t*>(src.data_ptr());
  for (int64_t i = 0; i < n.unwrap(); ++i) to[i] = from[i] + kConstant;
}

}  // namespace
