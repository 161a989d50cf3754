#include <kjit/ffi.h>

namespace {
double scale(double x) {
  return 2 * x;
}
}  // namespace

KJIT_EXPORT(scale, scale)
