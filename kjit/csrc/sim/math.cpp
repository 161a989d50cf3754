// Replacements for functions of the C library that are more accurate on a GPU; calls in the module are bound to them.

#include <cmath>

namespace {

// If one is NaN, signalling or not, the other.
template <typename T>
T larger(T x, T y) {
  if (x != x) return y;
  return x < y || (x == y && std::signbit(x)) ? y : x;
}
template <typename T>
T smaller(T x, T y) {
  if (x != x) return y;
  return y < x || (x == y && std::signbit(y)) ? y : x;
}

}  // namespace

extern "C" {

float fmaxf(float x, float y) noexcept {
  return y != y ? x : larger(x, y);
}
double fmax(double x, double y) noexcept {
  return y != y ? x : larger(x, y);
}
float fminf(float x, float y) noexcept {
  return y != y ? x : smaller(x, y);
}
double fmin(double x, double y) noexcept {
  return y != y ? x : smaller(x, y);
}

// Within two ulps (CUDA C++ Programming Guide, "Mathematical Functions"); glibc's is slightly worse.
float tanhf(float x) noexcept {
  return static_cast<float>(std::tanh(static_cast<double>(x)));
}

}  // extern "C"
