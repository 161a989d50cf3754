// Calls of the patterns whose tensors may share memory.

#include <kjit/ffi.h>
#include <kjit/patterns/elementwise.h>
#include <kjit/patterns/gather.h>
#include <kjit/patterns/rowwise.h>
#include <kjit/patterns/scatter.h>

#include <cstdint>

namespace {

using namespace kjit;
using namespace kjit::host;

struct Add {
  KJIT_MATH void element(float x, float y, float& out) const { out = x + y; }
};

struct Copy {
  KJIT_MATH void element(float x, float& out) const { out = x; }
};

struct ToFloat {
  KJIT_MATH void element(std::int32_t x, float& out) const { out = static_cast<float>(x); }
};

struct Two {
  KJIT_MATH void element(float x, float& one, float& other) const { one = other = x; }
};

struct AddSum {
  KJIT_MATH float term(float x) const { return x; }
  KJIT_MATH void element(float total, float x, float y, float& out) const { out = total + x + y; }
};

struct Store {
  KJIT_MATH void element(float& cache, float x) const { cache = x; }
};

inline SymbolicDevice& cpu(TensorView tensor) {
  static SymbolicDevice device;
  device.verify(tensor.device());
  return device;
}

void add(TensorView x, TensorView y, TensorView out) {
  elementwise(Add{}, out.numel(), cpu(x), In<float>(x), In<float>(y), Out<float>(out));
}

void to_float(TensorView x, TensorView out) {
  elementwise(ToFloat{}, out.numel(), cpu(x), In<std::int32_t>(x), Out<float>(out));
}

void two(TensorView x, TensorView one, TensorView other) {
  elementwise(Two{}, x.numel(), cpu(x), In<float>(x), Out<float>(one), Out<float>(other));
}

void copy_rows(TensorView x, TensorView out) {
  const RowSizes sizes{.num_rows = x.size(0), .row_size = x.size(1)};
  elementwise(Copy{}, sizes, cpu(x), Strided(In<float>(x), {.stride = x.stride(0)}),
              Strided(Out<float>(out), {.stride = out.stride(0)}));
}

void add_sum(TensorView x, TensorView weight, TensorView out) {
  rowwise(AddSum{}, {.num_rows = x.size(0), .row_size = x.size(1)}, cpu(x), In<float>(x), PerColumn<float>(weight),
          Out<float>(out));
}

void take(TensorView index, TensorView table, TensorView out) {
  gather(Copy{}, {.table_size = table.size(0), .num_rows = out.size(0), .row_size = out.size(1)}, cpu(out),
         Index<std::int64_t>(index), Table<float>(table), Out<float>(out));
}

void store(TensorView index, TensorView table, TensorView x) {
  scatter(Store{}, {.table_size = table.size(0), .num_rows = x.size(0), .row_size = x.size(1)}, cpu(x),
          Index<std::int64_t>(index), OutTable<float>(table), In<float>(x));
}

}  // namespace
