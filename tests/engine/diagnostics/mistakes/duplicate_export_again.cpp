#include <kjit/ffi.h>

namespace {
double scale(double x, double alpha) {
  return alpha * x;
}
}  // namespace

KJIT_EXPORT(scale, scale)
