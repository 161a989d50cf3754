#include <kjit/tensor.h>

using namespace kjit;

extern "C" double scale_factor();

double scale() {
  return scale_factor();
}
