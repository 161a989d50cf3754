// Functions of the C library that a GPU has in a better form: calls in the module come here.

#include <cmath>

namespace {

// Of a number and a NaN, signalling or not, the number.
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

// Within two units in the last place (CUDA C++ Programming Guide, "Mathematical Functions"); glibc's is just past them.
float tanhf(float x) noexcept {
  return static_cast<float>(std::tanh(static_cast<double>(x)));
}

}  // extern "C"
